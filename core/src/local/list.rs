//! A list of places. Each thread has one, and leaves it to a later thread when it ends.

use std::ops::Deref;
use std::ptr;

use crate::sync::atomic::{
    AtomicBool, AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// All places, linked by `next`. The list only ever grows, at the head, and nothing in it is freed, so it can be read
/// at any time.
pub(crate) struct List<T: 'static> {
    /// NULL at first.
    pub(crate) head: AtomicPtr<Place<T>>,
}

/// One place. All threads can read its value; the thread that has taken it may do more.
pub(crate) struct Place<T: 'static> {
    pub(crate) value: T,
    taken: AtomicBool,
    next: *const Self,
}

impl<T> List<T> {
    /// Takes a place that no thread has, or makes one. It is the caller's until [`Place::leave`].
    pub(crate) fn take(&self, make: impl FnOnce() -> T) -> &'static Place<T> {
        self.places().find(|place| !place.taken.swap(true, AcqRel)).unwrap_or_else(|| self.add(make()))
    }

    /// The values of all places, taken or not.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static T> {
        self.places().map(|place| &place.value)
    }

    fn places(&self) -> impl Iterator<Item = &'static Place<T>> {
        // SAFETY: a linked place is never freed.
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
    /// Whether a thread has the place; it may leave at any time.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Relaxed)
    }

    /// Leaves the place to another thread. From then on the caller uses it only as any thread may.
    pub(crate) fn leave(&self) {
        self.taken.store(false, Release);
    }
}
