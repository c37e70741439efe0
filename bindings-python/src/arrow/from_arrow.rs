//! `from_arrow`, the way in for all producers of Arrow.

use pyo3::intern;
use pyo3::prelude::*;

use crate::arrow::schema::{self, Schema};
use crate::arrow::{batch, batch_stream};
use crate::python::call::call_if_there;
use crate::python::error::{Result, wrong_type};
use crate::python::queue;

/// Takes what an object offers through the Arrow PyCapsule interface, as a `RecordBatch`, a `BatchStream` or a `Schema`.
///
/// If the object has several of its protocols, the first in this order is used: device array, array, device stream, stream,
/// schema.
///
/// Raises TypeError for objects without any of them, ValueError for invalid data, BufferError for devices that this library
/// has no runtime for. Then nothing was taken.
#[pyfunction]
#[pyo3(signature = (obj, /))]
pub(crate) fn from_arrow<'py>(obj: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    queue::drain();
    let py = obj.py();
    if let Some(batch) = batch::exported(obj)? {
        return Ok(Bound::new(py, batch)?.into_any());
    }
    for (method, on_device) in
        [(intern!(py, "__arrow_c_device_stream__"), true), (intern!(py, "__arrow_c_stream__"), false)]
    {
        if let Some(capsule) = call_if_there(obj, method)? {
            return Ok(Bound::new(py, batch_stream::import(&capsule, on_device)?)?.into_any());
        }
    }
    if let Some(schema) = schema::exported(obj)? {
        return Ok(Bound::new(py, Schema::new(schema))?.into_any());
    }
    wrong_type!("{} has no method of the Arrow PyCapsule interface", obj.get_type())
}
