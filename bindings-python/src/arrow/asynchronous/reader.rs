//! The consumer of an asynchronous stream, without the waiting: the native half of `devexchange.AsyncReader`.

use std::sync::OnceLock;
use std::task::Poll;

use devexchange_core::DeviceType;
use devexchange_core::arrow::asynchronous::{AsyncReader as CoreReader, MetadataBlock, ReaderOptions, Received};
use devexchange_core::memory::Counted;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::arrow::asynchronous::bell::Bell;
use crate::arrow::batch::RecordBatch;
use crate::arrow::metadata;
use crate::arrow::schema::Schema;
use crate::python::class::Class;
use crate::python::error::{Error, Result};
use crate::python::handle::Handle;
use crate::python::waiting::waiting;
use crate::python::{argument, aside, queue};

static RECEIVED: Class = Class::new("devexchange._types", "Received");
static PRODUCER_ERROR: Class = Class::new("devexchange._types", "ProducerError");

#[pyclass(frozen, module = "devexchange._native")]
pub(crate) struct AsyncReader {
    reader: Handle<Counted<CoreReader>>,
    /// The answers that are kept after the reader is closed.
    known: OnceLock<Known>,
}

struct Known {
    device_type: Option<DeviceType>,
    metadata: Option<MetadataBlock>,
    error: Option<(i32, Option<MetadataBlock>)>,
}

impl Known {
    fn of(reader: &CoreReader) -> Self {
        Self { device_type: reader.device_type(), metadata: reader.metadata(), error: reader.producer_error() }
    }
}

impl AsyncReader {
    fn ask<T>(&self, open: impl FnOnce(&CoreReader) -> T, closed: impl FnOnce(&Known) -> T) -> Result<T> {
        match (self.reader.get(), self.known.get()) {
            (Ok(reader), _) => Ok(open(&reader)),
            (Err(_), Some(known)) => Ok(closed(known)),
            (Err(error), None) => Err(error),
        }
    }
}

impl Drop for AsyncReader {
    /// Cancels the producer, which may wait for its own threads, which may be in Python. So other threads run Python
    /// meanwhile.
    fn drop(&mut self) {
        aside::quietly(|py| self.close(py));
    }
}

#[pymethods]
impl AsyncReader {
    #[new]
    #[pyo3(signature = (bell, limit, abi_h_metadata, /))]
    fn new(bell: &Bound<'_, Bell>, #[pyo3(from_py_with = limit_of)] limit: i64, abi_h_metadata: bool) -> Result<Self> {
        queue::drain();
        let reader = CoreReader::new(ReaderOptions { limit, abi_h_metadata }, Some(bell.get().wake()?))?;
        Ok(Self { reader: Handle::new("reader", Counted::room()?.fill(reader)), known: OnceLock::new() })
    }

    fn handler(&self) -> Result<usize> {
        Ok(self.reader.get()?.handler()?.expose_provenance())
    }

    #[pyo3(signature = (n, /))]
    fn request(&self, py: Python<'_>, #[pyo3(from_py_with = many)] n: i64) -> Result<()> {
        let reader = self.reader.get()?;
        Ok(py.detach(move || reader.request(n))?)
    }

    fn cancel(&self, py: Python<'_>) {
        if let Ok(reader) = self.reader.get() {
            py.detach(move || reader.cancel());
        }
    }

    #[getter]
    fn device_type(&self) -> Result<Option<i32>> {
        let kind = self.ask(CoreReader::device_type, |known| known.device_type)?;
        Ok(kind.map(|kind| kind.0))
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let block = self.ask(CoreReader::metadata, |known| known.metadata.clone())?;
        metadata::to_python(py, block.as_ref())
    }

    #[getter]
    fn producer_error<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        let error = self.ask(CoreReader::producer_error, |known| known.error.clone())?;
        let Some((code, block)) = error else { return Ok(None) };
        Ok(Some(PRODUCER_ERROR.make(py, (code, metadata::to_python(py, block.as_ref())?))?))
    }

    /// The schema; None if it has not come yet.
    fn try_schema(&self) -> Result<Option<Schema>> {
        match self.reader.get()?.try_schema() {
            Poll::Pending => Ok(None),
            Poll::Ready(schema) => Ok(Some(Schema::new(schema?))),
        }
    }

    /// The next batch; None if nothing has come yet, False at the end and when the reader is closed.
    fn try_next<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        let Ok(reader) = self.reader.get() else { return received(py, None).map(Some) };
        match py.detach(move || reader.try_batch()) {
            Poll::Pending => Ok(None),
            Poll::Ready(next) => received(py, next.transpose()?).map(Some),
        }
    }

    #[pyo3(signature = (timeout, /))]
    fn schema(&self, py: Python<'_>, #[pyo3(from_py_with = argument::timeout)] timeout: Option<f64>) -> Result<Schema> {
        let schema = waiting(py, timeout, || self.reader.get(), |reader, time| reader.wait_schema(Some(time)))?;
        Ok(Schema::new(schema))
    }

    /// Like `try_next`, but waits.
    #[pyo3(signature = (timeout, /))]
    fn next<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = argument::timeout)] timeout: Option<f64>,
    ) -> Result<Bound<'py, PyAny>> {
        queue::drain();
        let begin = || Ok::<_, Error>(self.reader.get().ok());
        let ask =
            |reader: Option<Counted<CoreReader>>, time| reader.map_or(Ok(None), |reader| reader.wait_batch(Some(time)));
        received(py, waiting(py, timeout, begin, ask)?)
    }

    fn close(&self, py: Python<'_>) {
        if let Ok(reader) = self.reader.get() {
            let _ = self.known.set(Known::of(&reader));
            let held = self.reader.take();
            // Waiting calls have a reference, too; cancelling ends their waits.
            py.detach(move || {
                reader.cancel();
                drop((held, reader));
            });
        }
        queue::drain();
    }
}

/// A batch and its metadata; False at the end.
fn received(py: Python<'_>, next: Option<Received>) -> Result<Bound<'_, PyAny>> {
    let Some((batch, block)) = next else { return Ok(PyBool::new(py, false).to_owned().into_any()) };
    let pairs = metadata::to_python(py, block.as_ref())?;
    Ok(RECEIVED.make(py, (RecordBatch::new(batch), pairs))?)
}

fn limit_of(limit: &Bound<'_, PyAny>) -> PyResult<i64> {
    Ok(argument::number(limit, "limit", i64::MIN, i64::MAX)?)
}

fn many(n: &Bound<'_, PyAny>) -> PyResult<i64> {
    Ok(argument::number(n, "n", i64::MIN, i64::MAX)?)
}
