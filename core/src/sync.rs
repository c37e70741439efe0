//! Atomics and locks of std, for the parts whose thread schedules are tested. `tests/schedules` builds the same files
//! with those of loom, which runs threads in every possible order.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};

/// Accesses a pointer that no other thread can reach any more, without atomic operations.
#[inline]
pub(crate) fn with_mut<T, R>(pointer: &mut atomic::AtomicPtr<T>, look: impl FnOnce(&mut *mut T) -> R) -> R {
    look(pointer.get_mut())
}
