//! When data may be touched: which stream values a consumer may name, and which events may be attached.
//! On the CPU everything is ready at once, so there is nothing to wait for.

use core::ffi::c_void;

use crate::device::{Device, DeviceType};
use crate::error::{Result, refuse};

/// "Do not synchronise" as a stream value (array API, `__dlpack__`).
pub const NO_SYNC: i64 = -1;

/// Checks the `stream` argument of a DLPack request against the device's table
/// (array API, data interchange: semantics of `stream`).
///
/// # Errors
/// `DEVX_INVALID_STREAM` with the value and what the device takes.
pub fn check_stream(device: Device, stream: i64) -> Result<()> {
    match (device.kind, stream) {
        (DeviceType::CPU, NO_SYNC) => Ok(()),
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
        (_, NO_SYNC) => Ok(()),
        (_, s) if s < NO_SYNC => refuse!(DEVX_INVALID_STREAM, "stream is {stream}: neither -1 nor a stream handle"),
        _ => Ok(()),
    }
}

/// Checks `sync_event` of an Arrow device array (C Device data interface, synchronization event types).
///
/// # Errors
/// `DEVX_DEVICE` for an event on a device that has none.
pub fn check_event(device: Device, sync_event: *mut c_void) -> Result<()> {
    if device.kind == DeviceType::CPU && !sync_event.is_null() {
        return refuse!(DEVX_DEVICE, "sync_event is {sync_event:p}: the cpu has no events, it must be NULL");
    }
    Ok(())
}
