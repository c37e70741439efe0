//! The methods of a tensor: looking at it and handing it on.

use core::ffi::c_int;

use devexchange_core::Flags;
use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::arrow::batch::RecordBatch;
use crate::dlpack::address;
use crate::dlpack::consumer::Maker;
use crate::dlpack::export::{self, Asked};
use crate::order::stream;
use crate::python::address::Address;
use crate::python::argument;
use crate::python::error::{Error, Result, built_in, wrong_type};
use crate::python::handle::Handle;
use crate::tensor::type_object::New;
use crate::tensor::{Tensor, buffer, cuda_array, exchange_table, numpy, transfer};
use crate::{convert, copy, device};

#[pymethods]
impl Tensor {
    /// A closed object, which `type_object` fills. Programs cannot create one.
    #[new]
    fn closed() -> Self {
        Self(Handle::closed("tensor"))
    }

    /// Extent of each dimension, in elements.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(py, self.get()?.shape())?)
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> Result<usize> {
        Ok(self.get()?.shape().len())
    }

    /// Distance between neighbours along each dimension, in elements.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(py, self.get()?.strides())?)
    }

    /// Name of the element type, for example "float32".
    #[getter]
    fn dtype(&self) -> Result<String> {
        Ok(self.get()?.dtype().to_string())
    }

    /// Where the memory is.
    #[getter]
    fn device<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        device::to_python(py, self.get()?.device())
    }

    /// Address of the first element; 0 if there are none.
    #[getter]
    fn data_ptr(&self) -> Result<usize> {
        Ok(self.get()?.data().addr())
    }

    /// Size of all elements in bytes, without gaps.
    #[getter]
    fn nbytes(&self) -> Result<usize> {
        Ok(self.get()?.layout().bytes)
    }

    /// Whether the elements must not be written.
    #[getter]
    fn read_only(&self) -> Result<bool> {
        Ok(self.get()?.flags().has(Flags::READ_ONLY))
    }

    /// Whether the memory is a copy that was made for this exchange.
    #[getter]
    fn is_copied(&self) -> Result<bool> {
        Ok(self.get()?.flags().has(Flags::IS_COPIED))
    }

    /// Declares that the elements are ready when the work queued on `stream` so far is done.
    ///
    /// This is for work of your own that fills the memory on another stream than the one that the tensor was made on, which is
    /// the legacy default stream if no other was named, and for work on any stream if this package has allocated pinned or
    /// managed memory, which counts as ready at once. Call it before the tensor is handed on. Memory that is given back in the
    /// order of another stream goes back only after that work, too. The stream must outlive this tensor and everything handed
    /// on from it; a `DeviceStream` may be closed earlier.
    ///
    /// Raises ValueError if the tensor is shared already, BufferError for memory without streams, and for memory that is given
    /// back in the order of another stream if the stream is being captured.
    fn produced_on(&self, stream: &Bound<'_, PyAny>) -> Result<()> {
        let stream = self.get()?.stream(stream::number(stream)?)?;
        // SAFETY: the caller declares exactly this.
        Ok(self.0.change(|tensor| unsafe { tensor.produced_on(stream) })??)
    }

    /// Declares that the work queued on `stream` so far uses the memory, which is released only when that work is done.
    fn used_on(&self, stream: &Bound<'_, PyAny>) -> Result<()> {
        let tensor = self.get()?;
        Ok(tensor.used_on(tensor.stream(stream::number(stream)?)?)?)
    }

    /// Makes `stream` wait, on the device, until the elements may be touched.
    fn wait(&self, stream: &Bound<'_, PyAny>) -> Result<()> {
        let tensor = self.get()?;
        Ok(tensor.wait(tensor.stream(stream::number(stream)?)?)?)
    }

    /// Asks the driver whether all of the memory is where the tensor says.
    ///
    /// No description can prove this. Memory of the CPU is not checked.
    ///
    /// Raises BufferError if the memory is not there.
    fn check_pointers(&self) -> Result<()> {
        Ok(self.get()?.check_pointers()?)
    }

    /// Returns `length` indices along one dimension from `offset` on, or all from there, as a tensor of its own.
    ///
    /// Negative dimensions count from the end. The slice shares the memory: nothing is copied. On a GPU it has the order of the
    /// whole tensor, and work declared with `used_on` for the slice counts for the whole.
    ///
    /// Raises IndexError if there is no such dimension or it has too few indices, BufferError if the first element of the
    /// slice begins within a byte.
    #[pyo3(signature = (dimension, offset=0, length=None))]
    fn slice(
        &self,
        #[pyo3(from_py_with = dimension_of)] dimension: i64,
        #[pyo3(from_py_with = argument::offset)] offset: i64,
        length: Option<&Bound<'_, PyAny>>,
    ) -> Result<New> {
        let tensor = self.get()?;
        let counted = if dimension < 0 { dimension.saturating_add(tensor.shape().len() as i64) } else { dimension };
        let dimension = if counted < 0 { dimension } else { counted };
        let extent = usize::try_from(dimension).ok().and_then(|index| tensor.shape().get(index)).copied();
        Ok(New(tensor.slice(dimension, offset, argument::length(length, offset, extent.unwrap_or(0))?)?))
    }

    /// Returns a copy on `device`, queued on `stream` (by default the legacy default stream).
    ///
    /// `device` is named as for `from_dlpack`. The copy is ready after that work; if it or this tensor is in host memory that
    /// is not pinned, the call waits for it. For a copy within host memory that is not pinned, no stream is used if none is
    /// named, and a default stream is that of device 0. A copy from or to such memory is row-major; any other copy has the same
    /// strides.
    #[pyo3(signature = (device, stream=None))]
    fn copy_to(&self, py: Python<'_>, device: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Result<New> {
        let target = device::asked(device)?;
        Ok(New(copy::tensor(py, &self.get()?, target, stream::optional(stream)?)?))
    }

    /// Reads all elements, in row-major order, into the memory of an object with the buffer protocol.
    ///
    /// The object is, for example, a bytearray or a NumPy array. The elements are read after the work queued on `stream` (by
    /// default the legacy default stream; for host memory that is not pinned, no stream), and the call waits for them. The
    /// buffer has to be writable and compact. Its elements are bytes or have the tensor's type, and it is as large as the
    /// tensor's elements, which have to be compact and row-major, too. An array of elements that buffers have no format for
    /// (bfloat16 and the like of ml_dtypes) is given as bytes: `array.view("u1")`.
    ///
    /// Raises ValueError for another number of bytes, TypeError for other elements, BufferError for elements that are not
    /// compact and row-major, and for a buffer that is read-only.
    #[pyo3(signature = (into, /, stream=None))]
    fn read(&self, into: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Result<()> {
        transfer::read(&self.get()?, into, stream::optional(stream)?)
    }

    /// Writes all elements from the memory of an object with the buffer protocol.
    ///
    /// `stream` and the buffer are as for `read`, but the buffer may be read-only. The call waits until the elements are
    /// written; then the buffer can be reused. Nobody else may use the elements meanwhile.
    ///
    /// Raises the same errors as `read`; BufferError also if the tensor is read-only.
    #[pyo3(signature = (source, /, stream=None))]
    fn write(&self, source: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Result<()> {
        transfer::write(&self.get()?, source, stream::optional(stream)?)
    }

    /// Returns how `to_column` would make a column: as a view, with a copy, or not at all, and why.
    fn plan_column<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        convert::plan_column(py, &self.get()?)
    }

    /// Returns the tensor as an Arrow array.
    ///
    /// A vector becomes an array of numbers; each further dimension becomes a level of fixed-size lists. `copy` is as for
    /// `from_dlpack`. The result has one array and no columns; see `RecordBatch.root`.
    #[pyo3(signature = (name="", *, copy=None))]
    fn to_column(
        &self,
        py: Python<'_>,
        name: &str,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> Result<RecordBatch> {
        Ok(RecordBatch::new(convert::column(py, &self.get()?, name, copy)?))
    }

    /// Returns how `to_batch` would make a record batch: as a view, with a copy, or not at all, and why.
    fn plan_batch<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        convert::plan_batch(py, &self.get()?)
    }

    /// Returns a matrix as a record batch with a column for each column of the matrix.
    ///
    /// The columns are named by `names`, or else "0", "1" and so on. `copy` is as for `from_dlpack`. A view needs columns
    /// whose values follow each other (column-major).
    #[pyo3(signature = (names=None, *, copy=None))]
    fn to_batch(
        &self,
        py: Python<'_>,
        names: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> Result<RecordBatch> {
        Ok(RecordBatch::new(convert::batch(py, &self.get()?, names, copy)?))
    }

    /// Returns how `to_fixed_shape_column` would make a column: as a view, with a copy, or not at all, and why.
    fn plan_fixed_shape_column<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        convert::plan_fixed_shape_column(py, &self.get()?)
    }

    /// Like `to_column`, but returns a column of the extension type `arrow.fixed_shape_tensor`.
    ///
    /// The rows are the first dimension. Each row is a tensor of the other dimensions, which can lie in any order.
    /// `Column.to_tensor` is the way back.
    #[pyo3(signature = (name="", *, copy=None))]
    fn to_fixed_shape_column(
        &self,
        py: Python<'_>,
        name: &str,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> Result<RecordBatch> {
        Ok(RecordBatch::new(convert::fixed_shape_column(py, &self.get()?, name, copy)?))
    }

    /// Returns the device type and number (array API).
    fn __dlpack_device__(&self) -> Result<(i32, i32)> {
        let device = self.get()?.device();
        Ok((device.kind.0, device.id))
    }

    /// Returns a capsule with the tensor, for one consumer (array API).
    ///
    /// The consumer's `stream` is made to wait for the elements. With None, the legacy default stream waits, and so does the
    /// host if it can read the memory (pinned and managed); with -1, nothing waits. Without `max_version` the consumer gets
    /// the struct of DLPack before 1.0.
    ///
    /// Raises BufferError if the export is not possible as requested: read-only memory for a consumer that cannot be told so,
    /// another device or a copy where `copy` is False.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let asked = Asked::read(stream, max_version, dl_device, copy)?;
        export::export(py, self.get()?, &asked)
    }

    /// Takes a tensor from the `DLManagedTensorVersioned` at an address.
    ///
    /// Its deleter is called when the last user is gone. The producer must have made the tensor ready for `stream`, or for
    /// the legacy default stream if none is given. The address is not checked: there must be such a struct, owned by the
    /// caller.
    #[staticmethod]
    #[pyo3(signature = (address, /, *, stream=None))]
    fn import_dlpack(address: Address, stream: Option<&Bound<'_, PyAny>>) -> Result<New> {
        // SAFETY: the caller vouches for the address.
        Ok(New(unsafe { address::import(address, stream::optional(stream)?) }?))
    }

    /// Returns the address of a new `DLManagedTensorVersioned` with the tensor.
    ///
    /// It is for a consumer in this process that takes addresses; the consumer calls the deleter once. The consumer's
    /// `stream` is made to wait for the elements; by default it is the legacy default stream. This object keeps its part.
    #[pyo3(signature = (*, stream=None))]
    fn export_share(&self, stream: Option<&Bound<'_, PyAny>>) -> Result<usize> {
        address::export(self.get()?, stream::optional(stream)?)
    }

    /// The function table for exchanges in C (DLPack 1.3, `DLPackExchangeAPI`).
    ///
    /// None of its functions makes the host wait. The stream that it names is the legacy default stream of the device.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(exchange_table::capsule(py)?.unbind())
    }

    /// Returns an object of another library over the same memory, made by the function table of its type.
    ///
    /// `kind` is a type with `__dlpack_c_exchange_api__` (DLPack 1.3), such as `torch.Tensor`. The object keeps the memory
    /// alive. The stream that the other library works on now is made to wait for the elements.
    ///
    /// Some libraries have no read-only arrays, and write to memory that must not be written: PyTorch is one. PyTorch also
    /// refuses negative strides ("Storage size calculation overflowed"); `copy_to` makes a copy without them.
    ///
    /// Raises TypeError for a type without such a table, and any exception of the other library. Then nothing was handed
    /// over.
    #[pyo3(signature = (kind, /))]
    fn to<'py>(&self, kind: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let Ok(kind) = kind.cast::<PyType>() else {
            return wrong_type!("kind is {kind:?}: a type is needed; to another device it goes by copy_to");
        };
        Maker::of(kind)?.make(kind.py(), self.get()?)
    }

    /// The CUDA Array Interface, version 3.
    ///
    /// Host memory and closed tensors do not have this attribute. The dictionary does not keep the memory alive; this object
    /// does.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        match self.get() {
            Ok(tensor) => cuda_array::export(py, tensor),
            // A program that tests any object for the interface must find that there is none.
            Err(closed) => Err(Error::Python(built_in::<PyAttributeError>(PyErr::from(closed).value(py).to_string()))),
        }
    }

    /// Returns the elements as a NumPy array (`numpy.asarray`).
    ///
    /// NumPy calls this where the buffer protocol is not enough.
    ///
    /// Raises BufferError for memory that the host cannot read, and the exception of `numpy.from_dlpack` for element types that
    /// NumPy does not support.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        numpy::array(py, New(self.get()?), dtype, copy)
    }

    /// Refuses. Without this and `__int__`, Python would parse the bytes of the buffer as the text of a number.
    fn __float__(&self) -> Result<f64> {
        no_number()
    }

    fn __int__(&self) -> Result<i64> {
        no_number()
    }

    /// Refuses, for `pickle` and `copy`: memory belongs to a process.
    fn __reduce__(&self) -> Result<()> {
        wrong_type!(
            "a Tensor cannot be pickled: copy_to copies it, devexchange.ipc shares its memory with another process, and \
             numpy.array(tensor) can be pickled"
        )
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> Result<()> {
        // SAFETY: Python gives the address of a view, to be filled in.
        unsafe { buffer::lend(slf, view, flags) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: Python gives back a view that was filled in.
        unsafe { buffer::take_back(view) }
    }

    /// Gives up this object's part of the memory; whoever it was handed to keeps theirs.
    ///
    /// Closing again does nothing.
    fn close(&self) {
        self.0.close();
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        let Ok(tensor) = self.get() else { return "<devexchange.Tensor closed>".to_owned() };
        let read_only = if tensor.flags().has(Flags::READ_ONLY) { " read-only" } else { "" };
        let (dtype, shape, device) = (tensor.dtype(), tensor.shape(), tensor.device());
        format!("<devexchange.Tensor {dtype} {shape:?} on {device}{read_only}>")
    }
}

fn no_number<T>() -> Result<T> {
    wrong_type!(
        "a Tensor is not a number: the element of a tensor with one element is numpy.from_dlpack(tensor).item()"
    )
}

fn dimension_of(given: &Bound<'_, PyAny>) -> PyResult<i64> {
    Ok(argument::number(given, "dimension", i64::MIN, i64::MAX)?)
}

/// Gives up a tensor's part of the memory after the work queued on a stream so far.
///
/// This is one step, for the allocators of this package: unlike `used_on` followed by `close`, it cannot fail halfway.
#[pyfunction]
pub(crate) fn close_after(py: Python<'_>, tensor: &Bound<'_, Tensor>, stream: &Bound<'_, PyAny>) -> Result<()> {
    let tensor = tensor.get();
    let number = stream::number(stream)?;
    let stream = tensor.get()?.stream(number)?;
    if let Some(taken) = tensor.0.take() {
        py.detach(|| taken.release_after(stream));
    }
    Ok(())
}
