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
use crate::python::error::{Result, wrong_type};
use crate::python::handle::Handle;
use crate::python::{aside, queue, raised, waiting};

/// An iterator over batches of one schema on one kind of device, pulled one after the other.
///
/// A consumer that it is handed to as an Arrow stream pulls from the same source.
///
/// A stream takes one call at a time: a call while another thread is getting a batch raises `Failed` ("in use by another
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
    /// A producer may wait for its own threads, which may be in Python, when it is asked for the schema or a batch and when
    /// it is released. So other threads run Python meanwhile.
    fn drop(&mut self) {
        aside::quietly(|py| self.close(py));
    }
}

#[pymethods]
impl BatchStream {
    #[new]
    #[pyo3(signature = (*_arguments, **_options), text_signature = None)]
    fn refuse_new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Result<Self> {
        wrong_type!("BatchStream has no constructor: from_arrow and BatchStream.of make one")
    }

    /// Returns a stream of the batches of an iterable.
    ///
    /// The iterable yields `RecordBatch`es, or other arrays with the methods of the Arrow PyCapsule interface, of `schema`
    /// and on devices of `device_type` (1 the host, 2 CUDA, …). Its iterator, for example a generator, is asked for a batch
    /// when the consumer asks, on the consumer's thread. It is given up at its end, at its first error, or when the stream is
    /// released.
    ///
    /// An exception ends the stream. The consumer gets its text, and in Python the exception as the cause of the error. A
    /// `KeyboardInterrupt` is never lost: Python raises it where the batch was asked for, or else soon after in its main
    /// thread. When the interpreter ends, its streams end with an error; `atexit` handlers can still pull from them. If the
    /// iterator refers to the stream, close the stream: Python's collector cannot see such a cycle. A generator refers to the
    /// globals of its module: unless a stream among them is closed or has ended, nothing in the module ends with the program,
    /// and files that are still open there are not flushed.
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

    /// The schema of all batches.
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

    /// Returns a capsule with the schema (Arrow PyCapsule interface).
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        export::schema(py, self.get()?.schema())
    }

    /// Returns a capsule with the stream, for one consumer.
    ///
    /// Nothing is converted: `requested_schema` must have as many fields as the data.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        export::stream(py, self.get()?, requested_schema)
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
        export::device_stream(py, self.get()?, requested_schema)
    }

    /// Takes a stream from the `ArrowArrayStream` at an address, and marks the struct as released.
    ///
    /// The address is not checked: there must be such a struct, and nobody else may use it meanwhile.
    #[staticmethod]
    #[pyo3(signature = (address, /))]
    fn import_arrow(py: Python<'_>, address: Address) -> Result<Self> {
        // SAFETY: the caller vouches for the address.
        unsafe { take(py, address.pointer()) }
    }

    /// Like `import_arrow`, but from an `ArrowDeviceArrayStream`.
    #[staticmethod]
    #[pyo3(signature = (address, /))]
    fn import_arrow_device(py: Python<'_>, address: Address) -> Result<Self> {
        // SAFETY: as above.
        unsafe { take_device(py, address.pointer()) }
    }

    /// Fills in the `ArrowArrayStream` at an address; its consumer calls its release.
    ///
    /// The address is not checked.
    ///
    /// Raises BufferError if the batches are not on the CPU; use `export_arrow_device` for them.
    #[pyo3(signature = (address, /))]
    fn export_arrow(&self, address: Address) -> Result<()> {
        // SAFETY: as above.
        Ok(unsafe { self.get()?.export(address.pointer()) }?)
    }

    /// Like `export_arrow`, but fills in an `ArrowDeviceArrayStream`.
    #[pyo3(signature = (address, /))]
    fn export_arrow_device(&self, address: Address) -> Result<()> {
        // SAFETY: as above.
        Ok(unsafe { self.get()?.export_device(address.pointer()) }?)
    }

    /// Gives up this object's part of the stream; whoever it was handed to keeps theirs.
    ///
    /// Closing again does nothing.
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
        // SAFETY: a capsule of this name holds a valid struct, and this call has claimed it.
        return unsafe { take_device(capsule.py(), stream.pointer) };
    }
    let stream = capsule::claim::<ArrowArrayStream>(capsule)?;
    // SAFETY: as above.
    unsafe { take(capsule.py(), stream.pointer) }
}

/// # Safety
/// As for [`CoreStream::import`].
unsafe fn take(py: Python<'_>, stream: *mut ArrowArrayStream) -> Result<BatchStream> {
    // SAFETY: the caller's contract.
    let taken = waiting::detached(py, stream, |stream| unsafe { CoreStream::import(stream) });
    Ok(BatchStream::new(taken?))
}

/// # Safety
/// As for [`CoreStream::import_device`].
unsafe fn take_device(py: Python<'_>, stream: *mut ArrowDeviceArrayStream) -> Result<BatchStream> {
    // SAFETY: the caller's contract.
    let taken = waiting::detached(py, stream, |stream| unsafe { CoreStream::import_device(stream) });
    Ok(BatchStream::new(taken?))
}
