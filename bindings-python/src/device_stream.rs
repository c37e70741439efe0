//! Streams that are made here.

use devexchange_core::Device;
use devexchange_core::runtime::cuda::Stream;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::Result;
use crate::handle::Handle;
use crate::{device, queue};

/// A queue of work on a device: work on one stream is done in order, after what the stream was made to wait for, and the
/// host goes on meanwhile. It does not wait for the legacy default stream.
///
/// It is a `stream` for everything in this package and, by `__cuda_stream__`, for other libraries. Close it after what was
/// allocated, copied or imported in its order: memory of a pool is given back on the stream that it was allocated on.
/// Releases that still wait for work come first. A stream that is never closed is left to the driver.
#[pyclass(frozen, module = "devexchange", weakref)]
pub(crate) struct DeviceStream {
    device: Device,
    stream: Handle<Stream>,
}

#[pymethods]
impl DeviceStream {
    /// A new stream of a device, which is named as for `from_dlpack`.
    #[new]
    #[pyo3(signature = (device=None))]
    fn new(device: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        queue::drain();
        let device = match device {
            Some(device) => device::asked(device)?,
            None => Device::new(devexchange_core::DeviceType::CUDA, 0)?,
        };
        device.require_streams()?;
        Ok(Self { device, stream: Handle::new("stream", Stream::create(device.id)?) })
    }

    /// The device that the work runs on.
    #[getter]
    fn device<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        device::to_python(py, self.device)
    }

    /// The number of the stream, as the protocols write it (`CUstream`, `cudaStream_t`).
    #[getter]
    fn value(&self) -> Result<i64> {
        Ok(self.stream.get()?.value())
    }

    /// Version 0 of the protocol, and the handle (cuda.core, "CUDA stream protocol").
    fn __cuda_stream__(&self) -> Result<(i64, i64)> {
        Ok((0, self.value()?))
    }

    /// Blocks until all work that is queued on the stream is done. No exchange needs it.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let stream = self.stream.get()?;
        Ok(py.detach(|| stream.synchronize())?)
    }

    /// Destroys the stream, as soon as no release waits for work that waits now; what is queued on it is still done. Closing
    /// again does nothing.
    fn close(&self) -> Result<()> {
        queue::drain();
        match self.stream.take() {
            // SAFETY: Python gives it up; who still has the number was told to be done before.
            Some(stream) => Ok(unsafe { stream.close() }?),
            None => Ok(()),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) -> Result<()> {
        self.close()
    }

    fn __repr__(&self) -> String {
        match self.stream.get() {
            Ok(stream) => format!("<devexchange.DeviceStream {:#x} on {}>", stream.value(), self.device),
            Err(_) => "<devexchange.DeviceStream closed>".to_owned(),
        }
    }
}
