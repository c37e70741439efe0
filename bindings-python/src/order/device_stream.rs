//! Streams that are made here, and streams of somebody else's with their device.

use devexchange_core::{Device, RawStream, Stream};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::device;
use crate::order::raw_stream;
use crate::python::error::Result;
use crate::python::handle::Handle;
use crate::python::queue;

/// A queue of work on a device: work on one stream is done in order, after what the stream was made to wait for, and the
/// host goes on meanwhile. One that is made here does not wait for the legacy default stream; `of` is somebody else's.
///
/// It is a `stream` for everything in this package and, by `__cuda_stream__`, for other libraries. Close it when nobody queues
/// work on it any more; what was allocated, copied, imported or produced in its order may live on. A stream that is never
/// closed is left to the driver.
#[pyclass(frozen, module = "devexchange", weakref)]
pub(crate) struct DeviceStream {
    device: Device,
    stream: Handle<Held>,
}

#[derive(Clone, Copy)]
struct Held {
    value: RawStream,
    /// Whether it was made here, and not by somebody else.
    owned: bool,
}

impl DeviceStream {
    fn hold(device: Device, value: RawStream, owned: bool) -> Self {
        Self { device, stream: Handle::new("stream", Held { value, owned }) }
    }

    /// What the number means on this thread: 2 is the default stream of the one that asks.
    fn get(&self) -> Result<Stream> {
        Ok(self.device.stream_with(self.device, self.stream.get()?.value)?)
    }

    /// As a `stream` of this package: with the device of a default stream.
    pub(crate) fn number(&self) -> Result<RawStream> {
        Ok(self.device.own_stream(self.stream.get()?.value)?)
    }
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
        Ok(Self::hold(device, Stream::create(device.id)?.into(), true))
    }

    /// A stream of somebody else's, who also destroys it: a number as the protocols write it, or an object with
    /// `__cuda_stream__`. A default stream (1, 2) is one of its device, wherever the data is that it is used with; with the
    /// device of pinned or managed memory, which is none, it is one of the data's, of such memory the one that it was made
    /// for.
    #[staticmethod]
    #[pyo3(signature = (device, value, /))]
    fn of(device: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Result<Self> {
        let device = device::asked(device)?;
        device.require_streams()?;
        let value = raw_stream::number(value)?;
        device.stream_with(device, value)?;
        Ok(Self::hold(device, value, false))
    }

    /// The device that the work runs on.
    #[getter]
    fn device<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        device::to_python(py, self.device)
    }

    /// The number of the stream, as the protocols write it (`CUstream`, `cudaStream_t`). That of a default stream does not
    /// name its device.
    #[getter]
    fn value(&self) -> Result<i64> {
        Ok(self.stream.get()?.value.value())
    }

    /// Version 0 of the protocol, and the handle (cuda.core, "CUDA stream protocol").
    fn __cuda_stream__(&self) -> Result<(i64, i64)> {
        Ok((0, self.value()?))
    }

    /// Blocks until all work that is queued on the stream is done. No exchange needs it.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let stream = self.get()?;
        let _hold = raw_stream::hold(stream.into())?;
        Ok(py.detach(|| stream.synchronize())?)
    }

    /// Ends its use. A stream that was made here is destroyed as soon as all is released that was allocated, copied, imported or
    /// produced in its order, and what was handed on of that, and no release waits for work that waits now; what is queued on
    /// it is still done. Closing again does nothing.
    fn close(&self) -> Result<()> {
        queue::drain();
        match self.stream.take() {
            Some(Held { value, owned: true }) => {
                let stream = self.device.stream_with(self.device, value)?;
                // SAFETY: Python gives it up; who still has the number was told to be done before.
                Ok(unsafe { stream.close() }?)
            }
            _ => Ok(()),
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
        match self.value() {
            Ok(value) => format!("<devexchange.DeviceStream {value:#x} on {}>", self.device),
            Err(_) => "<devexchange.DeviceStream closed>".to_owned(),
        }
    }
}
