//! Copies of the elements of a tensor, wherever it is, into and out of buffers of Python objects.

use devexchange_core::{DType, Device, Flags, RawStream, Stream, Tensor as CoreTensor};
use pyo3::prelude::*;

use super::buffer;
use crate::copy;
use crate::order::raw_stream;
use crate::python::error::{Result, refuse};
use crate::python::queue;

/// Reads all elements into a buffer, and waits for them.
pub(super) fn read(tensor: &CoreTensor, into: &Bound<'_, PyAny>, stream: Option<RawStream>) -> Result<()> {
    with_buffer(tensor, into, "into", stream, |host, stream| {
        if host.flags().has(Flags::READ_ONLY) {
            return refuse!(DEVX_READ_ONLY, "into is read-only");
        }
        let bytes = host.as_bytes()?.len();
        if bytes == 0 {
            return Ok(tensor.read(&mut [], stream)?);
        }
        // SAFETY: the view has this many writable bytes, and the caller keeps others away from them.
        Ok(tensor.read(unsafe { std::slice::from_raw_parts_mut(host.data().cast(), bytes) }, stream)?)
    })
}

/// Writes all elements from a buffer, which may be used again at once.
pub(super) fn write(tensor: &CoreTensor, source: &Bound<'_, PyAny>, stream: Option<RawStream>) -> Result<()> {
    with_buffer(tensor, source, "source", stream, |host, stream| {
        // SAFETY: the caller keeps others away from the elements.
        Ok(unsafe { tensor.write(host.as_bytes()?, stream) }?)
    })
}

/// Calls `transfer`, detached from the interpreter, with a buffer of a tensor's elements or of bytes.
fn with_buffer(
    tensor: &CoreTensor,
    buffer: &Bound<'_, PyAny>,
    name: &str,
    stream: Option<RawStream>,
    transfer: impl Send + FnOnce(&CoreTensor, Option<Stream>) -> Result<()>,
) -> Result<()> {
    let value = raw_stream::of_copy(stream);
    let _hold = raw_stream::hold(value)?;
    let host = buffer::view_of(buffer)?;
    let done = if host.dtype() == tensor.dtype() || host.dtype() == DType::UINT8 {
        let queued = !copy::is_without_stream(tensor.device(), Device::CPU, stream);
        buffer.py().detach(|| {
            let stream = queued.then(|| tensor.stream_to(Device::CPU, value)).transpose()?;
            transfer(&host, stream)
        })
    } else {
        let (given, wanted) = (host.dtype(), tensor.dtype());
        refuse!(DEVX_MISMATCH, "{name} has elements of {given}, the tensor of {wanted}: they are not converted")
    };
    drop(host);
    // Drain the queue, so that the buffer is free again when this returns.
    queue::drain();
    done
}
