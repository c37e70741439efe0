//! Which blocks a thread keeps, which go back to the thread that took them, and which go to the system.

use super::*;
use crate::local::blocks::MOST;
use crate::memory::{Slab, TailSize};

#[test]
fn what_was_given_back_comes_again() {
    let (first, size) = allocate(5000).expect("memory");
    // SAFETY: just allocated.
    unsafe { free(first, size) };
    let (again, _) = allocate(size.bytes() - 100).expect("memory");
    assert_eq!(first, again);
    // SAFETY: as above.
    unsafe { free(again, size) };
    let all: Vec<_> = (0..100).map(|i| allocate(LARGE + i % 2).expect("memory")).collect();
    for (block, size) in all {
        // SAFETY: as above.
        unsafe { free(block, size) };
    }
    let kept = local::here().map(|local| local.blocks.bytes());
    assert!(kept.is_some_and(|bytes| bytes > 0 && bytes <= MOST), "{kept:?}");
    assert!(allocate(usize::MAX - 10).is_none());
}

#[test]
fn what_was_given_back_elsewhere_returns() {
    // A size that no other test on this thread asks for.
    let blocks: Vec<_> = (0..10).map(|_| allocate(3 << 20).expect("memory")).collect();
    let mut addresses: Vec<_> = blocks.iter().map(|(block, _)| block.addr()).collect();
    let far: Vec<_> = blocks.into_iter().map(|(block, origin)| Far(block, origin)).collect();
    in_a_thread(|| far.into_iter().for_each(Far::free));
    // Only as many as are kept: the others went to the system, which may hand them out again.
    addresses.sort();
    let again: Vec<_> = (0..2).map(|_| allocate(3 << 20).expect("memory")).collect();
    for &(block, origin) in &again {
        assert!(addresses.binary_search(&block.addr()).is_ok());
        // SAFETY: as above.
        unsafe { free(block, origin) };
    }
    let returned = local::here().map(|local| local.returned.bytes());
    assert_eq!(returned, Some(0));
}

struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("as asked");
    }
}

#[test]
fn the_block_of_a_header_that_panics_is_given_back() {
    let slab = Slab::new(Panics, TailSize::default()).map_err(|refused| refused.error).expect("memory");
    let at = slab.as_raw();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(slab))).expect_err("a panic");
    let again = Slab::new((), TailSize::default()).map_err(|refused| refused.error).expect("memory");
    assert_eq!(again.as_raw(), at);
}

#[test]
fn the_largest_come_from_no_thread() {
    for (bytes, kept) in [(LARGE, true), (LARGE + 1, false)] {
        let (block, origin) = allocate(bytes).expect("memory");
        let before = local::here().map(|local| local.blocks.bytes());
        assert_eq!((origin.home.is_null(), origin.bytes() >= bytes), (!kept, true));
        // SAFETY: allocated, and nobody uses it.
        unsafe { free(block, origin) };
        let after = local::here().map(|local| local.blocks.bytes());
        assert_eq!(before != after, kept, "{bytes}");
    }
}

/// A block on its way to another thread.
struct Far(NonNull<u8>, Origin);

// SAFETY: a block belongs to whoever has it, on any thread.
unsafe impl Send for Far {}

impl Far {
    fn new(bytes: usize) -> Self {
        let (block, origin) = allocate(bytes).expect("memory");
        Self(block, origin)
    }

    fn free(self) {
        // SAFETY: allocated, and nobody uses it.
        unsafe { free(self.0, self.1) }
    }
}

/// How many bytes the calling thread keeps, and how many came back to it from other threads.
fn here() -> (usize, usize) {
    let local = local::here().expect("a thread that goes on");
    (local.blocks.bytes(), local.returned.bytes())
}

/// Runs `act` in a thread that keeps nothing yet.
fn in_a_thread(act: impl FnOnce() + Send + 'static) {
    std::thread::spawn(act).join().expect("a thread");
}

#[test]
fn what_does_not_fit_goes_to_the_system() {
    in_a_thread(|| {
        let blocks = [Far::new(LARGE), Far::new(LARGE), Far::new(LARGE)];
        blocks.into_iter().for_each(Far::free);
        assert_eq!(here(), (MOST, 0));
    });
}

#[test]
fn a_block_goes_back_to_the_thread_that_took_it() {
    in_a_thread(|| {
        let (one, other) = (Far::new(LARGE), Far::new(LARGE / 2));
        let at = one.0.addr();
        in_a_thread(|| {
            one.free();
            other.free();
            assert_eq!(here(), (0, 0));
        });
        assert_eq!(here(), (0, LARGE + LARGE / 2));
        let again = Far::new(LARGE);
        assert_eq!((again.0.addr(), here()), (at, (LARGE / 2, 0)));
        again.free();
    });
}

#[test]
fn the_end_of_a_thread_leaves_nothing() {
    let (sender, receiver) = std::sync::mpsc::channel();
    in_a_thread(move || {
        Far::new(LARGE).free();
        let far = Far::new(LARGE / 2);
        in_a_thread(|| far.free());
        assert_eq!(here(), (LARGE, LARGE / 2));
        let local = local::here().expect("a thread that goes on");
        local.free_blocks();
        sender.send(here()).expect("somebody listens");
    });
    assert_eq!(receiver.recv(), Ok((0, 0)));
}
