//! A thread or task that waits for a state of an asynchronous stream is told when the state changes. A thread that sleeps for
//! ever would be a deadlock, which loom reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};

use loom::thread;

use crate::in_every_order;
use crate::parts::Bell;

#[test]
fn a_waiting_thread_is_nudged() {
    in_every_order(|| {
        let bell = Arc::new(Bell::new());
        let waiters: Vec<_> = (1..=2)
            .map(|least| {
                let bell = Arc::clone(&bell);
                thread::spawn(move || assert!(bell.wait(least).is_ready()))
            })
            .collect();
        for _ in 0..2 {
            bell.change(false);
        }
        waiters.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
}

/// A waker that counts its wakes.
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_pending_task_is_woken() {
    in_every_order(|| {
        let bell = Arc::new(Bell::new());
        let changing = {
            let bell = Arc::clone(&bell);
            thread::spawn(move || bell.change(true))
        };
        let count = Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let answer = bell.poll(&mut Context::from_waker(&waker), 1);
        changing.join().expect("a thread");
        assert!(answer.is_ready() || count.0.load(SeqCst) == 1, "pending, and nobody was woken");
    });
}

#[test]
fn a_task_is_woken_although_another_one_stops_awaiting() {
    in_every_order(|| {
        let bell = Arc::new(Bell::new());
        let changing = {
            let bell = Arc::clone(&bell);
            thread::spawn(move || bell.change(true))
        };
        let counts = [0; 2].map(|none| Arc::new(Count(AtomicU32::new(none))));
        let wakers = counts.each_ref().map(|count| Waker::from(Arc::clone(count)));
        let answer = bell.poll_first(wakers.each_ref().map(Context::from_waker), 1, || {
            changing.join().expect("a thread");
        });
        assert!(answer.is_ready() || counts[0].0.load(SeqCst) == 1, "pending, and nobody was woken");
    });
}
