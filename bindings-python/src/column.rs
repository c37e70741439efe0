//! Columns of a batch.

use devexchange_core::abi::types::DevxColumn;
use devexchange_core::{Batch, Column as CoreColumn};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::error::{Result, refuse};
use crate::handle::Kept;
use crate::in_order::InOrder;
use crate::tensor_type::New;
use crate::{convert, python, schema, value};

/// A view of one array of a batch, whose memory it keeps: values by the number of their row, in order or reversed.
#[pyclass(frozen, sequence, module = "devexchange")]
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
}

#[pymethods]
impl Column {
    /// Name; empty if there is none.
    #[getter]
    fn name(&self) -> Result<&str> {
        Ok(self.view()?.field().name())
    }

    /// Name of the type, for people; of a dictionary those of the indices and of the values, as "int32 -> utf8".
    #[getter]
    fn r#type(&self) -> Result<String> {
        Ok(schema::type_of(self.view()?.field()))
    }

    /// Format string (Arrow C data interface).
    #[getter]
    fn format(&self) -> Result<&str> {
        Ok(self.view()?.field().format())
    }

    /// Number of nulls; counted, in host memory, if it is not known.
    #[getter]
    fn null_count(&self) -> Result<i64> {
        Ok(self.view()?.null_count()?)
    }

    /// The columns below: of a struct, a list, a union, ….
    #[getter]
    fn children(&self) -> Result<Vec<Self>> {
        let view = self.view()?;
        let child = |column: CoreColumn<'_>| Self::new(Batch::clone(&self.batch), &column.to_raw());
        Ok((0..view.field().n_children()).filter_map(|index| view.child(index)).map(child).collect())
    }

    /// The values of all rows as Python objects: None for nulls, int, float, bool, str, bytes, Decimal, date, time,
    /// datetime, timedelta, lists, lists of pairs for maps, dicts for structs. For host memory.
    pub(crate) fn to_pylist<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        value::list(py, self.view()?)
    }

    /// How `to_tensor` would make a tensor of it: as a view, with a copy, or not at all, and why.
    fn plan_tensor<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        convert::plan_tensor(py, self.view()?)
    }

    /// The column as a read-only tensor. `copy` is True for a copy in any case, False for none in any case, None for
    /// one where a view is not possible.
    #[pyo3(signature = (*, copy=None))]
    fn to_tensor(&self, copy: Option<bool>) -> Result<New> {
        convert::tensor(self.view()?, copy)
    }

    /// The values as an array of NumPy's, which is read-only unless it is a copy (`numpy.asarray`, `numpy.array`).
    ///
    /// Raises BufferError for what cannot be a tensor: texts, nulls.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        convert::to_numpy(py, self.to_tensor(copy.filter(|copy| !copy))?, dtype, copy)
    }

    fn __len__(&self) -> usize {
        self.length as usize
    }

    fn __getitem__<'py>(&self, py: Python<'py>, row: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let counted = python::index(row)?.map(|row| if row < 0 { row + self.length } else { row });
        match counted.filter(|counted| (0..self.length).contains(counted)) {
            Some(counted) => value::of(py, self.view()?, counted),
            None => refuse!(DEVX_OUT_OF_RANGE, "row is {row}: the column has {}", self.length),
        }
    }

    fn __iter__(slf: Bound<'_, Self>) -> InOrder {
        let length = slf.get().__len__();
        InOrder::new(slf.into_any(), length)
    }

    fn __repr__(&self) -> Result<String> {
        Ok(format!("<devexchange.Column {:?}: {} rows of {}>", self.name()?, self.length, self.r#type()?))
    }
}
