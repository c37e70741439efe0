//! The request of a caller of `from_dlpack`, and the stream for which the data then has to be ready.

use devexchange_core::order::{self, NO_SYNC};
use devexchange_core::{Device, RawStream};

use crate::python::error::{Result, refuse};

/// The request of a caller of `from_dlpack`.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) device: Option<Device>,
    pub(crate) copy: Option<bool>,
    pub(crate) stream: Option<RawStream>,
    /// Whether the producer itself is asked for the copy.
    pub(crate) by_producer: bool,
}

impl Wanted {
    /// What the producer is told of `copy`. This library makes copies itself, whatever the producer can do, so the producer
    /// only has to know if it must not copy.
    pub(crate) fn told(&self) -> Option<bool> {
        if self.by_producer { Some(true) } else { self.copy.filter(|copy| !copy) }
    }

    /// Whether the elements are wanted in host memory and may be copied there.
    pub(crate) fn allows_host(&self) -> bool {
        self.device == Some(Device::CPU) && self.copy != Some(false)
    }

    /// The stream for which data on `source` has to be ready; always one if that device has streams. Refuses a request that
    /// is not possible with data on that device.
    pub(crate) fn stream_for(&self, source: Device) -> Result<Option<RawStream>> {
        let target = self.device.unwrap_or(source);
        if target != source && self.copy == Some(false) {
            return refuse!(DEVX_COPY_REQUIRED, "device is {target}: the data is on {source}, and copy is False");
        }
        if source.has_streams() {
            let value = self.stream.unwrap_or(RawStream::LEGACY);
            order::check_stream(source, value.value())?;
            return Ok(Some(value));
        }
        // The stream may still be for a copy to a device that has streams.
        order::check_stream(target, self.stream.map_or(NO_SYNC, RawStream::value))?;
        Ok(None)
    }
}
