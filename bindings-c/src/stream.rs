//! `devx_stream_*`. A stream is a number, as in the protocols: 1 is the legacy default stream, 2 the per-thread one, others
//! are handles (`CUstream`, `cudaStream_t`), −1 is none. Or it is one of this library's own, which names the device of a
//! default stream.

use core::ffi::c_void;

use devexchange_core::abi::types::DevxOwner;
use devexchange_core::device::Device;
use devexchange_core::order::NO_SYNC;
use devexchange_core::runtime::cuda::Hold;
use devexchange_core::{Batch, RawStream, Result, Stream};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{DlDevice, ErrorRecord, OwnerRecord, Status};
use crate::error::{guard, guard_release, required};

/// Makes a stream on a device that does not wait for the legacy default stream. It is given up with devx_stream_close, when
/// nothing is queued on it any more, or destroyed (devx_stream_destroy) after all that was allocated, copied, imported or
/// produced on it is released, and what was exported of that. A stream that was only waited on, or named as one that uses
/// something, is needed for that call only.
#[ffi_export]
fn devx_stream_create(device: DlDevice, out: Option<Out<'_, i64>>, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        let device = Device::from_dlpack(device.0)?;
        device.require_streams()?;
        out.write(Stream::create(device.id)?.value());
        Ok(())
    })
}

/// A number for a stream of a device, wherever the data is that it is used with: 1 and 2 by themselves are default streams
/// of the data's device. With the device of pinned or managed memory, and of handles, it is `stream` itself. Every function
/// and record of this library takes it where they take a stream; no other library knows it.
#[ffi_export]
unsafe fn devx_stream_of_device(
    device: DlDevice,
    stream: i64,
    out: Option<Out<'_, i64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller's stream is alive.
        let stream = unsafe { RawStream::new(stream) };
        out.write(Device::from_dlpack(device.0)?.own_stream(stream)?.to_raw());
        Ok(())
    })
}

/// Destroys a stream that nobody uses any more, no release either (see `devx_stream_close`); what is queued on it is still
/// done.
#[ffi_export]
unsafe fn devx_stream_destroy(device: DlDevice, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller's stream is alive.
        let stream = unsafe { stream_of(Device::from_dlpack(device.0)?, stream) }?;
        stream.require_own_device()?;
        // SAFETY: and the caller is done with it.
        unsafe { stream.destroy() }
    })
}

/// Gives up a stream that nobody queues work on any more: it is destroyed when all tensors and batches are released that
/// were allocated, copied, imported or produced on it, and what was handed on of these; when all memory is given back that a
/// manager gave for it; when the releases are done that wait for work now; and when nobody holds it (`devx_stream_hold`).
/// What is queued on it is still done.
#[ffi_export]
unsafe fn devx_stream_close(device: DlDevice, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller's stream is alive.
        let stream = unsafe { stream_of(Device::from_dlpack(device.0)?, stream) }?;
        stream.require_own_device()?;
        // SAFETY: and the caller is done with it.
        unsafe { stream.close() }
    })
}

/// Holds a stream of any device: if it is closed meanwhile (`devx_stream_close`), it is destroyed only after `out` was
/// released, by any thread. For managers that give memory back in the order of a stream some time after the release of its
/// owner, on a thread of their own for example: they hold the stream of the request, and release `out` when that is done. For
/// a default stream and -1 there is nothing to hold, and nothing to release; 0 is refused, as everywhere.
#[ffi_export]
fn devx_stream_hold(stream: i64, out: Option<Out<'_, OwnerRecord>>, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        let raw = Hold::new(stream)?.into_raw();
        let release = (raw != 0).then_some(let_go as _);
        out.write(OwnerRecord(DevxOwner { context: std::ptr::without_provenance_mut(raw as usize), release }));
        Ok(())
    })
}

unsafe extern "C" fn let_go(hold: *mut c_void) {
    // SAFETY: the context of a hold, whose release is called once.
    guard_release(|| drop(unsafe { Hold::from_raw(hold.addr() as i64) }));
}

/// Blocks until all work that is queued on a stream is done. No exchange needs it.
#[ffi_export]
unsafe fn devx_stream_synchronize(device: DlDevice, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    // SAFETY: the caller's stream is alive.
    guard(error, || unsafe { stream_of(Device::from_dlpack(device.0)?, stream) }?.synchronize())
}

/// # Safety
/// As [`RawStream::new`].
unsafe fn stream_of(device: Device, value: i64) -> Result<Stream> {
    // SAFETY: the caller's contract.
    device.stream_with(device, unsafe { RawStream::new(value) })
}

/// A stream that may be missing: −1.
///
/// # Safety
/// As [`RawStream::new`].
pub(crate) unsafe fn stream_or_none(device: Device, value: i64) -> Result<Option<Stream>> {
    // SAFETY: the caller's contract.
    (value != NO_SYNC).then(|| unsafe { stream_of(device, value) }).transpose()
}

/// As [`stream_or_none`], for work with a batch.
///
/// # Safety
/// As [`RawStream::new`].
pub(crate) unsafe fn stream_with_batch(batch: &Batch, value: i64) -> Result<Option<Stream>> {
    // SAFETY: the caller's contract.
    (value != NO_SYNC).then(|| batch.stream(unsafe { RawStream::new(value) })).transpose()
}
