//! The static library of another Rust project: it has Rust's runtime in it, as ours has, and its own allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicI64 = AtomicI64::new(0);

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this library has allocated.
#[unsafe(no_mangle)]
pub extern "C" fn other_allocations() -> i64 {
    let text = std::panic::catch_unwind(|| format!("{:?}", std::thread::current().id()));
    if text.is_ok() { ALLOCATIONS.load(Ordering::Relaxed) } else { -1 }
}
