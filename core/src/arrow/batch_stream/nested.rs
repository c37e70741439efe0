//! Streams that ask each other: a source may pull from another stream, and one that was exported and imported does. Each is
//! within the one that asks it, on one stack, which ends somewhere.

use crate::error::{Result, refuse};
use crate::local::{self, Local, Place};

/// So many are few enough for a small stack, with what foreign producers need of it, and more than anybody has.
const DEEPEST: usize = 64;

/// A pull that goes on until this is dropped; on a thread that is about to end, which has nothing to count it in, nothing.
pub(super) struct Pull(Option<&'static Place<Local>>);

impl Pull {
    /// # Errors
    /// `DEVX_TOO_DEEP`.
    #[inline]
    pub(super) fn begin() -> Result<Self> {
        let here = local::here();
        if let Some(here) = here {
            let depth = here.pulls.get();
            if depth >= DEEPEST {
                return refuse!(DEVX_TOO_DEEP, "{DEEPEST} streams each ask the next one: that is the most");
            }
            here.pulls.set(depth + 1);
        }
        Ok(Self(here))
    }
}

impl Drop for Pull {
    #[inline]
    fn drop(&mut self) {
        if let Some(here) = self.0 {
            here.pulls.set(here.pulls.get() - 1);
        }
    }
}
