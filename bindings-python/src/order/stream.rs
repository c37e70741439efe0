//! Streams, as Python programs name them.

use devexchange_core::RawStream;
use pyo3::prelude::*;

use crate::order::device_stream::DeviceStream;
use crate::order::raw_stream;
use crate::python::error::Result;

/// Reads a stream: a [`DeviceStream`], which names the device of a default stream, or anything that [`raw_stream::number`]
/// reads.
pub(crate) fn number(stream: &Bound<'_, PyAny>) -> Result<RawStream> {
    match stream.cast::<DeviceStream>() {
        Ok(ours) => ours.get().number(),
        Err(_) => raw_stream::number(stream),
    }
}

/// Like [`number`], but `None` stands for no stream.
pub(crate) fn optional(stream: Option<&Bound<'_, PyAny>>) -> Result<Option<RawStream>> {
    stream.map(number).transpose()
}

/// Like [`optional`], but -1 stands for no stream, too.
pub(crate) fn wanted(stream: Option<&Bound<'_, PyAny>>) -> Result<Option<RawStream>> {
    Ok(optional(stream)?.filter(|&stream| stream != RawStream::NO_SYNC))
}
