//! What a program does with a tensor: looking at it, handing it on.

use core::ffi::c_int;

use devexchange_core::Flags;
use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::arrow::batch::RecordBatch;
use crate::dlpack::consumer::Maker;
use crate::dlpack::export::{self, Asked};
use crate::dlpack::{address, version};
use crate::order::stream;
use crate::python::address::Address;
use crate::python::argument;
use crate::python::error::{Error, Result, wrong_type};
use crate::python::handle::Handle;
use crate::tensor::type_object::New;
use crate::tensor::{Tensor, buffer, cuda_array, exchange_table, numpy, transfer};
use crate::{convert, copy, device};

#[pymethods]
impl Tensor {
    /// An object that is closed: what `type_object` fills. Programs cannot ask for one.
    #[new]
    fn closed() -> Self {
        Self(Handle::closed("tensor"))
    }

    /// Extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(py, self.get()?.shape())?)
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> Result<usize> {
        Ok(self.get()?.shape().len())
    }

    /// Distances of neighbours along each dimension, in elements.
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

    /// Bytes of all elements, without gaps.
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

    /// Says that the elements are there when what is queued on `stream` is done: for work of your own that fills the memory on
    /// another stream than the one that it was allocated on. To be called before it is handed on. Memory that is given back in
    /// the order of another stream is so only after that work, too. The stream outlives this, and what is handed on of it; a
    /// `DeviceStream` may be closed before.
    ///
    /// Raises ValueError if somebody else has it already, BufferError for memory without streams.
    fn produced_on(&self, stream: &Bound<'_, PyAny>) -> Result<()> {
        let stream = self.get()?.stream(stream::number(stream)?)?;
        // SAFETY: that is what the caller says.
        Ok(self.0.change(|tensor| unsafe { tensor.produced_on(stream) })??)
    }

    /// Says that work which is queued on `stream` until now uses the memory: it is released only when that work is
    /// done.
    fn used_on(&self, stream: &Bound<'_, PyAny>) -> Result<()> {
        let tensor = self.get()?;
        Ok(tensor.used_on(tensor.stream(stream::number(stream)?)?)?)
    }

    /// Makes `stream` wait, on the device, until the elements may be touched.
    fn wait(&self, stream: &Bound<'_, PyAny>) -> Result<()> {
        let tensor = self.get()?;
        Ok(tensor.wait(tensor.stream(stream::number(stream)?)?)?)
    }

    /// Asks the driver whether the memory is where the tensor says, all of it: what no description can prove. Host memory
    /// is not asked for.
    ///
    /// Raises BufferError if it is not.
    fn check_pointers(&self) -> Result<()> {
        Ok(self.get()?.check_pointers()?)
    }

    /// So many of the indices along one dimension from the one at `offset` on, or all of them, as a tensor of its own. It shares
    /// the memory: nothing is copied, on a GPU the slice is in the order of the whole, and work that is noted for it is noted for
    /// the whole.
    ///
    /// Raises IndexError if there is no such dimension or it has not so many, BufferError for elements that begin within a byte.
    #[pyo3(signature = (dimension, offset=0, length=None))]
    fn slice(
        &self,
        #[pyo3(from_py_with = dimension_of)] dimension: i64,
        #[pyo3(from_py_with = argument::offset)] offset: i64,
        length: Option<&Bound<'_, PyAny>>,
    ) -> Result<New> {
        let tensor = self.get()?;
        let extent = usize::try_from(dimension).ok().and_then(|index| tensor.shape().get(index)).copied();
        Ok(New(tensor.slice(dimension, offset, argument::length(length, offset, extent.unwrap_or(0))?)?))
    }

    /// A copy on `device`, which is named as for `from_dlpack`, queued on `stream` (by default the legacy default
    /// stream), after which it is ready; into host memory that is not pinned the call waits. Between such memory no stream is
    /// used if none is named, and a default stream is that of device 0. Elements in another order than row-major are so in
    /// copies from and to such memory; other copies have the same strides.
    #[pyo3(signature = (device, stream=None))]
    fn copy_to(&self, py: Python<'_>, device: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Result<New> {
        let target = device::asked(device)?;
        Ok(New(copy::tensor(py, &self.get()?, target, stream::optional(stream)?)?))
    }

    /// Reads all elements into the memory of an object with the buffer protocol (a bytearray, an array of NumPy), in row-major
    /// order, behind what is queued on `stream` (by default the legacy default stream; of host memory that is not pinned, none),
    /// and waits for them. It has to be writable and compact, with elements of this type or bytes, as many as the tensor's elements take, which lie compactly,
    /// too.
    ///
    /// Raises ValueError for another number of bytes, TypeError for other elements, BufferError for elements with gaps between
    /// them, and for a buffer that is read-only.
    #[pyo3(signature = (into, /, stream=None))]
    fn read(&self, into: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Result<()> {
        transfer::read(&self.get()?, into, stream::optional(stream)?)
    }

    /// Writes all elements from the memory of an object with the buffer protocol, as `read` reads them. Work that is queued on
    /// `stream` afterwards sees them, and the buffer may be used again at once. Nobody else uses the elements meanwhile; if the
    /// stream is not the one that the tensor was made on, say `produced_on`.
    ///
    /// Raises as `read`; BufferError also if the tensor is read-only.
    #[pyo3(signature = (source, /, stream=None))]
    fn write(&self, source: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Result<()> {
        transfer::write(&self.get()?, source, stream::optional(stream)?)
    }

    /// How `to_column` would make a column of it: as a view, with a copy, or not at all, and why.
    fn plan_column<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        convert::plan_column(py, &self.get()?)
    }

    /// The tensor as an Arrow array: numbers if it is a vector, fixed-size lists for each dimension more. `copy` is
    /// as for `from_dlpack`. The result has one array and no columns; see `RecordBatch.root`.
    #[pyo3(signature = (name="", *, copy=None))]
    fn to_column(&self, py: Python<'_>, name: &str, copy: Option<bool>) -> Result<RecordBatch> {
        Ok(RecordBatch::new(convert::column(py, &self.get()?, name, copy)?))
    }

    /// How `to_batch` would make a record batch of it: as a view, with a copy, or not at all, and why.
    fn plan_batch<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        convert::plan_batch(py, &self.get()?)
    }

    /// A matrix as a record batch with a column for each column, named by `names`, or "0", "1" and so on. `copy` is as
    /// for `from_dlpack`. A view needs columns whose values follow each other (column-major).
    #[pyo3(signature = (names=None, *, copy=None))]
    fn to_batch(&self, py: Python<'_>, names: Option<&Bound<'_, PyAny>>, copy: Option<bool>) -> Result<RecordBatch> {
        Ok(RecordBatch::new(convert::batch(py, &self.get()?, names, copy)?))
    }

    /// How `to_fixed_shape_column` would make a column of it: as a view, with a copy, or not at all, and why.
    fn plan_fixed_shape_column<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        convert::plan_fixed_shape_column(py, &self.get()?)
    }

    /// As `to_column`, as a column of the extension type `arrow.fixed_shape_tensor`: the rows are the first dimension,
    /// each is a tensor of the others, which may lie in any order. `Column.to_tensor` is the way back.
    #[pyo3(signature = (name="", *, copy=None))]
    fn to_fixed_shape_column(&self, py: Python<'_>, name: &str, copy: Option<bool>) -> Result<RecordBatch> {
        Ok(RecordBatch::new(convert::fixed_shape_column(py, &self.get()?, name, copy)?))
    }

    /// Device type and number (array API).
    fn __dlpack_device__(&self) -> Result<(i32, i32)> {
        let device = self.get()?.device();
        Ok((device.kind.0, device.id))
    }

    /// A capsule with the tensor, for one consumer (array API). The consumer's `stream` is made to wait for the
    /// elements; None is the legacy default stream, and the host if it can read the memory (pinned and managed), -1 is
    /// none. Without `max_version` the consumer gets the struct of DLPack before 1.0.
    ///
    /// Raises BufferError if that is not possible as asked: read-only memory for a consumer that cannot know, another
    /// device or a copy where `copy` is False.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let max_version = max_version.map(version::from_python).transpose()?;
        let device = dl_device.map(device::asked).transpose()?;
        let asked = Asked { stream: stream::optional(stream)?, max_version, device, copy };
        export::export(py, self.get()?, &asked)
    }

    /// Takes a tensor from the `DLManagedTensorVersioned` at this address, whose deleter is called when the last user is
    /// gone. Its producer was asked for it with `stream`, or made it ready for the legacy default one.
    ///
    /// The address is believed: there has to be such a struct, which belongs to the caller.
    #[staticmethod]
    #[pyo3(signature = (address, /, *, stream=None))]
    fn import_dlpack(address: Address, stream: Option<&Bound<'_, PyAny>>) -> Result<New> {
        // SAFETY: the caller vouches for the address.
        Ok(New(unsafe { address::import(address, stream::optional(stream)?) }?))
    }

    /// The address of a new `DLManagedTensorVersioned` with the tensor, for a consumer in this process that takes
    /// addresses: it calls the deleter, once. The consumer's `stream` is as for `__dlpack__`. This object keeps its part.
    #[pyo3(signature = (*, stream=None))]
    fn export_share(&self, stream: Option<&Bound<'_, PyAny>>) -> Result<usize> {
        address::export(self.get()?, stream::optional(stream)?)
    }

    /// The function table for exchanges in C (DLPack 1.3, `DLPackExchangeAPI`). None of its functions makes the host
    /// wait; the stream that it names is the legacy default one of the device.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(exchange_table::capsule(py)?.unbind())
    }

    /// An object of another library over the same memory, made by the function table of its type: `kind` has
    /// `__dlpack_c_exchange_api__` (DLPack 1.3), as `torch.Tensor` has. It keeps the memory alive. The stream that this
    /// library works on now is made to wait for the elements.
    ///
    /// Raises TypeError for a type without such a table, and what the library raises. Then nothing was given.
    #[pyo3(signature = (kind, /))]
    fn to<'py>(&self, kind: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let Ok(kind) = kind.cast::<PyType>() else {
            return wrong_type!("kind is {kind:?}: a type is needed; to another device it goes by copy_to");
        };
        Maker::of(kind)?.make(kind.py(), self.get()?)
    }

    /// The CUDA Array Interface, version 3; there is none for host memory, and none once it is closed. It keeps nothing
    /// alive, this object does.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        match self.get() {
            Ok(tensor) => cuda_array::export(py, tensor),
            // Who looks whether there is one, at any object, is to see that there is none.
            Err(closed) => Err(Error::Python(PyAttributeError::new_err(PyErr::from(closed).value(py).to_string()))),
        }
    }

    /// The elements as an array of NumPy's (`numpy.asarray`), which asks for this where the buffer protocol does not do:
    /// for what it has no type or no memory for, this raises what `numpy.from_dlpack` says.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        numpy::array(py, New(self.get()?), dtype, copy)
    }

    /// Without this and the next one Python would take the bytes for the text of a number.
    fn __float__(&self) -> Result<f64> {
        no_number()
    }

    fn __int__(&self) -> Result<i64> {
        no_number()
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> Result<()> {
        // SAFETY: Python gives the address of a view, to be filled in.
        unsafe { buffer::lend(slf, view, flags) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: Python gives back a view that was filled in.
        unsafe { buffer::take_back(view) }
    }

    /// Gives up this object's part of the memory. Who it was handed to keeps theirs. Closing again does nothing.
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
    Ok(argument::number(given, "dimension", 0, i64::MAX)?)
}

/// Gives up a tensor's part of the memory after what is queued on a stream until now, in one step that cannot fail halfway, as
/// `used_on` and `close` can: for the allocators of this package.
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
