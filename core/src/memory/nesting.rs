//! Releases within releases. Memory that goes out and comes back in, again and again, is a chain: each import keeps an
//! export, which keeps the import before. Released one within the other, a long one would need more stack than there is.
//! So only the first few are; what comes below them waits until the outermost of these is done, and is released by it. Who
//! waits in a release for what is below waits for ever then. It is not handed to another thread instead: a release function
//! does not wait (docs/design.md, rule 5), and a thread is nothing that every release can have, in a fork for example.

use core::ffi::c_void;

use crate::local::{self, Local, Place};

/// Begins the release of a block, which goes on until the result is dropped. `None` if it would be too deep: then `release`
/// is going to be called with the block.
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

/// A release that is going on; on a thread that is about to end, which has nothing to count it in, nothing.
pub(super) struct Inside(Option<&'static Place<Local>>);

impl Inside {
    /// What the thread has, which is asked for once.
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
