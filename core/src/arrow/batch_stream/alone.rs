//! A value for one user at a time, on which nobody waits.

use std::cell::UnsafeCell;

use crate::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

pub(crate) struct Alone<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only one call at a time has access to the value.
unsafe impl<T: Send> Sync for Alone<T> {}

impl<T> Alone<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `act` on the value. Returns `None` while another call does so, even one further up on this stack.
    #[inline]
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.taken.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            return None;
        }
        // Given back even if `act` panics.
        let _given_back = GiveBack(&self.taken);
        // SAFETY: nobody else has the value until it is given back, which happens after `act`.
        Some(act(unsafe { &mut *self.value.get() }))
    }

    /// Whether a call has the value at the moment.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Relaxed)
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

struct GiveBack<'a>(&'a AtomicBool);

impl Drop for GiveBack<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}
