//! How often one holder of a manager has deferred cleanup, so that it cannot end the deferral of another.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::error::{Result, refuse};

/// Counts deferrals that have not ended.
#[derive(Debug, Default)]
pub(super) struct Depth(AtomicUsize);

impl Depth {
    pub(super) fn begin(&self) {
        // The manager below has a lock; this is only a number.
        self.0.fetch_add(1, Relaxed);
    }

    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` if there is nothing to end.
    pub(super) fn end(&self) -> Result<()> {
        match self.0.fetch_update(Relaxed, Relaxed, |depth| depth.checked_sub(1)) {
            Ok(_) => Ok(()),
            Err(_) => not_deferred(),
        }
    }

    /// The number of deferrals, for the drop of what counts them.
    pub(super) fn get_mut(&mut self) -> usize {
        *self.0.get_mut()
    }
}

/// Refuses to end what was not begun.
pub(super) fn not_deferred<T>() -> Result<T> {
    refuse!(DEVX_INVALID_ARGUMENT, "resume_cleanup without defer_cleanup: cleanup of this manager is not deferred")
}
