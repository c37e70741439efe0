//! Copies on devices, queued on streams.

use devexchange_core::{Batch, Device, RawStream, Tensor};
use pyo3::prelude::*;

use crate::order::raw_stream;
use crate::python::error::Result;

/// Copies a tensor on a stream (the legacy default stream if none is named), after which the copy is ready. A copy within
/// host memory uses no stream if none is named.
pub(crate) fn tensor(py: Python<'_>, tensor: &Tensor, target: Device, stream: Option<RawStream>) -> Result<Tensor> {
    let value = raw_stream::of_copy(stream);
    let _hold = raw_stream::hold(value)?;
    let copy = py.detach(|| match is_without_stream(tensor.device(), target, stream) {
        true => tensor.copy(),
        false => tensor.copy_to(target, tensor.stream_to(target, value)?),
    });
    Ok(copy?)
}

/// Like [`tensor`], but for a batch.
pub(crate) fn batch(py: Python<'_>, batch: &Batch, target: Device, stream: Option<RawStream>) -> Result<Batch> {
    let value = raw_stream::of_copy(stream);
    let _hold = raw_stream::hold(value)?;
    let copy = py.detach(|| match is_without_stream(batch.device(), target, stream) {
        true => batch.copy(),
        false => batch.copy_to(target, batch.stream_to(target, value)?),
    });
    Ok(copy?)
}

/// Whether the host copies within its own memory, so that no driver is needed.
pub(crate) fn is_without_stream(from: Device, to: Device, stream: Option<RawStream>) -> bool {
    from == Device::CPU && to == Device::CPU && stream.is_none_or(|value| value == RawStream::NO_SYNC)
}
