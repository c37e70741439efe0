//! Streams of batches, in and out as Arrow.

use devexchange_core::abi::arrow_device_stream::ArrowDeviceArrayStream;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::{BatchStream as CoreStream, DeviceType};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrow::batch::RecordBatch;
use crate::arrow::batch_source::Source;
use crate::arrow::schema::{self, Schema};
use crate::arrow::{capsule, export};
use crate::device;
use crate::python::address::Address;
use crate::python::error::Result;
use crate::python::handle::Handle;
use crate::python::{aside, queue, raised, waiting};

/// Batches of one schema on one kind of device, pulled one after the other: an iterator. Who it is handed to as an
/// Arrow stream pulls from the same source.
///
/// It takes one call at a time: who asks while another thread is being given a batch gets `Failed` ("in use by another
/// call"). Threads that share a stream need a lock around `next`.
#[pyclass(frozen, module = "devexchange", weakref)]
pub(crate) struct BatchStream(Handle<CoreStream>);

impl BatchStream {
    fn new(stream: CoreStream) -> Self {
        Self(Handle::new("stream", stream))
    }

    fn get(&self) -> Result<CoreStream> {
        self.0.get()
    }
}

impl Drop for BatchStream {
    /// A producer may wait for threads of its own, which may be in Python: when it is asked for the schema or a batch,
    /// and when it is released.
    fn drop(&mut self) {
        aside::quietly(|py| self.close(py));
    }
}

#[pymethods]
impl BatchStream {
    /// A stream of what an iterable gives: `RecordBatch`es, or other arrays with the methods of the Arrow PyCapsule
    /// interface, of `schema` and on devices of `device_type` (1 the host, 2 CUDA, …). An iterator, for example a
    /// generator, is asked for a batch when the consumer asks, on the consumer's thread, and is given up at its end, at
    /// its first error, or when the stream is released.
    ///
    /// An exception ends the stream; whoever pulls gets its text, and in Python the exception as the cause of the error. A
    /// `KeyboardInterrupt` is never lost: Python raises it where the batch was asked for, or else soon after in its main
    /// thread. When the interpreter ends, so do its streams, with an error; handlers of `atexit` may still pull from them. An
    /// iterator that keeps the stream is a cycle which Python's collector cannot see: close the stream.
    #[staticmethod]
    #[pyo3(signature = (schema, batches, /, *, device_type=1))]
    fn of(
        schema: &Bound<'_, PyAny>,
        batches: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = device::kind)] device_type: i32,
    ) -> Result<Self> {
        let schema = schema::wanted(schema)?;
        let batches = batches.try_iter()?;
        let stream = CoreStream::with(&schema, DeviceType(device_type), || {
            let mut source = Source::new(batches);
            move || source.next()
        })?;
        Ok(Self::new(stream))
    }

    /// What all batches are.
    #[getter]
    fn schema(&self) -> Result<Schema> {
        Ok(Schema::new(self.get()?.schema().clone()))
    }

    /// The kind of device that all batches lie on (1 the host, 2 CUDA, …).
    #[getter]
    fn device_type(&self) -> Result<i32> {
        Ok(self.get()?.device_type().0)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> Result<Option<RecordBatch>> {
        queue::drain();
        let stream = self.get()?;
        Ok(raised::calling(py, move || stream.next())?.map(RecordBatch::new))
    }

    /// A capsule with the schema (Arrow PyCapsule interface).
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        export::schema(py, self.get()?.schema())
    }

    /// A capsule with the stream, for one consumer. Nothing is converted: `requested_schema` must have as many fields.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        export::stream(py, self.get()?, requested_schema)
    }

    /// As `__arrow_c_stream__`, with the device type.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        export::refuse_arguments(kwargs)?;
        export::device_stream(py, self.get()?, requested_schema)
    }

    /// Takes a stream from the `ArrowArrayStream` at this address, which is marked as released. The address is believed:
    /// there has to be such a struct, and nobody else may use it meanwhile.
    #[staticmethod]
    #[pyo3(signature = (address, /))]
    fn import_arrow(py: Python<'_>, address: Address) -> Result<Self> {
        // SAFETY: the caller vouches for the address.
        unsafe { take(py, address.pointer()) }
    }

    /// As `import_arrow`, from an `ArrowDeviceArrayStream`.
    #[staticmethod]
    #[pyo3(signature = (address, /))]
    fn import_arrow_device(py: Python<'_>, address: Address) -> Result<Self> {
        // SAFETY: as above.
        unsafe { take_device(py, address.pointer()) }
    }

    /// Fills in the `ArrowArrayStream` at this address, whose release is its consumer's to call. The address is believed.
    #[pyo3(signature = (address, /))]
    fn export_arrow(&self, address: Address) -> Result<()> {
        // SAFETY: as above.
        Ok(unsafe { self.get()?.export(address.pointer()) }?)
    }

    /// As `export_arrow`, into an `ArrowDeviceArrayStream`.
    #[pyo3(signature = (address, /))]
    fn export_arrow_device(&self, address: Address) -> Result<()> {
        // SAFETY: as above.
        Ok(unsafe { self.get()?.export_device(address.pointer()) }?)
    }

    /// Gives up this object's part of the stream. Closing again does nothing.
    fn close(&self, py: Python<'_>) {
        self.0.close_apart(py);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        match self.get() {
            Err(_) => "<devexchange.BatchStream closed>".to_owned(),
            Ok(stream) => {
                format!("<devexchange.BatchStream on {}: {}>", stream.device_type(), schema::fields(stream.schema()))
            }
        }
    }
}

/// Takes the stream out of a capsule.
pub(crate) fn import(capsule: &Bound<'_, PyAny>, on_device: bool) -> Result<BatchStream> {
    if on_device {
        let stream = capsule::claim::<ArrowDeviceArrayStream>(capsule)?;
        // SAFETY: what a capsule of this name holds is valid, and claimed by this call.
        return unsafe { take_device(capsule.py(), stream.pointer) };
    }
    let stream = capsule::claim::<ArrowArrayStream>(capsule)?;
    // SAFETY: as above.
    unsafe { take(capsule.py(), stream.pointer) }
}

/// # Safety
/// As [`CoreStream::import`].
unsafe fn take(py: Python<'_>, stream: *mut ArrowArrayStream) -> Result<BatchStream> {
    // SAFETY: the caller's contract.
    let taken = waiting::detached(py, stream, |stream| unsafe { CoreStream::import(stream) });
    Ok(BatchStream::new(taken?))
}

/// # Safety
/// As [`CoreStream::import_device`].
unsafe fn take_device(py: Python<'_>, stream: *mut ArrowDeviceArrayStream) -> Result<BatchStream> {
    // SAFETY: the caller's contract.
    let taken = waiting::detached(py, stream, |stream| unsafe { CoreStream::import_device(stream) });
    Ok(BatchStream::new(taken?))
}
