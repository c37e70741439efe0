//! Releases within releases.
//!
//! Memory that goes out and comes back in again and again forms a chain: each import keeps an export, which keeps the import
//! before it. Releasing a long chain recursively would need more stack than there is. So only the first few releases are
//! nested. Those below wait until the outermost release is done, which then runs them. A release function that waits for a
//! release below it would therefore wait for ever, but it must not wait anyway (docs/design.md, rule 5). Another thread could
//! not do these releases instead: not every release has one, in a child of `fork` for example.

use core::ffi::c_void;

use crate::local::{self, Local, Nesting, Place};

/// Begins the release of a block, which lasts until the result is dropped. Returns `None` if it would be nested too deep;
/// then `release` will be called with the block later.
///
/// # Safety
/// `release` may be called with `block`, once, by this thread.
#[inline]
pub(super) unsafe fn begin(block: *mut c_void, release: unsafe fn(*mut c_void)) -> Option<Inside> {
    // A thread that only releases counts, too: it may have nothing of its own yet.
    let here = local::here();
    let nesting = nesting_of(here);
    // SAFETY: the caller's contract.
    if nesting.is_deepest() && unsafe { nesting.put_off(block, release) } {
        return None;
    }
    nesting.enter();
    Some(Inside(here))
}

#[inline]
fn nesting_of(here: Option<&'static Place<Local>>) -> &'static Nesting {
    match here {
        Some(here) => &here.nesting,
        None => local::last_releases(),
    }
}

/// A release in progress, with what the thread keeps for itself.
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
        nesting_of(self.0).leave();
    }
}
