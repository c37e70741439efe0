//! `devx_wake`: how a C program is told that there is something to poll for.

use std::sync::Arc;
use std::time::Duration;

use devexchange_core::abi::types::{DevxOwner, DevxWake};
use devexchange_core::arrow::asynchronous;
use devexchange_core::{Owner, Result};

use crate::ctypes::WakeRecord;

struct Wake {
    record: DevxWake,
    owner: Owner,
}

// SAFETY: by the contract of `devx_wake` its functions may be called on any thread, also at once.
unsafe impl Send for Wake {}
// SAFETY: as above.
unsafe impl Sync for Wake {}

impl Wake {
    fn wake(&self) {
        if let Some(wake) = self.record.wake {
            // SAFETY: the record is not released before its owner.
            unsafe { wake(self.record.context) }
        }
    }
}

/// Gives `make` what wakes the caller. If it fails, the record is the caller's as before.
///
/// # Safety
/// The functions of the record may be called, as `devx_wake` says.
pub(crate) unsafe fn with_wake<T>(
    record: Option<&WakeRecord>,
    make: impl FnOnce(Option<asynchronous::Wake>) -> Result<T>,
) -> Result<T> {
    let Some(&WakeRecord(record)) = record else { return make(None) };
    // SAFETY: the caller hands the record over.
    let owner = unsafe { Owner::from_raw(DevxOwner { context: record.context, release: record.release }) };
    let wake = Arc::new(Wake { record, owner });
    let given = Arc::clone(&wake);
    make(Some(Arc::new(move || given.wake()))).inspect_err(|_| {
        if let Some(wake) = Arc::into_inner(wake) {
            wake.owner.into_raw();
        }
    })
}

/// A time to wait; negative is for as long as it takes.
pub(crate) fn timeout(nanoseconds: i64) -> Option<Duration> {
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}
