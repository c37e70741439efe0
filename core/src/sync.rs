//! Atomics and locks for the parts whose schedules are tried: of std. `tests/schedules` builds the same files with
//! those of loom, which lets threads meet in every order that there is.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};

/// Looks at a pointer that no other thread can reach any more, as at one that is no atomic.
#[inline]
pub(crate) fn with_mut<T, R>(pointer: &mut atomic::AtomicPtr<T>, look: impl FnOnce(&mut *mut T) -> R) -> R {
    look(pointer.get_mut())
}
