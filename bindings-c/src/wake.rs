//! `devx_wake`: how a C program is told that there is something to poll for.

use std::time::Duration;

use devexchange_core::Result;
use devexchange_core::arrow::asynchronous::Wake;

use crate::ctypes::WakeRecord;

/// Calls `make` with a [`Wake`] of the record. If `make` fails, the record is still the caller's.
///
/// # Safety
/// The functions of the record may be called as `devx_wake` says.
pub(crate) unsafe fn with_wake<T>(
    record: Option<&WakeRecord>,
    make: impl FnOnce(Option<Wake>) -> Result<T>,
) -> Result<T> {
    let Some(&WakeRecord(record)) = record else { return make(None) };
    // SAFETY: the caller hands the record over.
    let wake = unsafe { Wake::from_raw(record) }?;
    let made = make(Some(wake.clone()));
    if made.is_err() {
        wake.give_back();
    }
    made
}

/// A time to wait; `None`, which is as long as it takes, if it is negative.
pub(crate) fn timeout(nanoseconds: i64) -> Option<Duration> {
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}
