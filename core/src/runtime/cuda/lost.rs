//! Counts what is never given up, because work that cannot be waited for may still use it, or because the driver did not
//! take it back.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use super::driver::Code;
use crate::abi::arrow_data::ArrowArray;
use crate::error::Error;
use crate::memory::{Foreign, Owner};
use crate::stream::Stream;
use crate::trace;

/// What a release gives up in the end. It is held by value, because a box would need memory.
pub(crate) enum Held {
    Owner(Owner),
    Array(Foreign<ArrowArray>),
}

impl Held {
    pub(super) const NOTHING: Self = Self::Owner(Owner::none());

    /// The stream that the return of the memory is queued on, if it is.
    pub(crate) fn stream(&self) -> Option<Stream> {
        match self {
            Self::Owner(owner) => owner.stream(),
            Self::Array(_) => None,
        }
    }

    /// Leaks what is held.
    pub(super) fn forget(self) {
        match self {
            Self::Owner(owner) => {
                owner.into_raw();
            }
            Self::Array(array) => std::mem::forget(array),
        }
    }
}

impl From<Owner> for Held {
    fn from(owner: Owner) -> Self {
        Self::Owner(owner)
    }
}

static LOST: AtomicI64 = AtomicI64::new(0);

/// The number of releases that were never called, because the driver could not say whether the work is done, and of
/// memory, events and streams that the driver did not take back. Freeing memory under running work would be worse.
#[inline]
pub fn releases_lost() -> i64 {
    LOST.load(Relaxed)
}

/// Leaks `held`, which work that cannot be waited for may still use, and counts it.
pub(crate) fn abandon(held: impl Into<Held>) {
    held.into().forget();
    LOST.fetch_add(1, Relaxed);
}

/// Whether an error says that the context or the driver is gone, and the work with it.
pub(crate) fn is_over(error: &Error) -> bool {
    [Code::DEINITIALIZED, Code::CONTEXT_IS_DESTROYED].map(|code| code.0 as i32).contains(&error.driver_code())
}

/// Counts something that the driver did not take back, unless it went with its context or with the driver.
pub(crate) fn check_returned(what: impl std::fmt::Display, code: Code) {
    if ![Code::SUCCESS, Code::DEINITIALIZED, Code::CONTEXT_IS_DESTROYED].contains(&code) {
        trace::say(format_args!("{what} could not be given back: driver code {}", code.0));
        abandon(Owner::none());
    }
}
