//! Foreign structs that carry their own release callback (the Arrow structs): moved in, and released on drop.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;

use crate::ledger::{Entry, Kind};

/// A struct with a `release` member that is NULL once it is released or moved from
/// (Arrow C data interface, "Released structure").
///
/// # Safety
/// `release` returns the callback of the struct itself, and `disarm` sets that member to NULL.
pub(crate) unsafe trait Releasable: Sized {
    /// The callback, or `None` if the struct is released.
    fn release(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
    /// Marks the struct as moved from.
    fn disarm(&mut self);
}

/// A struct that was moved to us, and that we release once, when this is dropped.
///
/// It must not move in memory any more once [`Foreign::as_ptr`] has been handed out.
pub(crate) struct Foreign<T: Releasable> {
    value: UnsafeCell<T>,
    _entry: Entry,
}

// SAFETY: Arrow lets release be called from any thread; the struct is otherwise only read.
unsafe impl<T: Releasable> Send for Foreign<T> {}
// SAFETY: shared access only reads; the one write is the release in `drop`, which has the value alone.
unsafe impl<T: Releasable> Sync for Foreign<T> {}

impl<T: Releasable> Foreign<T> {
    /// Moves the struct out of `*source`, which is marked as moved from.
    ///
    /// # Safety
    /// `source` points to a valid, unreleased struct that nobody else uses now.
    #[inline(always)]
    pub(crate) unsafe fn take(source: *mut T, kind: Kind) -> Self {
        let entry = Entry::open(kind);
        // SAFETY: valid for reads by the caller's contract; after `disarm` there is one live copy, this one.
        let taken = Self { value: UnsafeCell::new(unsafe { word_by_word(source) }), _entry: entry };
        // SAFETY: as above, valid for writes.
        unsafe { (*source).disarm() };
        taken
    }

    pub(crate) fn as_ptr(&self) -> *const T {
        self.value.get()
    }

    /// Moves the struct back out, so that nothing is left here to release.
    ///
    /// # Safety
    /// `target` can be written; what it held is not released.
    pub(crate) unsafe fn put_back(&mut self, target: *mut T) {
        let value = self.value.get_mut();
        // SAFETY: the caller's contract; after `disarm` there is one live copy, the target.
        unsafe { std::ptr::from_mut(value).copy_to_nonoverlapping(target, 1) };
        value.disarm();
    }
}

/// Copies a struct word by word. Most likely it was written just now, member by member, and a load that is wider than the
/// stores before it would have to wait for them.
///
/// # Safety
/// Same as [`std::ptr::read`].
#[inline(always)]
unsafe fn word_by_word<T>(source: *const T) -> T {
    const { assert!(size_of::<T>().is_multiple_of(size_of::<usize>()) && align_of::<T>() == align_of::<usize>()) };
    let mut copy = MaybeUninit::<T>::uninit();
    for word in 0..size_of::<T>() / size_of::<usize>() {
        // SAFETY: within the struct.
        let from = unsafe { source.cast::<MaybeUninit<usize>>().add(word) };
        // SAFETY: as above; padding may be uninitialised.
        let value = unsafe { from.read_volatile() };
        // SAFETY: within the copy.
        let to = unsafe { copy.as_mut_ptr().cast::<MaybeUninit<usize>>().add(word) };
        // SAFETY: as above.
        unsafe { to.write(value) };
    }
    // SAFETY: all of it is copied.
    unsafe { copy.assume_init() }
}

/// Releases a struct where it is, if it is not released yet.
///
/// # Safety
/// `value` is valid and nobody else uses it now.
pub(crate) unsafe fn release<T: Releasable>(value: &mut T) {
    if let Some(release) = value.release() {
        // SAFETY: the caller's contract; the mark below makes sure that this happens once.
        unsafe { release(value) };
        // A callback that forgets to mark the struct must not be called a second time.
        value.disarm();
    }
}

/// Releases a struct that somebody holds and nobody takes, if it is not released yet. NULL is accepted.
///
/// # Safety
/// `given` is NULL, or points to a valid struct (released or not) that nobody else uses now.
pub(crate) unsafe fn release_given<T: Releasable>(given: *mut T) {
    // SAFETY: the caller's contract.
    if let Some(given) = unsafe { given.as_mut() } {
        // Moved out first, because what holds the struct may end with the release.
        // SAFETY: valid for reads; after `disarm` there is one live copy, this one.
        let mut taken = unsafe { std::ptr::read(given) };
        given.disarm();
        // SAFETY: as above.
        unsafe { release(&mut taken) }
    }
}

impl<T: Releasable> Drop for Foreign<T> {
    fn drop(&mut self) {
        // SAFETY: the struct was moved to us, so we release it and, by `take`, nobody else does.
        unsafe { release(self.value.get_mut()) }
    }
}

impl<T: Releasable> fmt::Debug for Foreign<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Foreign").field(&self.value.get()).finish()
    }
}
