//! A thread that takes tokens out of a queue, and looks once more before it sleeps. A token that it sleeps through would be a
//! deadlock, which loom reports.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Release};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use crate::in_orders_with;
use crate::parts::Taker;

/// A queue that only counts, and the mark by which its taker is woken (`Thread::unpark`), once it is known whom to wake.
struct Line {
    tokens: AtomicUsize,
    known: AtomicBool,
    taker: Taker,
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Line {
    fn new() -> Self {
        let taker = Taker { lingers: AtomicBool::new(false) };
        let (tokens, known) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { tokens, known, taker, woken: Mutex::new(false), changed: Condvar::new() }
    }

    fn push(&self) {
        // No more than a queue must do: who pushes learns nothing of the taker in this way.
        self.tokens.fetch_add(1, Release);
        if self.taker.has_to_be_woken() && self.known.load(Acquire) {
            *self.woken.lock().expect("nobody panics") = true;
            self.changed.notify_one();
        }
    }

    /// With a time, it is over at once.
    fn park(&self, time: Option<Duration>) {
        let mut woken = self.woken.lock().expect("nobody panics");
        while !*woken && time.is_none() {
            woken = self.changed.wait(woken).expect("nobody panics");
        }
        *woken = false;
    }

    fn wait(&self, linger: Option<Duration>) -> usize {
        self.known.store(true, Release);
        let take = || self.tokens.swap(0, Acquire);
        self.taker.wait(linger, take, |time| self.park(time))
    }
}

/// Takes what these threads push, each so often.
fn all_is_taken(pushes: &'static [usize], linger: Option<Duration>) {
    in_orders_with(3, move || {
        let line = Arc::new(Line::new());
        let pushers: Vec<_> = pushes
            .iter()
            .map(|&times| {
                let line = Arc::clone(&line);
                thread::spawn(move || (0..times).for_each(|_| line.push()))
            })
            .collect();
        let mut left: usize = pushes.iter().sum();
        while left > 0 {
            left -= line.wait(linger);
        }
        pushers.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
}

#[test]
fn no_token_of_one_thread_is_slept_through() {
    all_is_taken(&[2], Some(Duration::ZERO));
}

#[test]
fn no_token_of_two_threads_is_slept_through() {
    all_is_taken(&[1, 1], Some(Duration::ZERO));
}

#[test]
fn no_token_is_slept_through_by_a_thread_that_sleeps_at_once() {
    all_is_taken(&[2], None);
}
