//! Copies on devices, queued on streams.

use devexchange_core::{Batch, Device, RawStream, Tensor};
use pyo3::prelude::*;

use crate::order::raw_stream;
use crate::python::error::Result;

/// A copy of a tensor, queued on a stream (the legacy default one if none is named), from which on it is ready. Between host
/// and host no stream is used.
pub(crate) fn tensor(py: Python<'_>, tensor: &Tensor, target: Device, stream: Option<RawStream>) -> Result<Tensor> {
    let value = raw_stream::of_copy(stream);
    let _hold = raw_stream::hold(value)?;
    let copy = py.detach(|| {
        if tensor.device() == Device::CPU && target == Device::CPU {
            return tensor.copy();
        }
        tensor.copy_to(target, tensor.stream_to(target, value)?)
    });
    Ok(copy?)
}

/// As [`tensor`], of a batch.
pub(crate) fn batch(py: Python<'_>, batch: &Batch, target: Device, stream: Option<RawStream>) -> Result<Batch> {
    let value = raw_stream::of_copy(stream);
    let _hold = raw_stream::hold(value)?;
    let copy = py.detach(|| {
        if batch.device() == Device::CPU && target == Device::CPU {
            return batch.copy();
        }
        batch.copy_to(target, batch.stream_to(target, value)?)
    });
    Ok(copy?)
}
