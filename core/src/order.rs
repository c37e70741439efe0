//! When data may be touched, and when it may be released.
//!
//! The producer's queued work comes before the consumer's: the consumer's stream waits on the device, and the host never
//! waits. The consumer's queued work comes before the release: `Uses` keeps an event for each stream that was named, and
//! the release is called when all events are complete.

mod behind;
mod ready;
mod uses;

use core::ffi::c_void;

use crate::device::{Device, DeviceType};
use crate::error::{Result, refuse};
use crate::runtime::cuda::ForeignEvent;
pub use crate::stream::NO_SYNC;

pub(crate) use behind::{GiveUp, release_behind};
pub use ready::Ready;
pub(crate) use uses::Uses;

/// Checks the `stream` argument of a DLPack request against what the device allows
/// (array API, data interchange: semantics of `stream`).
///
/// # Errors
/// `DEVX_INVALID_STREAM` with the value and what the device allows.
#[inline]
pub fn check_stream(device: Device, stream: i64) -> Result<()> {
    if stream == NO_SYNC { Ok(()) } else { check_any_stream(device, stream) }
}

/// Like [`check_stream`], for any value but [`NO_SYNC`].
fn check_any_stream(device: Device, stream: i64) -> Result<()> {
    match (device.kind, stream) {
        (DeviceType::CPU, _) => {
            refuse!(DEVX_INVALID_STREAM, "stream is {stream}: the cpu takes -1 (no synchronisation) or none")
        }
        (DeviceType::CUDA | DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED, 0) => refuse!(
            DEVX_INVALID_STREAM,
            "stream is 0: ambiguous on cuda; 1 is the legacy default stream, 2 the per-thread one"
        ),
        (DeviceType::ROCM | DeviceType::ROCM_HOST, 1 | 2) => {
            refuse!(DEVX_INVALID_STREAM, "stream is {stream}: rocm has 0 for the default stream, or a handle")
        }
        (_, s) if s < 0 => refuse!(DEVX_INVALID_STREAM, "stream is {stream}: neither -1 nor a stream handle"),
        _ => Ok(()),
    }
}

/// When an array with this `sync_event` may be touched (C Device data interface, synchronization event types).
///
/// # Errors
/// `DEVX_DEVICE` for an event on a device that has no events.
///
/// # Safety
/// `sync_event` is NULL, or points to an event handle that lives as long as the result is used.
pub unsafe fn of_sync_event(device: Device, sync_event: *mut c_void) -> Result<Ready> {
    if sync_event.is_null() {
        return Ok(Ready::Now);
    }
    match device.kind {
        DeviceType::CPU => {
            refuse!(DEVX_DEVICE, "sync_event is {sync_event:p}: the cpu has no events, it must be NULL")
        }
        // SAFETY: the caller's contract.
        _ => Ok(Ready::Foreign(unsafe { ForeignEvent::new(sync_event) }?)),
    }
}
