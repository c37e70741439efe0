//! A value for one at a time, for which nobody waits.

use std::cell::UnsafeCell;

use crate::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

pub(crate) struct Alone<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: whoever has the value has it alone.
unsafe impl<T: Send> Sync for Alone<T> {}

impl<T> Alone<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Does something with the value; `None` while another call does, also one further up on this stack.
    #[inline]
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.taken.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            return None;
        }
        // Also if `act` panics.
        let _given_back = GiveBack(&self.taken);
        // SAFETY: nobody else has it until it is given back, which comes after what `act` does.
        Some(act(unsafe { &mut *self.value.get() }))
    }

    /// Whether a call has it at the moment.
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
