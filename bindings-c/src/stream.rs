//! `devx_stream_*`. A stream is a number, as in the protocols: 1 is the legacy default stream, 2 the per-thread one, −1 none,
//! others are handles (`CUstream`, `cudaStream_t`). Or it is a number of this library, which also names the device of a default
//! stream.

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

/// Makes a stream on a device; it does not wait for the legacy default stream.
///
/// The caller gives the stream up with `devx_stream_close`, when it queues nothing on it any more. Or it destroys the stream
/// with `devx_stream_destroy`, after everything that was allocated, copied, imported, produced or made of columns on it, every
/// export of these, and every CUDA array that was exported for it, is released. A stream that was only passed to `_wait` or
/// `_used_on` is needed for that call only.
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

/// Gives a number for a default stream of this device, whatever device the data is on.
///
/// 1 and 2 by themselves are the default streams of the data's device. For a handle, and for the device of pinned or managed
/// memory, the result is `stream` itself. Every function and record of this library accepts the result as a stream; no other
/// library knows it.
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

/// Destroys a stream that nobody uses any more, not even a release (see `devx_stream_close`).
///
/// Work that is queued on the stream is still done.
#[ffi_export]
unsafe fn devx_stream_destroy(device: DlDevice, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller's stream is alive.
        let stream = unsafe { stream_of(Device::from_dlpack(device.0)?, stream) }?;
        stream.require_own_device()?;
        // SAFETY: the caller is done with the stream.
        unsafe { stream.destroy() }
    })
}

/// Gives up a stream on which nobody queues work any more: it is destroyed when nothing needs it.
///
/// Work that is queued on the stream is still done. It is destroyed when
///
/// - all tensors and batches that were allocated, copied, imported or produced on it are released,
/// - all batches of columns that it orders are released,
/// - all CUDA arrays that were exported for it are released,
/// - everything that was exported from these is released,
/// - all memory that a manager allocated for it is given back,
/// - all releases that wait for work at the time of this call are done,
/// - and nobody holds it (`devx_stream_hold`).
///
/// DEVX_INVALID_STREAM for a default stream, and for a stream that was closed before and still exists.
#[ffi_export]
unsafe fn devx_stream_close(device: DlDevice, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller's stream is alive.
        let stream = unsafe { stream_of(Device::from_dlpack(device.0)?, stream) }?;
        stream.require_own_device()?;
        // SAFETY: the caller is done with the stream.
        unsafe { stream.close() }
    })
}

/// Holds a stream of any device: closed meanwhile (`devx_stream_close`), it is destroyed only after `out` is released.
///
/// Any thread may release `out`. This is for managers that give memory back in the order of a stream some time after the
/// release of its owner, for example on their own thread: they hold the stream of the request, and release `out` when the
/// memory is given back. For a default stream and −1, there is nothing to hold, and nothing to release. 0 is refused, as
/// everywhere.
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
    // SAFETY: `hold` is the context of a hold, whose release is called once.
    guard_release(|| drop(unsafe { Hold::from_raw(hold.addr() as i64) }));
}

/// Blocks until all work that is queued on a stream is done. No exchange needs this.
#[ffi_export]
unsafe fn devx_stream_synchronize(device: DlDevice, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    // SAFETY: the caller's stream is alive.
    guard(error, || unsafe { stream_of(Device::from_dlpack(device.0)?, stream) }?.synchronize())
}

/// # Safety
/// Same as [`RawStream::new`].
unsafe fn stream_of(device: Device, value: i64) -> Result<Stream> {
    // SAFETY: the caller's contract.
    device.stream_with(device, unsafe { RawStream::new(value) })
}

/// A stream, or `None` for −1.
///
/// # Safety
/// Same as [`RawStream::new`].
pub(crate) unsafe fn stream_or_none(device: Device, value: i64) -> Result<Option<Stream>> {
    // SAFETY: the caller's contract.
    (value != NO_SYNC).then(|| unsafe { stream_of(device, value) }).transpose()
}

/// Like [`stream_or_none`], for work with a batch.
///
/// # Safety
/// Same as [`RawStream::new`].
pub(crate) unsafe fn stream_with_batch(batch: &Batch, value: i64) -> Result<Option<Stream>> {
    // SAFETY: the caller's contract.
    (value != NO_SYNC).then(|| batch.stream(unsafe { RawStream::new(value) })).transpose()
}
