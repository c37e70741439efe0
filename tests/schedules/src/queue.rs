//! The queue of releases: each pushed token comes out once, those of one thread come out in order, and each push calls `wake`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use loom::thread;

use crate::in_every_order;
use crate::parts::{ReleaseQueue, Signal};

fn queue() -> (Arc<ReleaseQueue>, Arc<AtomicU32>) {
    let wakes = Arc::new(AtomicU32::new(0));
    let own = Arc::clone(&wakes);
    let wake = move || {
        own.fetch_add(1, SeqCst);
    };
    (ReleaseQueue::new(wake), wakes)
}

/// Drains all tokens that are queued, up to four.
fn drain(queue: &ReleaseQueue, into: &mut Vec<u64>) {
    let mut tokens = [0; 4];
    let taken = queue.drain(&mut tokens);
    into.extend(&tokens[..taken]);
}

#[test]
fn what_two_threads_push_comes_out_once() {
    in_every_order(|| {
        let (queue, wakes) = queue();
        let pushers: Vec<_> = [1, 2]
            .map(|token| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.push(token))
            })
            .into();
        let mut tokens = Vec::new();
        drain(&queue, &mut tokens);
        pushers.into_iter().for_each(|thread| thread.join().expect("a thread"));
        drain(&queue, &mut tokens);
        tokens.sort_unstable();
        assert_eq!((tokens, wakes.load(SeqCst)), (vec![1, 2], 2));
        assert!(queue.is_empty());
    });
}

#[test]
fn what_one_thread_pushes_comes_out_in_order() {
    in_every_order(|| {
        let (queue, _) = queue();
        let pusher = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || (1..=3).for_each(|token| queue.push(token)))
        };
        let mut tokens = Vec::new();
        drain(&queue, &mut tokens);
        pusher.join().expect("a thread");
        drain(&queue, &mut tokens);
        assert_eq!(tokens, [1, 2, 3]);
    });
}

#[test]
fn two_threads_may_drain() {
    in_every_order(|| {
        let (queue, _) = queue();
        (1..=2).for_each(|token| queue.push(token));
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let mut tokens = Vec::new();
                drain(&queue, &mut tokens);
                tokens
            })
        };
        let mut tokens = Vec::new();
        drain(&queue, &mut tokens);
        queue.push(3);
        tokens.extend(other.join().expect("a thread"));
        drain(&queue, &mut tokens);
        tokens.sort_unstable();
        assert_eq!(tokens, [1, 2, 3]);
    });
}

/// A runtime that shuts down silences the queue and drains it; later pushes do not call it.
#[test]
fn a_silenced_queue_wakes_nobody_and_loses_nothing() {
    in_every_order(|| {
        let (queue, wakes) = queue();
        let pusher = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.push(1))
        };
        queue.silence();
        let before = wakes.load(SeqCst);
        pusher.join().expect("a thread");
        queue.push(2);
        assert!(before <= 1 && wakes.load(SeqCst) <= 1);
        let mut tokens = Vec::new();
        drain(&queue, &mut tokens);
        tokens.sort_unstable();
        assert_eq!(tokens, [1, 2]);
    });
}

/// A change before a signal is visible to the thread that takes the token out, also if two signals gave one token.
#[test]
fn no_signal_is_lost() {
    in_every_order(|| {
        let (queue, _) = queue();
        let signal = Arc::new(queue.signal(7).expect("there is memory"));
        let state = Arc::new(loom::sync::atomic::AtomicU32::new(0));
        let signallers: Vec<_> = (0..2)
            .map(|_| {
                let (signal, state) = (Arc::clone(&signal), Arc::clone(&state));
                thread::spawn(move || {
                    state.fetch_add(1, Relaxed);
                    Signal::push(&signal);
                })
            })
            .collect();
        let mut seen = 0;
        let mut look = || {
            let mut tokens = Vec::new();
            drain(&queue, &mut tokens);
            assert!(tokens.iter().all(|token| *token == 7));
            if !tokens.is_empty() {
                seen = state.load(Relaxed);
            }
        };
        look();
        signallers.into_iter().for_each(|thread| thread.join().expect("a thread"));
        look();
        assert_eq!(seen, 2);
    });
}

/// The token of a dropped signal still comes out, and then nothing refers to the queue any more.
#[test]
fn a_signal_may_be_dropped_while_it_is_queued() {
    in_every_order(|| {
        let (queue, _) = queue();
        let signal = queue.signal(7).expect("there is memory");
        let signaller = thread::spawn(move || {
            signal.push();
            drop(signal);
        });
        let mut tokens = Vec::new();
        drain(&queue, &mut tokens);
        signaller.join().expect("a thread");
        drain(&queue, &mut tokens);
        assert_eq!(tokens, [7]);
        assert!(queue.is_empty() && Arc::strong_count(&queue) == 1);
    });
}
