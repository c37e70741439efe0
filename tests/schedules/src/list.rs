//! The list of thread-local places: one thread at a time has a place, a later thread takes over the place of one that has
//! ended, and a thread that reads all places sees everything that happened before.

use std::ptr::null_mut;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use loom::thread;

use crate::parts::{List, Place};
use crate::{in_every_order, meet};

/// Like a place of the core: blocks, which only the thread that has the place uses, and a line of the ledger, which all read.
struct Local {
    blocks: UnsafeCell<u32>,
    line: AtomicU32,
}

// SAFETY: only the thread that has the place uses the blocks; loom reports a concurrent access.
unsafe impl Sync for Local {}

fn list() -> &'static List<Local> {
    Box::leak(Box::new(List { head: AtomicPtr::new(null_mut()) }))
}

fn take(list: &'static List<Local>) -> &'static Place<Local> {
    list.take(|| Local { blocks: UnsafeCell::new(0), line: AtomicU32::new(0) })
}

/// The life of a thread: takes a place, uses it and leaves it.
fn live(list: &'static List<Local>) {
    let place = take(list);
    // SAFETY: this thread has the place; loom reports a concurrent access.
    place.value.blocks.with_mut(|blocks| unsafe { *blocks += 1 });
    // The ledger counts in the same way: no other thread writes this line, so a load and a store are enough.
    place.value.line.store(place.value.line.load(Relaxed) + 1, Release);
    place.leave();
}

fn sum(list: &'static List<Local>) -> u32 {
    list.all().map(|local| local.line.load(Acquire)).sum()
}

#[test]
fn one_thread_at_a_time_has_a_place() {
    in_every_order(|| {
        let list = list();
        let threads: Vec<_> = (0..2).map(|_| thread::spawn(move || live(list))).collect();
        live(list);
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        assert_eq!(sum(list), 3);
        assert!((1..=3).contains(&list.all().count()));
    });
}

#[test]
fn a_later_thread_takes_over_the_place_of_an_earlier_one() {
    in_every_order(|| {
        let list = list();
        thread::spawn(move || live(list)).join().expect("a thread");
        let point = loom::sync::Arc::new(AtomicU32::new(0));
        let theirs = loom::sync::Arc::clone(&point);
        let later = thread::spawn(move || {
            meet(&theirs);
            live(list);
            meet(&theirs);
        });
        meet(&point);
        // This thread sees the count of the thread that has ended, and perhaps that of the running one.
        assert!((1..=2).contains(&sum(list)));
        later.join().expect("a thread");
        assert_eq!((sum(list), list.all().count()), (2, 1));
    });
}
