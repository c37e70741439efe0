//! What a caller of `from_dlpack` asks for, and for which stream the data has to be ready then.

use devexchange_core::order::{self, NO_SYNC};
use devexchange_core::{Device, RawStream};

use crate::python::error::{Result, refuse};

/// What a caller of `from_dlpack` asks for.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) device: Option<Device>,
    pub(crate) copy: Option<bool>,
    pub(crate) stream: Option<RawStream>,
}

impl Wanted {
    /// The stream that data on `source` is to be ready for: always one where there are streams. Refuses what is not
    /// possible with data that is there.
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
        // A stream may still be for a copy to where there are some.
        order::check_stream(target, self.stream.map_or(NO_SYNC, RawStream::value))?;
        Ok(None)
    }
}
