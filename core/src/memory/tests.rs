//! Tests of slabs (their tails, unique access, the number of references) and of counted values (when they can be found).

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use super::{Counted, Slab, Tail, TailSize};
use crate::abi::types::DEVX_OUT_OF_MEMORY;
use crate::fork::tests::with_children;

fn slab(tail: TailSize) -> Slab<u32> {
    Slab::new(7, tail).map_err(|refused| refused.error).expect("memory")
}

/// How many bytes there are until carving fails.
fn room_of(mut tail: Tail) -> usize {
    let carved = std::iter::from_fn(|| catch_unwind(AssertUnwindSafe(|| tail.carve::<u8>(16))).ok());
    carved.take(1000).count() * 16
}

#[test]
fn nothing_is_carved_beyond_the_end_of_a_block() {
    let parts = TailSize::of::<u8>(1).with(TailSize::of::<u64>(3)).and::<u16>(9).expect("small");
    let slab = slab(parts);
    let mut tail = slab.tail();
    let (first, second) = (tail.carve::<u8>(1), tail.carve::<u64>(3));
    let third = tail.carve::<u16>(9);
    assert_eq!((second.addr() - first.addr(), third.addr() - second.addr()), (16, 32));
    // A block that small is a multiple of 64 bytes.
    let before = slab.tail().carve::<u8>(0).addr() - slab.as_raw().addr();
    assert_eq!(room_of(slab.tail()), (before + 16 + 32 + 32).next_multiple_of(64) - before);
}

#[test]
fn numbers_are_kept_in_the_room_for_them() {
    let slab = slab(TailSize::of::<usize>(3).with(TailSize::of::<u8>(1)));
    let mut tail = slab.tail();
    let scratch = tail.scratch(3);
    let first = scratch.as_ptr().addr();
    assert_eq!(scratch.len(), 3);
    assert_eq!(tail.carve::<u8>(1).addr(), first + 32);
}

#[test]
fn what_cannot_be_addressed_is_refused() {
    let error = TailSize::default().and::<u64>(usize::MAX / 4).expect_err("more than there is");
    assert_eq!(error.status(), DEVX_OUT_OF_MEMORY);
    let error =
        TailSize::default().and::<u8>(usize::MAX - 100).and_then(|size| size.and::<u8>(200)).expect_err("as above");
    assert_eq!(error.status(), DEVX_OUT_OF_MEMORY);
    let most = TailSize::default().and::<u8>(usize::MAX - 100).expect("a number");
    let refused = Slab::new(7, most.with(most)).expect_err("more than there is");
    assert_eq!((refused.error.status(), refused.returned), (DEVX_OUT_OF_MEMORY, 7));
}

#[test]
fn who_is_alone_may_change_it() {
    let mut slab = slab(TailSize::default());
    *slab.unique().expect("alone") += 1;
    let shared = slab.clone();
    assert_eq!(slab.unique(), None);
    drop(shared);
    assert_eq!(slab.unique(), Some(&mut 8));
    slab.add_refs(2);
    // SAFETY: the two that were added.
    unsafe { Slab::<u32>::release_raw(slab.as_raw(), 2) };
    assert_eq!(slab.unique(), Some(&mut 8));
}

#[test]
fn a_count_that_would_wrap_ends_the_process() {
    /// Set for the child processes of this test: how many references they add, one after the other.
    const ADDED: &str = "DEVX_TEST_REFERENCES";
    const MOST: usize = isize::MAX as usize;
    if let Some(added) = std::env::var_os(ADDED) {
        let slab = slab(TailSize::default());
        let added = added.to_str().expect("numbers").split(' ').map(|n| n.parse().expect("a number"));
        let sum = added.inspect(|&n| slab.add_refs(n)).sum();
        // SAFETY: those that were added.
        return unsafe { Slab::<u32>::release_raw(slab.as_raw(), sum) };
    }
    let _children = with_children();
    for (added, ends) in [(vec![1, 5], false), (vec![MOST], false), (vec![MOST, 1], true), (vec![MOST + 1], true)] {
        let text: Vec<_> = added.iter().map(usize::to_string).collect();
        // Captured, because what it counts is not to be counted for this program.
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "memory::tests::a_count_that_would_wrap_ends_the_process"])
            .env(ADDED, text.join(" "))
            .output()
            .expect("this program runs");
        let (status, text) = (output.status, String::from_utf8_lossy(&output.stdout));
        let goes_on = status.success() && text.contains("1 passed");
        assert_eq!((status.signal() == Some(libc::SIGABRT), goes_on), (ends, !ends), "{added:?}: {status}: {text}");
    }
}

#[test]
fn a_counted_value_goes_with_the_last_reference() {
    struct Told<'a>(&'a Cell<u32>);
    impl Drop for Told<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let drops = Cell::new(0);
    let counted = || Counted::room().expect("memory").fill(Told(&drops));
    let (first, other) = (counted(), counted());
    let place = first.downgrade();
    assert!(!place.is_gone());
    // Twice, because a wrong count shows only the second time.
    let (second, third) = (place.upgrade().expect("there"), place.upgrade().expect("there"));
    drop((first, second));
    assert!(!place.is_gone() && drops.get() == 0);
    drop(third);
    assert!(place.is_gone() && place.upgrade().is_none());
    assert_eq!(drops.get(), 1);
    // The last reference can give up the value itself.
    let shared = other.clone();
    assert!(other.into_inner().is_none());
    let value = shared.into_inner().expect("the last one");
    assert_eq!(drops.get(), 1);
    drop(value);
    assert_eq!(drops.get(), 2);
}
