//! The count of a slab: the last reference frees it, once, after everybody has read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32 as Count, Ordering::SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::thread;

use crate::parts::{Slab, TailSize};
use crate::{in_every_order, meet};

/// A header that loom watches: reading it while it is changed or dropped is an error.
struct Header {
    value: UnsafeCell<u32>,
    drops: Arc<Count>,
}

// SAFETY: loom checks that nobody reads during a write.
unsafe impl Sync for Header {}

impl Header {
    fn look(&self) -> u32 {
        // SAFETY: loom reports a concurrent write.
        self.value.with(|value| unsafe { *value })
    }

    fn change(&self) {
        // SAFETY: loom reports a concurrent read.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }
}

impl Drop for Header {
    fn drop(&mut self) {
        self.change();
        self.drops.fetch_add(1, SeqCst);
    }
}

fn slab() -> (Slab<Header>, Arc<Count>) {
    let drops = Arc::new(Count::new(0));
    let header = Header { value: UnsafeCell::new(0), drops: Arc::clone(&drops) };
    (Slab::new(header, TailSize::default()).ok().expect("memory"), drops)
}

#[test]
fn the_last_of_three_holders_frees_it() {
    in_every_order(|| {
        let (slab, drops) = slab();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = slab.clone();
                thread::spawn(move || {
                    shared.header().look();
                    drop(shared);
                })
            })
            .collect();
        slab.header().look();
        drop(slab);
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        assert_eq!(drops.load(SeqCst), 1);
    });
}

#[test]
fn a_holder_may_share_it_while_others_give_it_up() {
    in_every_order(|| {
        let (slab, drops) = slab();
        let (one, two) = (slab.clone(), slab);
        let sharing = thread::spawn(move || {
            let again = one.clone();
            drop(one);
            again.header().look();
        });
        two.header().look();
        drop(two);
        sharing.join().expect("a thread");
        assert_eq!(drops.load(SeqCst), 1);
    });
}

/// Nodes of an exported tree that are released on different threads, several at once.
#[test]
fn references_that_are_given_up_together_count_once() {
    in_every_order(|| {
        let (slab, drops) = slab();
        slab.add_refs(4);
        let raw = slab.into_raw() as usize;
        // SAFETY: there are five references, and each is given up once.
        let give_up = move |n| unsafe { Slab::<Header>::release_raw(raw as *mut _, n) };
        let threads = [thread::spawn(move || give_up(2)), thread::spawn(move || give_up(1))];
        give_up(2);
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        assert_eq!(drops.load(SeqCst), 1);
    });
}

/// The maker can change the header as long as nobody shares it, and again when everybody else is gone.
#[test]
fn who_is_alone_may_change_it() {
    in_every_order(|| {
        let (mut slab, drops) = slab();
        let shared = slab.clone();
        let point = loom::sync::Arc::new(AtomicU32::new(0));
        let theirs = loom::sync::Arc::clone(&point);
        let looking = thread::spawn(move || {
            meet(&theirs);
            shared.header().look();
            drop(shared);
            meet(&theirs);
        });
        meet(&point);
        if let Some(header) = slab.unique() {
            header.change();
        }
        looking.join().expect("a thread");
        assert!(slab.unique().is_some());
        drop(slab);
        assert_eq!(drops.load(SeqCst), 1);
    });
}

/// A tensor lends the place for a consumer's struct to one consumer at a time, and each finds it as the last one left
/// it.
#[test]
fn one_at_a_time_has_the_claim() {
    in_every_order(|| {
        let (slab, drops) = slab();
        let handing_out = |slab: Slab<Header>| {
            if slab.claim() {
                slab.header().change();
                // SAFETY: claimed above, with a reference.
                unsafe { Slab::<Header>::release_claimed(slab.as_raw()) }
            }
        };
        let other = slab.clone();
        let handing_out_there = thread::spawn(move || handing_out(other));
        handing_out(slab.clone());
        handing_out_there.join().expect("a thread");
        assert!(slab.claim(), "nobody has it any more");
        assert!(!slab.claim(), "somebody has it");
        assert!((1..=2).contains(&slab.header().look()));
        // SAFETY: claimed above, with a reference.
        unsafe { Slab::<Header>::release_claimed(slab.as_raw()) }
        assert_eq!(drops.load(SeqCst), 0);
        drop(slab);
        assert_eq!(drops.load(SeqCst), 1);
    });
}

/// A tensor that is handed over for good, while others still have it or no longer have it: its place goes with it,
/// once.
#[test]
fn a_reference_goes_with_the_claim() {
    in_every_order(|| {
        let (mut slab, drops) = slab();
        let shared = slab.clone();
        let point = loom::sync::Arc::new(AtomicU32::new(0));
        let theirs = loom::sync::Arc::clone(&point);
        let elsewhere = thread::spawn(move || {
            meet(&theirs);
            if shared.claim() {
                shared.header().change();
                // SAFETY: claimed above, with a reference.
                unsafe { Slab::<Header>::release_claimed(shared.as_raw()) }
            }
            drop(shared);
            meet(&theirs);
        });
        meet(&point);
        if slab.claim_whole() {
            assert!(!slab.claim(), "it is handed over");
            slab.header().change();
            // SAFETY: claimed above; this reference goes with the claim.
            unsafe { Slab::<Header>::release_claimed(slab.into_raw()) }
        } else {
            drop(slab);
        }
        elsewhere.join().expect("a thread");
        assert_eq!(drops.load(SeqCst), 1);
    });
}
