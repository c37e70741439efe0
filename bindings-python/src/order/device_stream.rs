//! Streams that are made here, and other streams together with their device.

use devexchange_core::{Device, RawStream, Stream};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::device;
use crate::order::raw_stream;
use crate::python::error::Result;
use crate::python::handle::Handle;
use crate::python::queue;

/// A queue of work on a device.
///
/// The work on a stream is done in order, after what the stream was made to wait for, while the host goes on. A stream made
/// here does not wait for the legacy default stream; `of` names a stream that somebody else made.
///
/// It can be passed as `stream` everywhere in this package and, through `__cuda_stream__`, to other libraries. Close it when
/// nobody queues work on it any more; what was allocated, copied, imported, produced or made of columns in its order may live
/// on. A stream that is never closed is left to the driver.
#[pyclass(frozen, module = "devexchange", weakref)]
pub(crate) struct DeviceStream {
    device: Device,
    stream: Handle<Held>,
}

#[derive(Clone, Copy)]
struct Held {
    value: RawStream,
    /// Whether the stream was made here, not by somebody else.
    owned: bool,
}

impl DeviceStream {
    fn hold(device: Device, value: RawStream, owned: bool) -> Self {
        Self { device, stream: Handle::new("stream", Held { value, owned }) }
    }

    /// The stream that the number means on this thread: 2 is the default stream of the calling thread.
    fn get(&self) -> Result<Stream> {
        Ok(self.device.stream_with(self.device, self.stream.get()?.value)?)
    }

    /// The number for a `stream` argument of this package: a default stream includes its device.
    pub(crate) fn number(&self) -> Result<RawStream> {
        Ok(self.device.own_stream(self.stream.get()?.value)?)
    }
}

#[pymethods]
impl DeviceStream {
    /// A new stream of a device, by default the first CUDA device. The device is named as for `from_dlpack`.
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

    /// Names a stream of a device that somebody else made and also destroys.
    ///
    /// `value` is a number as the protocols write it, or an object with `__cuda_stream__`. A default stream (1, 2) is that of
    /// `device`, wherever the data is that it is used with. If `device` is that of pinned or managed memory, which names no
    /// GPU, a default stream is that of the data's device or, for data in such memory, of the device that the memory was made
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

    /// The number of the stream, as the protocols write it (`CUstream`, `cudaStream_t`).
    ///
    /// The number of a default stream does not name its device.
    #[getter]
    fn value(&self) -> Result<i64> {
        Ok(self.stream.get()?.value.value())
    }

    /// Returns version 0 of the protocol, and the handle (cuda.core, "CUDA stream protocol").
    fn __cuda_stream__(&self) -> Result<(i64, i64)> {
        Ok((0, self.value()?))
    }

    /// Blocks until all work queued on the stream is done; no exchange needs this.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let stream = self.get()?;
        let _hold = raw_stream::hold(stream.into())?;
        Ok(py.detach(|| stream.synchronize())?)
    }

    /// Ends the use of the stream.
    ///
    /// A stream that was made here is destroyed once everything that was allocated, copied, imported, produced or made of
    /// columns in its order, and everything handed on from that, is released, and once the releases that wait for work now no
    /// longer wait. Work queued on it is still done. Closing again does nothing.
    fn close(&self) -> Result<()> {
        queue::drain();
        match self.stream.take() {
            Some(Held { value, owned: true }) => {
                let stream = self.device.stream_with(self.device, value)?;
                // SAFETY: Python gives the stream up; the documentation tells other users of the number to be done before.
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
