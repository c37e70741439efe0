//! Releases within releases.
//!
//! Memory that goes out and comes back in again and again forms a chain: each import keeps an export, which keeps the import
//! before it. Releasing a long chain recursively would need more stack than there is. So only the first few releases are
//! nested. Those below wait until the outermost release is done, which then runs them. A release function that waits for a
//! release below it would therefore wait for ever, but it must not wait anyway (docs/design.md, rule 5). Another thread could
//! not do these releases instead: not every release has one, in a child of `fork` for example.

use core::ffi::c_void;

use crate::local::{self, Local, Place};

/// Begins the release of a block, which lasts until the result is dropped. Returns `None` if it would be nested too deep;
/// then `release` will be called with the block later.
///
/// # Safety
/// `release` may be called with `block`, once, by this thread.
#[inline]
pub(super) unsafe fn begin(block: *mut c_void, release: unsafe fn(*mut c_void)) -> Option<Inside> {
    let here = local::kept();
    if let Some(here) = here {
        // SAFETY: the caller's contract.
        if here.nesting.is_deepest() && unsafe { here.nesting.put_off(block, release) } {
            return None;
        }
        here.nesting.enter();
    }
    Some(Inside(here))
}

/// A release in progress. Empty on a thread that is about to end, which has nowhere to count it.
pub(super) struct Inside(Option<&'static Place<Local>>);

impl Inside {
    /// What the thread keeps for itself, so that it is looked up only once.
    #[inline]
    pub(super) fn here(&self) -> Option<&'static Place<Local>> {
        self.0
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        if let Some(here) = self.0 {
            here.nesting.leave();
        }
    }
}
