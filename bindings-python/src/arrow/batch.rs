//! Record batches and other arrays, in and out as Arrow.

use core::ffi::c_void;
use std::fmt::Display;

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::types::DevxColumn;
use devexchange_core::memory::push;
use devexchange_core::{Batch, BatchStream};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PySlice, PyString, PyTuple};

use crate::arrow::column::Column;
use crate::arrow::schema::{self, Schema};
use crate::arrow::{capsule, export};
use crate::order::{raw_stream, stream};
use crate::python::address::Address;
use crate::python::argument;
use crate::python::call::call_if_there;
use crate::python::error::{Result, refuse, wrong_type};
use crate::python::handle::Handle;
use crate::python::in_order::InOrder;
use crate::tensor::numpy;
use crate::tensor::type_object::New;
use crate::{convert, copy, device};

/// An Arrow array with its schema.
///
/// If its type is struct, it is a record batch, and its children are the columns. Any other array has no columns; `root` is
/// the whole array as one column.
///
/// It comes from `from_arrow`, a stream or a tensor, and goes to every consumer of the Arrow PyCapsule interface. The memory
/// is released when its last user is gone.
#[pyclass(frozen, module = "devexchange", weakref)]
pub(crate) struct RecordBatch(Handle<Batch>);

impl RecordBatch {
    pub(crate) fn new(batch: Batch) -> Self {
        Self(Handle::new("batch", batch))
    }

    fn as_stream(&self) -> Result<BatchStream> {
        let batch = self.get()?;
        Ok(BatchStream::of(&batch.schema().clone(), batch.device().kind, [Ok(batch)])?)
    }

    pub(crate) fn get(&self) -> Result<Batch> {
        self.0.get()
    }
}

#[pymethods]
impl RecordBatch {
    #[new]
    #[pyo3(signature = (*_arguments, **_options), text_signature = None)]
    fn refuse_new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Result<Self> {
        wrong_type!("RecordBatch has no constructor: from_arrow and RecordBatch.of make one")
    }

    /// Returns a record batch of columns, which it shares.
    ///
    /// `columns` is a mapping of names to `Column`s, `RecordBatch`es or other arrays with the methods of the Arrow PyCapsule
    /// interface, or, because names may repeat, an iterable of such pairs. All columns have the same length and are on the
    /// same device.
    ///
    /// `stream` is needed only if a column is not ready yet. It waits for all columns on the device, and the batch is in its
    /// order from then on. It must outlive the batch and everything handed on from it; a `DeviceStream` may be closed earlier.
    ///
    /// Raises ValueError if there is no column or if lengths differ, TypeError if devices differ, BufferError if a stream is
    /// needed and none is given.
    #[staticmethod]
    #[pyo3(signature = (columns, /, *, stream=None))]
    fn of(py: Python<'_>, columns: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        let pairs = match columns.cast::<PyMapping>() {
            Ok(mapping) => mapping.items()?.into_any(),
            Err(_) => columns.clone(),
        };
        let mut given = Vec::new();
        for pair in pairs.try_iter()? {
            push(&mut given, named(pair)?)?;
        }
        let columns: Vec<(&str, &Batch)> = given.iter().map(|(name, batch)| (name.as_str(), batch)).collect();
        let value = stream::wanted(stream)?;
        let _hold = value.map(raw_stream::hold).transpose()?;
        let batch = py.detach(|| {
            let stream = columns.first().zip(value).map(|((_, first), value)| first.stream(value)).transpose()?;
            Batch::of_columns(&columns, stream)
        });
        Ok(Self::new(batch?))
    }

    /// The schema of the arrays.
    #[getter]
    fn schema(&self) -> Result<Schema> {
        Ok(Schema::new(self.get()?.schema().clone()))
    }

    /// Where the memory is.
    #[getter]
    fn device<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        device::to_python(py, self.get()?.device())
    }

    /// Number of columns; 0 if this is not a record batch.
    #[getter]
    fn n_columns(&self) -> Result<usize> {
        Ok(self.get()?.n_columns())
    }

    /// Names of the columns.
    #[getter]
    fn names(&self) -> Result<Vec<String>> {
        let batch = self.get()?;
        Ok(batch.columns().map(|column| column.field().name().to_owned()).collect())
    }

    /// The whole array as one column.
    #[getter]
    fn root(&self) -> Result<Column> {
        let batch = self.get()?;
        let root = batch.root().to_raw();
        Ok(Column::new(batch, &root))
    }

    /// Returns `length` rows from `offset` on, or all from there, as a batch of their own.
    ///
    /// `batch[i:j]` works as with any sequence of rows.
    ///
    /// It shares the memory: nothing is copied. On a GPU it has the order of the whole batch, and work declared with `used_on`
    /// for it counts for the whole.
    ///
    /// Raises IndexError if there are too few rows.
    #[pyo3(signature = (offset=0, length=None))]
    fn slice(
        &self,
        #[pyo3(from_py_with = argument::offset)] offset: i64,
        length: Option<&Bound<'_, PyAny>>,
    ) -> Result<Self> {
        let batch = self.get()?;
        Ok(Self::new(batch.slice(offset, argument::length(length, offset, batch.length())?)?))
    }

    /// Returns the column with a number (negative numbers count from the end), or the first column with a name.
    fn column(&self, which: &Bound<'_, PyAny>) -> Result<Column> {
        let batch = self.get()?;
        let raw = find(&batch, which)?;
        Ok(Column::new(batch, &raw))
    }

    fn __getitem__<'py>(&self, which: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = which.py();
        if let Ok(slice) = which.cast::<PySlice>() {
            let batch = self.get()?;
            let (offset, length) = argument::rows(slice, batch.length(), "batch")?;
            return Ok(Bound::new(py, Self::new(batch.slice(offset, length)?))?.into_any());
        }
        Ok(Bound::new(py, self.column(which)?)?.into_any())
    }

    /// Whether there is a column with this name.
    fn __contains__(&self, name: &Bound<'_, PyAny>) -> Result<bool> {
        match name.extract::<&str>() {
            Ok(name) => Ok(self.get()?.column_named(name).is_some()),
            Err(_) => Ok(false),
        }
    }

    /// Number of rows.
    fn __len__(&self) -> Result<usize> {
        Ok(self.get()?.length() as usize)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Result<InOrder> {
        let n = slf.get().n_columns()?;
        Ok(InOrder::new(slf.into_any(), n))
    }

    /// Returns all rows as Python objects; rows of a record batch are dicts.
    fn to_pylist<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        self.root()?.to_pylist(py)
    }

    /// Declares that the data is ready when the work queued on `stream` so far is done.
    ///
    /// This is for work of your own that fills the memory on another stream than the one that the batch was made on, which is
    /// the legacy default stream if no other was named. Call it before the batch is handed on. Memory that is given back in the
    /// order of another stream goes back only after that work, too. The stream must outlive this batch and everything handed on
    /// from it; a `DeviceStream` may be closed earlier.
    ///
    /// Raises ValueError if the batch is shared already, BufferError for memory without streams.
    fn produced_on(&self, stream: &Bound<'_, PyAny>) -> Result<()> {
        let stream = self.get()?.stream(stream::number(stream)?)?;
        // SAFETY: the caller declares exactly this.
        Ok(self.0.change(|batch| unsafe { batch.produced_on(stream) })??)
    }

    /// Declares that the work queued on `stream` so far uses the memory, which is released only when that work is done.
    fn used_on(&self, stream: &Bound<'_, PyAny>) -> Result<()> {
        let batch = self.get()?;
        Ok(batch.used_on(batch.stream(stream::number(stream)?)?)?)
    }

    /// Makes `stream` wait, on the device, until the data may be touched.
    fn wait(&self, stream: &Bound<'_, PyAny>) -> Result<()> {
        let batch = self.get()?;
        Ok(batch.wait(batch.stream(stream::number(stream)?)?)?)
    }

    /// Asks the driver whether the buffers are where the batch says, with all bytes that lengths and offsets call for.
    ///
    /// No buffer is read. The bytes that offset and view buffers point into are therefore not checked: only those buffers
    /// tell how many there are. Memory of the CPU is not checked.
    ///
    /// Raises BufferError, naming the array and the buffer that is not there.
    fn check_pointers(&self) -> Result<()> {
        Ok(self.get()?.check_pointers()?)
    }

    /// Returns a copy on `device`, queued on `stream` (by default the legacy default stream).
    ///
    /// `device` is named as for `from_dlpack`. The copy is ready after that work; if it or this batch is in host memory that
    /// is not pinned, the call waits for it. It also waits for the sizes of texts and binary values in device memory. For a
    /// copy within host memory that is not pinned, no stream is used if none is named, and a default stream is that of device
    /// 0.
    ///
    /// Of a slice, a copy in host memory that is not pinned has the rows, with their texts and elements of lists, and no
    /// offsets, except in run-end encoded columns. Any other copy also has the texts and elements of lists in front of those
    /// of the slice (in device memory, all elements of the lists), and up to seven rows in front of a slice that has bits,
    /// with an offset. What views, list views, dense unions, run-end encoded columns and indices of dictionaries refer to is
    /// copied whole.
    #[pyo3(signature = (device, stream=None))]
    fn copy_to(&self, py: Python<'_>, device: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        let (batch, target) = (self.get()?, device::asked(device)?);
        Ok(Self::new(copy::batch(py, &batch, target, stream::optional(stream)?)?))
    }

    /// Returns how `to_matrix` would make a matrix: as a view, with a copy, or not at all, and why.
    fn plan_matrix<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        convert::plan_matrix(py, &self.get()?)
    }

    /// Returns a record batch of columns of one type as a column-major matrix with the same rows and columns.
    ///
    /// `copy` is as for `Column.to_tensor`; a copy of device memory is queued on `stream` (by default the legacy default
    /// stream; a batch on the CPU refuses any). A view is read-only; it needs columns that follow each other at equal
    /// distances, with nothing between them, or in one block, as in a batch that was copied or made of a matrix.
    #[pyo3(signature = (*, copy=None, stream=None))]
    fn to_matrix(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<New> {
        Ok(New(convert::matrix(py, &self.get()?, copy, stream::optional(stream)?)?))
    }

    /// Returns the matrix as a NumPy array, which is read-only unless it is a copy (`numpy.asarray`, `numpy.array`).
    ///
    /// An array that is no record batch becomes what its `root` becomes. Raises BufferError if the batch cannot be a matrix,
    /// ValueError if a copy is needed and `copy` is False.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        if self.get()?.schema().root().format() != "+s" {
            return self.root()?.__array__(py, dtype, copy);
        }
        let matrix = self.to_matrix(py, copy.filter(|copy| !copy), None).map_err(|error| error.for_numpy(py))?;
        numpy::array(py, matrix, dtype, copy)
    }

    /// Returns a capsule with the schema (Arrow PyCapsule interface).
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        export::schema(py, self.get()?.schema())
    }

    /// Returns capsules with schema and array, for one consumer.
    ///
    /// Nothing is converted: `requested_schema` must have as many fields as the data.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyTuple>> {
        export::array(py, self.get()?, requested_schema)
    }

    /// Like `__arrow_c_array__`, but with device and event.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyTuple>> {
        export::refuse_arguments(kwargs)?;
        export::device_array(py, self.get()?, requested_schema)
    }

    /// Returns a capsule with a stream of this batch alone, for a consumer that takes only streams.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        export::stream(py, self.as_stream()?, requested_schema)
    }

    /// Like `__arrow_c_stream__`, but with the device type.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        export::refuse_arguments(kwargs)?;
        export::device_stream(py, self.as_stream()?, requested_schema)
    }

    /// Takes an array and its schema, both or neither, from structs of the Arrow C data interface at two addresses.
    ///
    /// PyArrow's `_export_to_c`, for example, fills in such structs. They are marked as released. The addresses are not
    /// checked: there must be such structs, and nobody else may use them meanwhile.
    #[staticmethod]
    #[pyo3(signature = (array_address, schema_address, /))]
    fn import_arrow(array_address: Address, schema_address: Address) -> Result<Self> {
        // SAFETY: the caller vouches for the addresses.
        unsafe { import_at(array_address.pointer(), schema_address.pointer(), false) }
    }

    /// Like `import_arrow`, but from an `ArrowDeviceArray`.
    #[staticmethod]
    #[pyo3(signature = (array_address, schema_address, /))]
    fn import_arrow_device(array_address: Address, schema_address: Address) -> Result<Self> {
        // SAFETY: as above.
        unsafe { import_at(array_address.pointer(), schema_address.pointer(), true) }
    }

    /// Fills in the `ArrowArray` at an address (Arrow C data interface); its consumer calls its release.
    ///
    /// This object keeps its part; `schema.export_arrow` exports the schema. The address is not checked.
    ///
    /// Raises BufferError if the batch is not on the CPU; use `export_share_device` for it.
    #[pyo3(signature = (address, /))]
    fn export_share(&self, address: Address) -> Result<()> {
        // SAFETY: the caller vouches for the address.
        Ok(unsafe { self.get()?.export(address.pointer()) }?)
    }

    /// Like `export_share`, but fills in an `ArrowDeviceArray`.
    #[pyo3(signature = (address, /))]
    fn export_share_device(&self, address: Address) -> Result<()> {
        // SAFETY: as above.
        Ok(unsafe { self.get()?.export_device(address.pointer()) }?)
    }

    /// Refuses, for `pickle` and `copy`: memory belongs to a process.
    fn __reduce__(&self) -> Result<()> {
        wrong_type!(
            "a RecordBatch cannot be pickled: copy_to copies it, devexchange.ipc shares its memory with another process, \
             and pyarrow.record_batch(batch) can be pickled"
        )
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
        match self.get() {
            Err(_) => "<devexchange.RecordBatch closed>".to_owned(),
            Ok(batch) => {
                let (rows, fields) = (batch.length(), schema::fields(batch.schema()));
                format!("<devexchange.RecordBatch {rows} rows on {}: {fields}>", batch.device())
            }
        }
    }
}

fn find(batch: &Batch, which: &Bound<'_, PyAny>) -> Result<DevxColumn> {
    let n = batch.n_columns();
    if let Ok(name) = which.cast::<PyString>() {
        // A name with half a surrogate pair in it cannot be that of a column.
        let Ok(text) = name.to_str() else {
            return refuse!(DEVX_OUT_OF_RANGE, "there is no column {name:?}");
        };
        return match batch.column_named(text) {
            Some(column) => Ok(column.to_raw()),
            None => refuse!(DEVX_OUT_OF_RANGE, "there is no column {text:?}"),
        };
    }
    if !argument::is_index(which) {
        return wrong_type!(
            "column is {which:?}: an int or a str was expected; RecordBatch.of makes a batch of some of the columns"
        );
    }
    let index = argument::fitting::<i64>(which)?;
    let counted = index.map(|index| if index < 0 { index + n as i64 } else { index });
    match counted.and_then(|counted| batch.column(usize::try_from(counted).ok()?)) {
        Some(column) => Ok(column.to_raw()),
        None => refuse!(DEVX_OUT_OF_RANGE, "column is {which}: there are {n}"),
    }
}

/// The array that an object offers through the Arrow PyCapsule interface, if any.
pub(crate) fn exported(obj: &Bound<'_, PyAny>) -> Result<Option<RecordBatch>> {
    let py = obj.py();
    for (method, on_device) in
        [(intern!(py, "__arrow_c_device_array__"), true), (intern!(py, "__arrow_c_array__"), false)]
    {
        if let Some(pair) = call_if_there(obj, method)? {
            return import(&pair, on_device).map(Some);
        }
    }
    Ok(None)
}

/// The batch that an object is, or offers.
pub(crate) fn offered(obj: &Bound<'_, PyAny>) -> Result<Option<Batch>> {
    if let Ok(batch) = obj.cast::<RecordBatch>() {
        return batch.get().get().map(Some);
    }
    match obj.cast::<Column>() {
        Ok(column) => column.get().share()?.get().map(Some),
        Err(_) => exported(obj)?.map(|batch| batch.get()).transpose(),
    }
}

/// Whether an object offers a stream, as data frames do that offer no batch.
pub(crate) fn has_stream(obj: &Bound<'_, PyAny>) -> Result<bool> {
    Ok(obj.hasattr(intern!(obj.py(), "__arrow_c_stream__"))?)
}

/// Like [`offered`], but refuses an object that offers no batch. `given` introduces the object in the text of the error.
pub(crate) fn wanted(obj: &Bound<'_, PyAny>, given: impl Display) -> Result<Batch> {
    match offered(obj)? {
        Some(batch) => Ok(batch),
        None if has_stream(obj)? => wrong_type!(
            "{given} {}: it has only __arrow_c_stream__, of which from_arrow gives the batches one by one",
            obj.get_type()
        ),
        None if obj.hasattr(intern!(obj.py(), "__dlpack__"))? => wrong_type!(
            "{given} {}: a tensor is no array of Arrow; to_column of a Tensor makes one, and from_dlpack a Tensor",
            obj.get_type()
        ),
        None => wrong_type!(
            "{given} {}: neither a RecordBatch nor an object with __arrow_c_device_array__ or __arrow_c_array__",
            obj.get_type()
        ),
    }
}

/// Reads one item of an iterable of pairs: a name and a batch.
fn named(pair: PyResult<Bound<'_, PyAny>>) -> Result<(String, Batch)> {
    let pair = pair?;
    let Ok((name, column)) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        return wrong_type!("columns has {pair:?}: a pair of a name and a column was expected");
    };
    let name = argument::text(&name, "columns has")?;
    let batch = wanted(&column, format_args!("column {name:?} is of"))?;
    Ok((name.to_owned(), batch))
}

/// Takes an array and its schema out of their capsules, both or neither.
fn import(pair: &Bound<'_, PyAny>, on_device: bool) -> Result<RecordBatch> {
    let Ok((schema, array)) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        let method = if on_device { "__arrow_c_device_array__" } else { "__arrow_c_array__" };
        return wrong_type!(
            "{method} gave {pair:?}: a pair of capsules was expected, with the schema and with the array"
        );
    };
    if schema.is(&array) {
        return wrong_type!("{schema} is there twice: a capsule with the schema and one with the array were expected");
    }
    let schema = capsule::claim::<ArrowSchema>(&schema)?;
    if on_device {
        let array = capsule::claim::<ArrowDeviceArray>(&array)?;
        // SAFETY: capsules of these names hold valid structs, and this call has claimed them.
        return unsafe { import_at(array.pointer.cast(), schema.pointer, on_device) };
    }
    let array = capsule::claim::<ArrowArray>(&array)?;
    // SAFETY: as above.
    unsafe { import_at(array.pointer.cast(), schema.pointer, on_device) }
}

/// Takes an array and its schema from two addresses, both or neither.
///
/// # Safety
/// Each address is NULL or that of a valid struct that nobody else uses now. `array` points to an `ArrowDeviceArray` if
/// `on_device` is true, otherwise to an `ArrowArray`.
unsafe fn import_at(array: *mut c_void, schema: *mut ArrowSchema, on_device: bool) -> Result<RecordBatch> {
    let batch = if on_device {
        // SAFETY: the caller's contract.
        unsafe { Batch::import_pair_device(array.cast(), schema) }
    } else {
        // SAFETY: as above.
        unsafe { Batch::import_pair(array.cast(), schema) }
    };
    Ok(RecordBatch::new(batch?))
}
