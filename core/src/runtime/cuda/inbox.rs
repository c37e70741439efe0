//! What one thread is handed by all others: it sees to each thing until that is done.

#![forbid(unsafe_code)]

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::sync::atomic::{AtomicI64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crate::sync::{Condvar, Mutex};

pub(crate) struct Inbox<T> {
    pub(crate) new: Mutex<Vec<T>>,
    pub(crate) arrived: Condvar,
    /// How much is not done yet.
    pub(crate) waiting: AtomicI64,
}

impl<T> Inbox<T> {
    /// How much is not done yet, what is being done included. Who sees none sees all that was done.
    pub(crate) fn waiting(&self) -> i64 {
        self.waiting.load(Acquire)
    }

    /// Hands a thing to the thread. Returns at once.
    pub(crate) fn add(&self, thing: T) {
        self.waiting.fetch_add(1, Relaxed);
        self.new.lock().unwrap_or_else(PoisonError::into_inner).push(thing);
        self.arrived.notify_one();
    }

    /// One round of the thread: takes what is new, waiting for it if there is nothing else or else for a pause at most,
    /// and looks at everything in the order in which it came, with no lock held. `look` gives back what is not done.
    /// Whether anything came or was done.
    pub(crate) fn round(&self, kept: &mut Vec<T>, pause: Duration, look: impl FnMut(T) -> Option<T>) -> bool {
        let before = kept.len();
        self.receive(kept, pause);
        let (some_came, count) = (kept.len() > before, kept.len());
        let all = std::mem::take(kept);
        kept.extend(all.into_iter().map(look).filter_map(|left| {
            if left.is_none() {
                self.waiting.fetch_sub(1, Release);
            }
            left
        }));
        some_came || kept.len() < count
    }

    fn receive(&self, kept: &mut Vec<T>, pause: Duration) {
        let mut new = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.is_empty() && new.is_empty() {
            new = self.arrived.wait_timeout(new, pause).map_or_else(|error| error.into_inner().0, |(new, _)| new);
        }
        while kept.is_empty() && new.is_empty() {
            new = self.arrived.wait(new).unwrap_or_else(PoisonError::into_inner);
        }
        kept.append(&mut new);
    }

    /// Waits until what was added before was looked at. `thing` makes one that is done at the first look, and then drops
    /// what it was given.
    pub(crate) fn settle(&self, thing: impl FnOnce(Told) -> T) {
        // Not a channel: it would make a handle for the caller's thread, which is not ours and may never end.
        let settled = Arc::new((Mutex::new(false), Condvar::new()));
        self.add(thing(Told(Arc::clone(&settled))));
        let (done, change) = &*settled;
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            done = change.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Tells who waits, when it is dropped.
pub(crate) struct Told(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Told {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_one();
    }
}
