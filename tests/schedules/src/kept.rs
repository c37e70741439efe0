//! Events that are kept for reuse: a thread that takes one has it alone until it gives it back, and none is lost.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::in_every_order;
use crate::parts::{Kept, kept};

/// Stands for an event; the cell names its context, and its holder writes it as it would record the event.
struct Event(UnsafeCell<u32>);

/// Stands for two contexts, to which events belong.
const ONE: u32 = 1;
const OTHER: u32 = 2;

fn record(kept: &Kept<u32, Event>, of: u32) {
    let event = kept.take(of).unwrap_or_else(|| Event(UnsafeCell::new(of)));
    // SAFETY: this thread has taken the event; loom reports a concurrent access.
    let before = event.0.with_mut(|owner| unsafe { owner.replace(of) });
    assert_eq!(before, of);
    // There is room for two; a third one is destroyed.
    let _ = kept.give(of, event, 2);
}

/// How many events of a context are kept, which then are no longer.
fn forgotten(kept: &Kept<u32, Event>, of: u32) -> usize {
    let mut count = 0;
    kept.forget(of, |_| count += 1);
    count
}

#[test]
fn one_thread_at_a_time_has_an_event() {
    in_every_order(|| {
        let kept = Arc::new(kept());
        record(&kept, ONE);
        let threads: Vec<_> = [ONE, OTHER]
            .map(|of| {
                let kept = Arc::clone(&kept);
                thread::spawn(move || record(&kept, of))
            })
            .into();
        record(&kept, ONE);
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        // If two threads needed an event of `ONE` at once, three events were made, and there was no room for one of them.
        assert!(kept.len() <= 2);
        let of_one = forgotten(&kept, ONE);
        assert!((1..=2).contains(&of_one), "{of_one}");
        assert_eq!(kept.len(), forgotten(&kept, OTHER));
        assert!(kept.take(ONE).is_none() && kept.take(OTHER).is_none());
    });
}

#[test]
fn a_context_that_ends_takes_its_events_with_it() {
    in_every_order(|| {
        let kept = Arc::new(kept());
        record(&kept, ONE);
        let other = {
            let kept = Arc::clone(&kept);
            thread::spawn(move || record(&kept, ONE))
        };
        let gone = forgotten(&kept, ONE);
        other.join().expect("a thread");
        // Either `forget` got the event, or the thread had it and gave it back.
        assert!(gone + kept.len() >= 1 && gone <= 1 && kept.len() <= 1);
    });
}
