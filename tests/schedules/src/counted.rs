//! Counted values that are found through a weak reference while the last counted reference is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32 as Count, Ordering::SeqCst};

use loom::cell::UnsafeCell;
use loom::thread;

use crate::in_every_order;
use crate::parts::Counted;

/// A value that loom watches: reading it while it is dropped is an error.
struct Watched {
    value: UnsafeCell<u32>,
    drops: Arc<Count>,
}

// SAFETY: only `drop` writes the cell, and loom reports a read meanwhile.
unsafe impl Sync for Watched {}

impl Watched {
    fn look(&self) {
        // SAFETY: loom reports a concurrent write.
        self.value.with(|value| assert_eq!(unsafe { *value }, 7));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: loom reports a concurrent read.
        self.value.with_mut(|value| unsafe { *value = 0 });
        self.drops.fetch_add(1, SeqCst);
    }
}

fn counted() -> (Counted<Watched>, Arc<Count>) {
    let drops = Arc::new(Count::new(0));
    let value = Watched { value: UnsafeCell::new(7), drops: Arc::clone(&drops) };
    (Counted::room().expect("memory").fill(value), drops)
}

/// Like a mapping that is found while its last user unmaps it, or an import that is shared while it is released.
#[test]
fn an_upgrade_gives_a_whole_value_or_none() {
    in_every_order(|| {
        let (counted, drops) = counted();
        let (note, other) = (counted.downgrade(), counted.downgrade());
        let finding = thread::spawn(move || {
            if let Some(found) = note.upgrade() {
                found.look();
                assert!(!note.is_gone());
            }
        });
        let found = other.upgrade().expect("held here");
        drop(counted);
        found.look();
        drop(found);
        finding.join().expect("a thread");
        assert!(other.is_gone() && other.upgrade().is_none());
        assert_eq!(drops.load(SeqCst), 1);
    });
}

/// Like an import: exactly one of its shares, the last one, closes what the import opened.
#[test]
fn exactly_one_reference_gets_the_value_back() {
    in_every_order(|| {
        let (counted, drops) = counted();
        let (note, shared) = (counted.downgrade(), counted.clone());
        let giving_up = thread::spawn(move || {
            shared.look();
            shared.into_inner().map(|last| last.look()).is_some()
        });
        let found = note.upgrade().expect("held here");
        drop(note);
        let first = counted.into_inner().is_some();
        found.look();
        let second = found.into_inner().is_some();
        let theirs = giving_up.join().expect("a thread");
        assert_eq!([first, second, theirs].map(usize::from).iter().sum::<usize>(), 1);
        assert_eq!(drops.load(SeqCst), 1);
    });
}
