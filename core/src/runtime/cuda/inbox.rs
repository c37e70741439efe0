//! What one thread is handed by all others: it sees to each thing until that is done. Handing over needs no memory.

#![forbid(unsafe_code)]

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicI64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A thing in a list, which is made before the thing has to be handed over.
pub(crate) struct Node<T> {
    pub(crate) thing: T,
    pub(crate) next: List<T>,
}

impl<T> Node<T> {
    pub(crate) fn new(thing: T) -> Self {
        Self { thing, next: None }
    }
}

/// Things one after the other.
pub(crate) type List<T> = Option<Box<Node<T>>>;

/// Where a list ends.
fn end<T>(mut list: &mut List<T>) -> &mut List<T> {
    while let Some(node) = list {
        list = &mut node.next;
    }
    list
}

pub(crate) struct Inbox<T> {
    pub(crate) new: Mutex<New<T>>,
    pub(crate) arrived: Condvar,
    pub(crate) settled: Condvar,
    /// How much is not done yet.
    pub(crate) waiting: AtomicI64,
}

/// What the thread has not seen yet.
pub(crate) struct New<T> {
    /// The newest first.
    pub(crate) things: List<T>,
    /// How often somebody wanted to know that all is looked at, and how many of these know.
    pub(crate) asked: u64,
    pub(crate) answered: u64,
}

impl<T> New<T> {
    pub(crate) const NONE: Self = Self { things: None, asked: 0, answered: 0 };

    fn is_none(&self) -> bool {
        self.things.is_none() && self.asked == self.answered
    }
}

impl<T> Inbox<T> {
    /// How much is not done yet, what is being done included. Who sees none sees all that was done.
    pub(crate) fn waiting(&self) -> i64 {
        self.waiting.load(Acquire)
    }

    /// Hands a thing to the thread. Returns at once.
    pub(crate) fn add(&self, mut node: Box<Node<T>>) {
        self.waiting.fetch_add(1, Relaxed);
        let mut new = self.unseen();
        node.next = new.things.take();
        new.things = Some(node);
        drop(new);
        self.arrived.notify_one();
    }

    /// One round of the thread: takes what is new, waiting for it if there is nothing else or else for a pause at most,
    /// and looks at everything in the order in which it came, with no lock held. `look` says whether a thing is done.
    /// Whether anything came or was done.
    pub(crate) fn round(&self, kept: &mut List<T>, pause: Duration, mut look: impl FnMut(&mut T) -> bool) -> bool {
        let (mut changed, asked) = self.receive(kept, pause);
        let (mut rest, mut last) = (kept.take(), kept);
        while let Some(mut node) = rest {
            rest = node.next.take();
            if look(&mut node.thing) {
                changed = true;
                drop(node);
                self.waiting.fetch_sub(1, Release);
            } else {
                last = &mut last.insert(node).next;
            }
        }
        if let Some(asked) = asked {
            self.unseen().answered = asked;
            self.settled.notify_all();
        }
        changed
    }

    /// Appends what is new. Whether there was anything, and who wants to know when it is looked at.
    fn receive(&self, kept: &mut List<T>, pause: Duration) -> (bool, Option<u64>) {
        let mut new = self.unseen();
        if kept.is_some() && new.is_none() {
            new = self.arrived.wait_timeout(new, pause).map_or_else(|error| error.into_inner().0, |(new, _)| new);
        }
        while kept.is_none() && new.is_none() {
            new = self.arrived.wait(new).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut newest, mut oldest) = (new.things.take(), None);
        let asked = (new.asked != new.answered).then_some(new.asked);
        drop(new);
        let some_came = newest.is_some();
        while let Some(mut node) = newest {
            newest = std::mem::replace(&mut node.next, oldest);
            oldest = Some(node);
        }
        *end(kept) = oldest;
        (some_came, asked)
    }

    /// Waits until what was added before was looked at; at most for so long, if there is a limit.
    pub(crate) fn settle(&self, limit: Option<Duration>) {
        let end = limit.map(|limit| Instant::now() + limit);
        let mut new = self.unseen();
        new.asked += 1;
        let mine = new.asked;
        self.arrived.notify_one();
        while new.answered < mine {
            new = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => self.settled.wait(new).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return,
                Some(left) => {
                    self.settled.wait_timeout(new, left).map_or_else(|error| error.into_inner().0, |(new, _)| new)
                }
            };
        }
    }

    fn unseen(&self) -> MutexGuard<'_, New<T>> {
        self.new.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
