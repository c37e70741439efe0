//! An allocator for host memory that fails when a test says so. The tests of other crates use this file, too.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

thread_local! {
    /// Whether the core is at work on this thread, and not the test.
    pub(crate) static WATCHED: Cell<bool> = const { Cell::new(false) };
    /// How many allocations of the core still succeed before one fails; negative if none is to fail.
    pub(crate) static LEFT: Cell<i64> = const { Cell::new(-1) };
    static FROM_THEN_ON: Cell<bool> = const { Cell::new(false) };
    /// How many allocations have failed since the last [`disarm`].
    pub(crate) static FAILED: Cell<u64> = const { Cell::new(0) };
}

/// The allocator of a test program with such faults.
pub(crate) struct Failing {
    /// Whether an allocation fails where the core is not watched. Allocates nothing.
    pub(crate) elsewhere: fn() -> bool,
}

impl Failing {
    fn fails(&self) -> bool {
        if !WATCHED.get() {
            return (self.elsewhere)();
        }
        let left = LEFT.get();
        if left > 0 || (left == 0 && !FROM_THEN_ON.get()) {
            LEFT.set(left - 1);
        }
        FAILED.set(FAILED.get() + u64::from(left == 0));
        left == 0
    }
}

// SAFETY: what does not fail is passed on to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        if self.fails() { null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's contract.
        if self.fails() { null_mut() } else { unsafe { System.realloc(block, layout, bytes) } }
    }
}

/// Lets an allocation of this thread fail after `left` successes, or all allocations from then on.
pub(crate) fn arm(left: i64, from_then_on: bool) {
    FROM_THEN_ON.set(from_then_on);
    LEFT.set(left);
}

/// Lets no more allocations fail. Returns the number that failed.
pub(crate) fn disarm() -> u64 {
    LEFT.set(-1);
    FAILED.take()
}

/// Lets the core do something while an allocation may fail.
pub(crate) fn watched<T>(act: impl FnOnce() -> T) -> T {
    WATCHED.set(true);
    let result = act();
    WATCHED.set(false);
    result
}
