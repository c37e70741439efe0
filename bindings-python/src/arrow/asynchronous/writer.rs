//! The producer of an asynchronous stream, without the waiting: the native half of `devexchange.AsyncWriter`.

use std::task::Poll;

use devexchange_core::DeviceType;
use devexchange_core::arrow::asynchronous::AsyncWriter as CoreWriter;
use devexchange_core::memory::Counted;
use pyo3::prelude::*;

use crate::arrow::asynchronous::bell::Bell;
use crate::arrow::{batch, metadata, schema};
use crate::device;
use crate::python::address::Address;
use crate::python::error::Result;
use crate::python::handle::Handle;
use crate::python::waiting::waiting;
use crate::python::{argument, aside, queue};

/// A writer. Calls that call the consumer are detached from the interpreter, because the consumer may wait for its own
/// threads, which may be in Python.
#[pyclass(frozen, module = "devexchange._native")]
pub(crate) struct AsyncWriter(Handle<Counted<CoreWriter>>);

impl Drop for AsyncWriter {
    fn drop(&mut self) {
        aside::quietly(|py| self.close(py));
    }
}

#[pymethods]
impl AsyncWriter {
    #[new]
    #[pyo3(signature = (bell, handler, device_type, metadata, /))]
    fn new(
        bell: &Bound<'_, Bell>,
        handler: Address,
        #[pyo3(from_py_with = device::kind)] device_type: i32,
        metadata: Option<&Bound<'_, PyAny>>,
    ) -> Result<Self> {
        queue::drain();
        let (block, wake, room) = (metadata::block(metadata)?, bell.get().wake()?, Counted::room()?);
        // SAFETY: the caller vouches for the address.
        let writer =
            unsafe { CoreWriter::new(handler.pointer(), DeviceType(device_type), block.as_deref(), Some(wake)) };
        Ok(Self(Handle::new("writer", room.fill(writer?))))
    }

    #[pyo3(signature = (schema, /))]
    fn start(&self, py: Python<'_>, schema: &Bound<'_, PyAny>) -> Result<()> {
        let (schema, writer) = (schema::wanted(schema)?, self.0.get()?);
        Ok(py.detach(move || writer.start(&schema))?)
    }

    #[getter]
    fn demand(&self) -> Result<i64> {
        Ok(self.0.get()?.demand())
    }

    #[getter]
    fn is_cancelled(&self) -> Result<bool> {
        Ok(self.0.get()?.is_cancelled())
    }

    fn try_ready(&self, py: Python<'_>) -> Result<bool> {
        let writer = self.0.get()?;
        match py.detach(move || writer.try_ready()) {
            Poll::Pending => Ok(false),
            Poll::Ready(ready) => Ok(ready.map(|()| true)?),
        }
    }

    #[pyo3(signature = (timeout, /))]
    fn ready(&self, py: Python<'_>, #[pyo3(from_py_with = argument::timeout)] timeout: Option<f64>) -> Result<()> {
        waiting(py, timeout, || self.0.get(), |writer, time| writer.wait_ready(Some(time)))
    }

    #[pyo3(signature = (batch, metadata, /))]
    fn send(&self, py: Python<'_>, batch: &Bound<'_, PyAny>, metadata: Option<&Bound<'_, PyAny>>) -> Result<()> {
        queue::drain();
        let given = batch::wanted(batch, "batch is of")?;
        let (block, writer) = (metadata::block(metadata)?, self.0.get()?);
        py.detach(move || writer.try_send(given, block.as_deref()).map_err(|refused| refused.error))?;
        Ok(())
    }

    fn finish(&self, py: Python<'_>) -> Result<()> {
        let writer = self.0.get()?;
        Ok(py.detach(move || writer.finish())?)
    }

    #[pyo3(signature = (code, message, metadata, /))]
    fn fail(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = code_of)] code: i32,
        message: &Bound<'_, PyAny>,
        metadata: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        let message = argument::text(message, "message is")?;
        let (block, writer) = (metadata::block(metadata)?, self.0.get()?);
        Ok(py.detach(move || writer.fail(code, message, block.as_deref()))?)
    }

    /// Gives up this object's reference. If a call is still running, the writer ends with that call.
    fn close(&self, py: Python<'_>) {
        self.0.close_apart(py);
    }
}

fn code_of(code: &Bound<'_, PyAny>) -> PyResult<i32> {
    Ok(argument::number(code, "code", i32::MIN, i32::MAX)?)
}
