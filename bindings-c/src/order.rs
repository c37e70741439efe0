//! `devx_tensor_*`, `devx_batch_*`: when their data may be touched, and who still uses it.

use devexchange_core::RawStream;
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::batch::BatchHandle;
use crate::ctypes::{ErrorRecord, Status};
use crate::error::{guard, required};
use crate::tensor::TensorHandle;

/// Says that the data is there when what is queued on `stream` is done: for a producer that worked on another stream than
/// the legacy default one. To be called before the tensor is shared. Memory that is given back in the order of another
/// stream is so only after that work, too. The stream is not destroyed before the tensor, and what was exported of it, is
/// released; it may be closed (`devx_stream_close`). No other call uses the handle meanwhile.
#[ffi_export]
unsafe fn devx_tensor_produced_on(tensor: *mut TensorHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle that no other call uses, and no call lends anything of it longer.
        let mut tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller's stream is alive.
        let stream = tensor.stream(unsafe { RawStream::new(stream) })?;
        // SAFETY: that is what the caller says.
        unsafe { tensor.produced_on(stream) }
    })
}

/// Makes `stream` wait, on the device, until the data of the tensor may be touched. The host does not wait.
#[ffi_export]
unsafe fn devx_tensor_wait(tensor: *const TensorHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller's stream is alive.
        tensor.wait(tensor.stream(unsafe { RawStream::new(stream) })?)
    })
}

/// Says that work which is queued on `stream` uses the tensor: its memory is released only when that work is done, however
/// early the tensor is released. From any thread, for as many streams as there are. The stream is needed for this call only.
#[ffi_export]
unsafe fn devx_tensor_used_on(tensor: *const TensorHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller's stream is alive.
        tensor.used_on(tensor.stream(unsafe { RawStream::new(stream) })?)
    })
}

/// What `stream` stands for in work with a tensor: a default stream with its device, as `devx_stream_of_device` gives it.
/// For pinned and managed memory that is the device it was made for, which the driver is asked for.
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

/// As `devx_tensor_produced_on`.
#[ffi_export]
unsafe fn devx_batch_produced_on(batch: *mut BatchHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle that no other call uses, and no call lends anything of it longer.
        let mut batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller's stream is alive.
        let stream = batch.stream(unsafe { RawStream::new(stream) })?;
        // SAFETY: that is what the caller says.
        unsafe { batch.produced_on(stream) }
    })
}

/// As `devx_tensor_wait`.
#[ffi_export]
unsafe fn devx_batch_wait(batch: *const BatchHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller's stream is alive.
        batch.wait(batch.stream(unsafe { RawStream::new(stream) })?)
    })
}

/// As `devx_tensor_used_on`.
#[ffi_export]
unsafe fn devx_batch_used_on(batch: *const BatchHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller's stream is alive.
        batch.used_on(batch.stream(unsafe { RawStream::new(stream) })?)
    })
}
