//! Capsules for consumers (Arrow PyCapsule interface), and the checks of consumers' requests.

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::arrow_device_stream::ArrowDeviceArrayStream;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::{Batch, BatchStream, Schema};
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrow::capsule;
use crate::python::error::{Error, Result, built_in, refuse};

/// A capsule with a schema.
pub(super) fn schema<'py>(py: Python<'py>, schema: &Schema) -> Result<Bound<'py, PyAny>> {
    // SAFETY: the capsule has room for the struct.
    capsule::filled::<ArrowSchema>(py, |out| Ok(unsafe { schema.export(out) }?))
}

/// Capsules with schema and array, for one consumer.
pub(super) fn array<'py>(
    py: Python<'py>,
    batch: Batch,
    requested_schema: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyTuple>> {
    check_request(batch.schema(), requested_schema)?;
    let schema = schema(py, batch.schema())?;
    // SAFETY: the capsule has room for the struct.
    let array = capsule::filled::<ArrowArray>(py, |out| Ok(unsafe { batch.export(out) }?))?;
    Ok(PyTuple::new(py, [schema, array])?)
}

/// Like [`array()`], but with device and event.
pub(super) fn device_array<'py>(
    py: Python<'py>,
    batch: Batch,
    requested_schema: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyTuple>> {
    check_request(batch.schema(), requested_schema)?;
    let schema = schema(py, batch.schema())?;
    // SAFETY: the capsule has room for the struct.
    let array = capsule::filled::<ArrowDeviceArray>(py, |out| Ok(unsafe { batch.export_device(out) }?))?;
    Ok(PyTuple::new(py, [schema, array])?)
}

/// A capsule with a stream, for one consumer.
pub(super) fn stream<'py>(
    py: Python<'py>,
    stream: BatchStream,
    requested_schema: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    check_request(stream.schema(), requested_schema)?;
    // SAFETY: the capsule has room for the struct.
    capsule::filled::<ArrowArrayStream>(py, |out| Ok(unsafe { stream.export(out) }?))
}

/// Like [`stream`], but with the device type.
pub(super) fn device_stream<'py>(
    py: Python<'py>,
    stream: BatchStream,
    requested_schema: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    check_request(stream.schema(), requested_schema)?;
    // SAFETY: the capsule has room for the struct.
    capsule::filled::<ArrowDeviceArrayStream>(py, |out| Ok(unsafe { stream.export_device(out) }?))
}

/// Refuses keyword arguments that are not None: this library knows none (Arrow PyCapsule interface).
pub(super) fn refuse_arguments(arguments: Option<&Bound<'_, PyDict>>) -> Result<()> {
    for (name, value) in arguments.into_iter().flatten() {
        if !value.is_none() {
            let text = format!("{name} is {value}: not supported");
            return Err(Error::Python(built_in::<PyNotImplementedError>(text)));
        }
    }
    Ok(())
}

/// Checks the schema that a consumer requests. Nothing is converted, and the consumer has to expect that; but if the number
/// of fields differs from the request, the export is refused (Arrow PyCapsule interface, "Schema requests").
fn check_request(schema: &Schema, requested: Option<&Bound<'_, PyAny>>) -> Result<()> {
    let Some(requested) = requested else { return Ok(()) };
    let claim = capsule::claim::<ArrowSchema>(requested)?;
    // The schema stays the consumer's, whatever the result: nothing is moved out of it.
    // SAFETY: a capsule of this name holds a valid struct, and this call has claimed it.
    let requested = unsafe { &*claim.pointer };
    if requested.release.is_none() {
        return refuse!(DEVX_RELEASED, "requested_schema.release is NULL: the schema was released or moved from");
    }
    let (wanted, there) = (requested.n_children, schema.root().n_children());
    if usize::try_from(wanted) != Ok(there) {
        return refuse!(DEVX_INVALID_CHILDREN, "requested_schema has {wanted} fields: the data has {there}");
    }
    Ok(())
}
