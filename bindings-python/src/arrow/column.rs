//! Columns of a batch.

use devexchange_core::abi::types::{DEVX_OUT_OF_RANGE, DevxColumn};
use devexchange_core::{Batch, Column as CoreColumn, Error as CoreError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyTuple};

use crate::arrow::batch::RecordBatch;
use crate::arrow::field::Field;
use crate::arrow::{self, metadata, schema, value};
use crate::convert;
use crate::dlpack::export::{self, Asked};
use crate::python::argument;
use crate::python::error::{Result, wrong_type};
use crate::python::handle::Kept;
use crate::python::in_order::InOrder;
use crate::tensor::numpy;
use crate::tensor::type_object::New;

/// A view of one array of a batch, whose memory it keeps alive.
///
/// Its values can be read by row number, in order or reversed.
#[pyclass(frozen, sequence, module = "devexchange", weakref)]
pub(crate) struct Column {
    batch: Kept<Batch>,
    node: i64,
    offset: i64,
    length: i64,
}

impl Column {
    pub(crate) fn new(batch: Batch, raw: &DevxColumn) -> Self {
        Self { batch: Kept::new(batch), node: raw.node, offset: raw.offset, length: raw.length }
    }

    fn view(&self) -> Result<CoreColumn<'_>> {
        Ok(CoreColumn::at(&self.batch, self.node, self.offset, self.length)?)
    }

    /// Reads the number of a row; negative numbers count from the end.
    fn row(&self, given: &Bound<'_, PyAny>) -> Result<i64> {
        if !argument::is_index(given) {
            return wrong_type!("row is {given:?}: an int was expected");
        }
        let counted = argument::fitting::<i64>(given)?.map(|row| if row < 0 { row + self.length } else { row });
        match counted.filter(|counted| (0..self.length).contains(counted)) {
            Some(counted) => Ok(counted),
            None => {
                let refused = format_args!("row is {given}: the column has {}", self.length);
                Err(self.view()?.named(CoreError::new(DEVX_OUT_OF_RANGE, refused)).into())
            }
        }
    }

    fn part(&self, offset: i64, length: i64) -> Result<Self> {
        let part = self.view()?.slice(offset, length)?;
        Ok(Self { batch: Kept::new(Batch::clone(&self.batch)), node: self.node, offset: part.offset(), length })
    }
}

#[pymethods]
impl Column {
    /// The field, which says what the values are.
    #[getter]
    fn field(&self) -> Result<Field> {
        Ok(Field::of(self.batch.schema(), self.view()?.field()))
    }

    /// Name of the column; empty if there is none.
    #[getter]
    fn name(&self) -> Result<&str> {
        Ok(self.view()?.field().name())
    }

    /// Name of the type, for people; for a dictionary, the types of indices and values, as in "int32 -> utf8".
    #[getter]
    fn r#type(&self) -> Result<String> {
        Ok(self.view()?.field().type_name().to_string())
    }

    /// Format string (Arrow C data interface).
    #[getter]
    fn format(&self) -> Result<&str> {
        Ok(self.view()?.field().format())
    }

    /// Metadata of the field. Bytes that are not UTF-8 become surrogates, as in file names.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        metadata::of_pairs(py, self.view()?.field().metadata())
    }

    /// Number of nulls. If it is not known, the nulls are counted, which needs host memory.
    #[getter]
    fn null_count(&self) -> Result<i64> {
        Ok(self.view()?.null_count()?)
    }

    /// Whether a row is not null. Negative rows count from the end.
    ///
    /// For a dictionary this is about the index; for unions and run-end encoded arrays it is always True, because they have
    /// no nulls of their own. The value of such a row can still be None.
    ///
    /// Raises IndexError if there is no such row, BufferError for memory that the host cannot read.
    #[pyo3(signature = (row, /))]
    fn is_valid(&self, row: &Bound<'_, PyAny>) -> Result<bool> {
        Ok(self.view()?.is_valid(self.row(row)?)?)
    }

    /// The values that the rows of a dictionary column are indices into; None for other columns.
    #[getter]
    fn dictionary(&self) -> Result<Option<Self>> {
        let values = self.view()?.dictionary().map(CoreColumn::to_raw);
        Ok(values.map(|values| Self::new(Batch::clone(&self.batch), &values)))
    }

    /// Returns the index into the dictionary that a row holds; None for a null. Negative rows count from the end.
    ///
    /// Raises TypeError if the column has no dictionary, IndexError if there is no such row, or no such index in the
    /// dictionary, BufferError for memory that the host cannot read.
    #[pyo3(signature = (row, /))]
    fn dictionary_index(&self, row: &Bound<'_, PyAny>) -> Result<Option<i64>> {
        let (view, row) = (self.view()?, self.row(row)?);
        if view.dictionary().is_some() && !view.is_valid(row)? {
            return Ok(None);
        }
        Ok(Some(view.dictionary_index(row)?))
    }

    /// Returns the integer that a row is stored as; None for a null. Negative rows count from the end.
    ///
    /// This is for integers, and for dates, times, timestamps and durations, in the unit of the type: it also reads those
    /// that Python's types cannot express. Dictionaries, unions and runs are followed to the value.
    ///
    /// Raises TypeError for other types, IndexError if there is no such row, BufferError for memory that the host cannot read.
    #[pyo3(signature = (row, /))]
    fn stored<'py>(&self, py: Python<'py>, row: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>> {
        value::stored(py, self.view()?, self.row(row)?)
    }

    /// The child columns of a struct, a list, a union, ….
    #[getter]
    fn children(&self) -> Result<Vec<Self>> {
        let view = self.view()?;
        let child = |column: CoreColumn<'_>| Self::new(Batch::clone(&self.batch), &column.to_raw());
        Ok(view.children().map(child).collect())
    }

    /// Returns the values of all rows as Python objects; for host memory only.
    ///
    /// Nulls become None, lists become lists, maps lists of pairs and structs dicts. Other values are int, float, bool, str,
    /// bytes, Decimal, date, time, datetime, timedelta or `Interval`. `column[row]` is the value of one row.
    ///
    /// Python's times are whole microseconds, and its dates those of the years 1 to 9999. A value beyond that raises
    /// BufferError, and so does a time zone that Python does not know; `stored` reads the integer behind it, and
    /// `pyarrow.array(column).cast("int64")` all of them.
    pub(crate) fn to_pylist<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        value::list(py, self.view()?)
    }

    /// Returns how `to_tensor` would make a tensor: as a view, with a copy, or not at all, and why.
    fn plan_tensor<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        convert::plan_tensor(py, self.view()?)
    }

    /// Returns the column as a tensor, which is read-only unless it is a copy.
    ///
    /// `copy` is True to always copy, False to never copy, None to copy only if a view is not possible.
    #[pyo3(signature = (*, copy=None))]
    fn to_tensor(&self, py: Python<'_>, #[pyo3(from_py_with = argument::copy)] copy: Option<bool>) -> Result<New> {
        Ok(New(convert::tensor(py, self.view()?, copy)?))
    }

    /// Returns the device type and number (array API).
    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = self.batch.device();
        (device.kind.0, device.id)
    }

    /// Returns a capsule with the column as a tensor, for one consumer (array API). It is read-only unless it is a copy.
    ///
    /// The arguments are those of `Tensor.__dlpack__`, `copy` is as for `to_tensor`, and the errors are those of both.
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
        export::export(py, convert::tensor(py, self.view()?, copy.filter(|copy| !copy))?, &asked)
    }

    /// Returns the values as a NumPy array, which is read-only unless it is a copy (`numpy.asarray`, `numpy.array`).
    ///
    /// Raises BufferError for values that cannot be a tensor (texts, nulls), ValueError if a copy is needed and `copy` is
    /// False.
    #[pyo3(signature = (dtype=None, copy=None))]
    pub(crate) fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let tensor = self.to_tensor(py, copy.filter(|copy| !copy)).map_err(|error| error.for_numpy(py))?;
        numpy::array(py, tensor, dtype, copy)
    }

    /// Returns `length` rows from `offset` on, or all from there, as a column.
    ///
    /// `column[i:j]` works as with any sequence.
    ///
    /// Raises IndexError if there are too few rows.
    #[pyo3(signature = (offset=0, length=None))]
    fn slice(
        &self,
        #[pyo3(from_py_with = argument::offset)] offset: i64,
        length: Option<&Bound<'_, PyAny>>,
    ) -> Result<Self> {
        self.part(offset, argument::length(length, offset, self.length)?)
    }

    /// Returns the rows as a batch of their own, which shares the memory; a record batch if the column is a struct.
    pub(crate) fn share(&self) -> Result<RecordBatch> {
        Ok(RecordBatch::new(self.view()?.share()?))
    }

    /// Returns a capsule with the schema (Arrow PyCapsule interface).
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        arrow::export::schema(py, self.view()?.share()?.schema())
    }

    /// Returns capsules with schema and array, for one consumer, like those of a batch.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyTuple>> {
        arrow::export::array(py, self.view()?.share()?, requested_schema)
    }

    /// Like `__arrow_c_array__`, but with device and event.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyTuple>> {
        let batch = self.view()?.share()?;
        arrow::export::refuse_arguments(kwargs)?;
        arrow::export::device_array(py, batch, requested_schema)
    }

    fn __len__(&self) -> usize {
        self.length as usize
    }

    fn __getitem__<'py>(&self, py: Python<'py>, row: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        if let Ok(slice) = row.cast::<PySlice>() {
            let (offset, length) = argument::rows(slice, self.length, "column")?;
            return Ok(Bound::new(py, self.part(offset, length)?)?.into_any());
        }
        value::of(py, &self.view()?.rows(), self.row(row)?)
    }

    fn __iter__(slf: Bound<'_, Self>) -> InOrder {
        let length = slf.get().__len__();
        InOrder::new(slf.into_any(), length)
    }

    fn __reversed__(slf: Bound<'_, Self>) -> InOrder {
        let length = slf.get().__len__();
        InOrder::reversed(slf.into_any(), length)
    }

    /// Refuses, for `pickle` and `copy`: memory belongs to a process.
    fn __reduce__(&self) -> Result<()> {
        wrong_type!("a Column cannot be pickled: pyarrow.array(column) and to_pylist can be pickled")
    }

    fn __repr__(&self) -> Result<String> {
        let (name, kind) = (self.name()?, schema::plain(self.r#type()?));
        Ok(format!("<devexchange.Column {name:?}: {} rows of {kind}>", self.length))
    }
}
