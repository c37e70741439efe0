//! A list of things that threads have one each of, and leave to the threads that come after them.

use std::ops::Deref;
use std::ptr;

use crate::sync::atomic::{
    AtomicBool, AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// All of them, linked by `next`. It only ever grows, at the head, and nothing in it is freed: so it can be read at any
/// time.
pub(crate) struct List<T: 'static> {
    /// NULL at first.
    pub(crate) head: AtomicPtr<Place<T>>,
}

/// One of them. What is in it can be read by all; the thread that has taken it may do more.
pub(crate) struct Place<T: 'static> {
    pub(crate) value: T,
    taken: AtomicBool,
    next: *const Self,
}

impl<T> List<T> {
    /// One that nobody has, made if there is none: the caller's until [`Place::leave`].
    pub(crate) fn take(&self, make: impl FnOnce() -> T) -> &'static Place<T> {
        self.places().find(|place| !place.taken.swap(true, AcqRel)).unwrap_or_else(|| self.add(make()))
    }

    /// What every thread has or had.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static T> {
        self.places().map(|place| &place.value)
    }

    fn places(&self) -> impl Iterator<Item = &'static Place<T>> {
        // SAFETY: what is linked is never freed.
        let first = unsafe { self.head.load(Acquire).as_ref() };
        // SAFETY: as above.
        std::iter::successors(first, |place| unsafe { place.next.as_ref() })
    }

    fn add(&self, value: T) -> &'static Place<T> {
        let place = Box::leak(Box::new(Place { value, taken: AtomicBool::new(true), next: ptr::null() }));
        let mut head = self.head.load(Relaxed);
        loop {
            place.next = head;
            match self.head.compare_exchange_weak(head, place, Release, Relaxed) {
                Ok(_) => return place,
                Err(other) => head = other,
            }
        }
    }
}

impl<T> Deref for Place<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Place<T> {
    /// Whether a thread has it; it may leave at any time.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Relaxed)
    }

    /// Leaves it to another thread. The caller uses no more of it than everybody may.
    pub(crate) fn leave(&self) {
        self.taken.store(false, Release);
    }
}
