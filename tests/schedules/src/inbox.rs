//! The reaper's inbox: each thing is done once, no thread sleeps although there is work, and a thread that waits for work
//! finds it done.

use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;

use crate::parts::{Inbox, Node, Things, inbox};
use crate::{in_every_order, in_orders_with};

/// Stands for a waiting release, which changes the memory in a way that other threads can see.
type Thing = Arc<Memory>;

/// Adds a thing that gives up this memory.
fn add(inbox: &Inbox<Thing>, memory: &Arc<Memory>) {
    inbox.add(Box::new(Node::new(Arc::clone(memory))), None);
}

/// Stands for memory; the thread that gives it up writes the cell.
struct Memory {
    given_up: UnsafeCell<bool>,
    times: AtomicU32,
}

// SAFETY: loom reports a read of the cell that is not ordered after its write.
unsafe impl Sync for Memory {}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self { given_up: UnsafeCell::new(false), times: AtomicU32::new(0) })
    }

    fn give_up(&self) {
        // SAFETY: the reaper gives each memory up once; loom reports a concurrent access.
        self.given_up.with_mut(|given_up| unsafe { *given_up = true });
        self.times.fetch_add(1, Relaxed);
    }

    fn is_given_up(&self) -> bool {
        // SAFETY: loom reports a concurrent write.
        self.given_up.with(|given_up| unsafe { *given_up })
    }
}

/// Starts a reaper thread, which ends when it has done `much` things.
fn reaper(inbox: &Arc<Inbox<Thing>>, much: usize) -> thread::JoinHandle<()> {
    let inbox = Arc::clone(inbox);
    thread::spawn(move || {
        let (mut kept, mut done) = (None, 0);
        while done < much {
            inbox.round(&mut kept, Duration::ZERO, |memory, _| {
                memory.give_up();
                done += 1;
                true
            });
        }
    })
}

#[test]
fn settle_waits_for_earlier_things() {
    in_orders_with(2, || {
        let inbox = Arc::new(inbox());
        let [mine, theirs, last] = [(); 3].map(|()| Memory::new());
        let reaper = reaper(&inbox, 3);
        let other = {
            let (inbox, theirs) = (Arc::clone(&inbox), Arc::clone(&theirs));
            thread::spawn(move || add(&inbox, &theirs))
        };
        add(&inbox, &mine);
        inbox.settle(None);
        assert!(mine.is_given_up());
        // The reaper needs a third thing to end.
        add(&inbox, &last);
        other.join().expect("a thread");
        reaper.join().expect("a thread");
        assert_eq!([&mine, &theirs, &last].map(|memory| memory.times.load(Relaxed)), [1, 1, 1]);
        assert_eq!(inbox.waiting(), 0);
    });
}

/// The reaper answers a call of `settle` even if there is nothing to do.
#[test]
fn settle_returns_although_the_inbox_is_empty() {
    in_every_order(|| {
        let inbox = Arc::new(inbox::<Thing>());
        let last = Memory::new();
        let reaper = reaper(&inbox, 1);
        inbox.settle(None);
        add(&inbox, &last);
        reaper.join().expect("a thread");
    });
}

/// Like the end of the process, or a program that asks how many releases wait.
#[test]
fn a_thread_that_reads_zero_sees_the_finished_work() {
    in_every_order(|| {
        let inbox = Arc::new(inbox());
        let memory = Memory::new();
        let reaper = reaper(&inbox, 1);
        add(&inbox, &memory);
        if inbox.waiting() == 0 {
            assert!(memory.is_given_up());
        }
        reaper.join().expect("a thread");
        assert_eq!((inbox.waiting(), memory.times.load(Relaxed)), (0, 1));
    });
}

/// Like the destruction of a stream that earlier releases may use.
#[test]
fn a_thread_past_a_mark_sees_the_work_before_it() {
    in_every_order(|| {
        let inbox = Arc::new(inbox());
        let [before, after] = [(); 2].map(|()| Memory::new());
        let reaper = reaper(&inbox, 2);
        add(&inbox, &before);
        let mark = inbox.mark();
        assert!(!inbox.is_past(inbox.mark()) || before.is_given_up());
        add(&inbox, &after);
        if inbox.is_past(mark) {
            assert!(before.is_given_up());
        }
        reaper.join().expect("a thread");
        assert!(inbox.is_past(mark));
    });
}

fn many(mut things: &Things<Thing>) -> usize {
    let mut many = 0;
    while let Some(node) = things {
        (many, things) = (many + 1, &node.next);
    }
    many
}

/// A thing that is not done stays, and is tried again together with new ones. In this model no pause ever ends, so a thread
/// that pauses although there is a new thing sleeps for ever.
#[test]
fn an_unfinished_thing_is_tried_again() {
    in_every_order(|| {
        let inbox = Arc::new(inbox());
        let [first, late, third, last] = [(); 4].map(|()| Memory::new());
        add(&inbox, &first);
        let other = {
            let (inbox, late) = (Arc::clone(&inbox), Arc::clone(&late));
            thread::spawn(move || add(&inbox, &late))
        };
        let mut kept = None;
        while late.times.load(Relaxed) == 0 {
            inbox.round(&mut kept, Duration::ZERO, |memory, _| {
                let is_done = !Arc::ptr_eq(memory, &first);
                if is_done {
                    memory.give_up();
                }
                is_done
            });
            assert_eq!(many(&kept), 1);
        }
        assert_eq!(inbox.waiting(), 1);
        add(&inbox, &third);
        add(&inbox, &last);
        let mut order = Vec::new();
        let done = inbox.round(&mut kept, Duration::ZERO, |memory, _| {
            memory.give_up();
            order.push(Arc::clone(memory));
            true
        });
        assert!(done && kept.is_none());
        assert!(order.iter().zip([&first, &third, &last]).all(|(seen, wanted)| Arc::ptr_eq(seen, wanted)));
        assert_eq!([&first, &late, &third, &last].map(|memory| memory.times.load(Relaxed)), [1; 4]);
        other.join().expect("a thread");
        assert_eq!(inbox.waiting(), 0);
    });
}
