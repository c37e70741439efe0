//! Users of our reader and writer that are woken, and that may do something within that callback.

use std::cell::Cell;

use devexchange_core::arrow::asynchronous::Wake;

use crate::Rng;

/// The maximum depth of wakes on one stack in which a user acts.
const DEEPEST: u32 = 4;

/// How often a user acts within a wake.
pub(crate) struct InWake {
    /// Once in this many wakes; 0 means never.
    once_in: usize,
    depth: Cell<u32>,
}

impl InWake {
    /// Once in this many wakes; 0 means never.
    pub(crate) fn new(once_in: usize) -> Self {
        Self { once_in, depth: Cell::default() }
    }

    /// Whether the user's actions never overlap.
    pub(crate) fn is_never(&self) -> bool {
        self.once_in == 0
    }
}

/// A user that is woken.
pub(crate) trait Woken: 'static {
    /// The sequence that decides what comes next.
    fn rng(&self) -> &Rng;
    /// How often the user acts within a wake.
    fn in_wake(&self) -> &InWake;
    /// Does any one thing.
    fn act(&self);
}

struct Place<U>(*const U);
// SAFETY: the schedules run on one thread.
unsafe impl<U> Send for Place<U> {}
// SAFETY: as above.
unsafe impl<U> Sync for Place<U> {}

impl<U: Woken> Place<U> {
    fn wake(&self) {
        // SAFETY: the contract of `wake_of`.
        let user = unsafe { &*self.0 };
        let InWake { once_in, depth } = user.in_wake();
        if *once_in > 0 && depth.get() < DEEPEST && user.rng().one_in(*once_in) {
            depth.set(depth.get() + 1);
            user.act();
            depth.set(depth.get() - 1);
        }
    }
}

/// The callback that wakes a user.
///
/// # Safety
///
/// The user outlives the reader or writer that gets it.
pub(crate) unsafe fn wake_of<U: Woken>(user: *const U) -> Wake {
    let place = Place(user);
    Wake::new(move || place.wake()).unwrap()
}
