//! `devx_tensor_*`, `devx_batch_*`: when the data may be touched, and which work still uses it.

use devexchange_core::RawStream;
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::batch::BatchHandle;
use crate::ctypes::{ErrorRecord, Status};
use crate::error::{guard, required};
use crate::tensor::TensorHandle;

/// Says that the data is ready when the work that is queued on `stream` is done.
///
/// For work that fills the memory on another stream than the one that the tensor was made on, which is the legacy default
/// stream if no other was named; and for work on any stream if this library has allocated pinned or managed memory, which
/// counts as ready at once. To be called before the tensor is shared (DEVX_INVALID_ARGUMENT afterwards), while no other
/// call uses the handle. DEVX_DEVICE if the tensor is on the CPU. Memory that is given back in the order of another stream is
/// given back only after this work, too; for such memory, DEVX_UNSUPPORTED if the stream is being captured. The stream must not
/// be destroyed before the tensor and everything that was exported from it is released; it may be closed (`devx_stream_close`).
#[ffi_export]
unsafe fn devx_tensor_produced_on(tensor: *mut TensorHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle that no other call uses, and nothing is borrowed from it beyond a call.
        let mut tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller's stream is alive.
        let stream = tensor.stream(unsafe { RawStream::new(stream) })?;
        // SAFETY: the caller says that the data is ready behind `stream`.
        unsafe { tensor.produced_on(stream) }
    })
}

/// Makes `stream` wait, on the device, until the data of the tensor is ready. The host does not wait.
///
/// DEVX_DEVICE if the tensor is on the CPU, DEVX_UNSUPPORTED if the stream is being captured and would have to wait for work
/// outside the capture.
#[ffi_export]
unsafe fn devx_tensor_wait(tensor: *const TensorHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller's stream is alive.
        tensor.wait(tensor.stream(unsafe { RawStream::new(stream) })?)
    })
}

/// Says that work that is queued on `stream` uses the tensor.
///
/// The memory is given back only when that work is done, however early the tensor is released. May be called from any thread
/// and for any number of streams. The stream is needed for this call only. DEVX_DEVICE if the tensor is on the CPU,
/// DEVX_UNSUPPORTED if the stream is being captured.
#[ffi_export]
unsafe fn devx_tensor_used_on(tensor: *const TensorHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller's stream is alive.
        tensor.used_on(tensor.stream(unsafe { RawStream::new(stream) })?)
    })
}

/// Tells which stream `stream` stands for in work with a tensor.
///
/// For a default stream, `out` gets the number that also names its device, as from `devx_stream_of_device`. For pinned and
/// managed memory, that is the device that the memory was made for; the driver is asked for it.
#[ffi_export]
unsafe fn devx_tensor_stream(
    tensor: *const TensorHandle,
    stream: i64,
    out: Option<Out<'_, i64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller's stream is alive.
        let stream = tensor.stream(unsafe { RawStream::new(stream) })?;
        out.write(RawStream::from(stream).to_raw());
        Ok(())
    })
}

/// Like `devx_tensor_produced_on`, for a batch.
#[ffi_export]
unsafe fn devx_batch_produced_on(batch: *mut BatchHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle that no other call uses, and nothing is borrowed from it beyond a call.
        let mut batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller's stream is alive.
        let stream = batch.stream(unsafe { RawStream::new(stream) })?;
        // SAFETY: the caller says that the data is ready behind `stream`.
        unsafe { batch.produced_on(stream) }
    })
}

/// Like `devx_tensor_wait`, for a batch.
#[ffi_export]
unsafe fn devx_batch_wait(batch: *const BatchHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller's stream is alive.
        batch.wait(batch.stream(unsafe { RawStream::new(stream) })?)
    })
}

/// Like `devx_tensor_used_on`, for a batch.
#[ffi_export]
unsafe fn devx_batch_used_on(batch: *const BatchHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller's stream is alive.
        batch.used_on(batch.stream(unsafe { RawStream::new(stream) })?)
    })
}
