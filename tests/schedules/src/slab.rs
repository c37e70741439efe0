//! The count of a slab: the last reference frees it, once, after all reads of its header.

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

// SAFETY: loom reports a read of the cell during a write.
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
    (Slab::new(header, TailSize::default()).expect("memory"), drops)
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

/// Like nodes of an exported tree that are released on different threads, several nodes at once.
#[test]
fn references_that_are_given_up_together_count_once() {
    in_every_order(|| {
        let (slab, drops) = slab();
        slab.add_refs(4);
        let raw = slab.into_raw() as usize;
        // SAFETY: there are five references, and the three calls give up all of them.
        let give_up = move |n| unsafe { Slab::<Header>::release_raw(raw as *mut _, n) };
        let threads = [thread::spawn(move || give_up(2)), thread::spawn(move || give_up(1))];
        give_up(2);
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        assert_eq!(drops.load(SeqCst), 1);
    });
}

/// The holder of the only reference can change the header, also if there were other references before.
#[test]
fn the_only_holder_may_change_the_header() {
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

/// Like the place for a consumer's struct in a tensor: one consumer at a time has it, and finds it as the last one left it.
#[test]
fn one_holder_at_a_time_has_the_claim() {
    in_every_order(|| {
        let (slab, drops) = slab();
        let handing_out = |slab: Slab<Header>| {
            if slab.claim() {
                slab.header().change();
                // SAFETY: `claim` added a reference, which goes with the claim.
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
        // SAFETY: `claim` added a reference, which goes with the claim.
        unsafe { Slab::<Header>::release_claimed(slab.as_raw()) }
        assert_eq!(drops.load(SeqCst), 0);
        drop(slab);
        assert_eq!(drops.load(SeqCst), 1);
    });
}

/// Like a tensor that is moved into an export, while another reference to it is used and dropped: the claim goes with the moved
/// reference, once.
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
                // SAFETY: `claim` added a reference, which goes with the claim.
                unsafe { Slab::<Header>::release_claimed(shared.as_raw()) }
            }
            drop(shared);
            meet(&theirs);
        });
        meet(&point);
        if slab.claim_whole() {
            assert!(!slab.claim(), "it is handed over");
            slab.header().change();
            // SAFETY: `claim_whole` made this reference go with the claim.
            unsafe { Slab::<Header>::release_claimed(slab.into_raw()) }
        } else {
            drop(slab);
        }
        elsewhere.join().expect("a thread");
        assert_eq!(drops.load(SeqCst), 1);
    });
}
