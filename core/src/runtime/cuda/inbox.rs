//! Things that all threads hand to one thread, which looks at each of them until it is done. Handing over needs no
//! memory.

#![forbid(unsafe_code)]

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicI64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A thing in a list. The node is made before the thing has to be handed over.
pub(crate) struct Node<T> {
    pub(crate) thing: T,
    age: u64,
    pub(crate) next: List<T>,
}

impl<T> Node<T> {
    pub(crate) fn new(thing: T) -> Self {
        Self { thing, age: 0, next: None }
    }
}

/// A linked list of things.
pub(crate) type List<T> = Option<Box<Node<T>>>;

/// The end of a list.
fn end<T>(mut list: &mut List<T>) -> &mut List<T> {
    while let Some(node) = list {
        list = &mut node.next;
    }
    list
}

/// The lesser of two ages, each of which may be missing.
fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

pub(crate) struct Inbox<T> {
    pub(crate) new: Mutex<New<T>>,
    pub(crate) arrived: Condvar,
    pub(crate) settled: Condvar,
    /// The number of things that are not done yet.
    pub(crate) waiting: AtomicI64,
}

/// What the thread has not received yet.
pub(crate) struct New<T> {
    /// The newest first.
    pub(crate) things: List<T>,
    /// How often [`Inbox::settle`] was called, and how many of these calls are answered.
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    /// The age that new things get; the least age of the things that the thread has not received; and the least age of those
    /// that it has. See [`Inbox::mark`].
    pub(crate) age: u64,
    pub(crate) unseen: Option<u64>,
    pub(crate) seen: Option<u64>,
}

impl<T> New<T> {
    pub(crate) const NONE: Self = Self { things: None, asked: 0, answered: 0, age: 0, unseen: None, seen: None };

    fn is_none(&self) -> bool {
        self.things.is_none() && self.asked == self.answered
    }
}

impl<T> Inbox<T> {
    /// The number of things that are not done yet, including one that is being done. A caller that gets 0 sees
    /// all that was done.
    pub(crate) fn waiting(&self) -> i64 {
        self.waiting.load(Acquire)
    }

    /// Hands a thing to the thread. Returns at once. A thing that another one gives up when it is done gets the `age`
    /// of that one.
    pub(crate) fn add(&self, mut node: Box<Node<T>>, age: Option<u64>) {
        self.waiting.fetch_add(1, Relaxed);
        let mut new = self.unseen();
        node.age = age.unwrap_or(new.age);
        new.unseen = least(new.unseen, Some(node.age));
        node.next = new.things.take();
        new.things = Some(node);
        drop(new);
        self.arrived.notify_one();
    }

    /// One round of the thread. Takes what is new: if nothing is kept, it waits until something comes, otherwise for
    /// `pause` at most. Then it looks at everything in the order in which it came, with no lock held. `look` returns
    /// whether a thing, passed with its age, is done. Returns whether anything came or was done.
    pub(crate) fn round(&self, kept: &mut List<T>, pause: Duration, mut look: impl FnMut(&mut T, u64) -> bool) -> bool {
        let (came, asked) = self.receive(kept, pause);
        let (mut rest, mut last) = (kept.take(), kept);
        let (mut done, mut seen) = (false, None);
        while let Some(mut node) = rest {
            rest = node.next.take();
            if look(&mut node.thing, node.age) {
                done = true;
                drop(node);
                self.waiting.fetch_sub(1, Release);
            } else {
                seen = least(seen, Some(node.age));
                last = &mut last.insert(node).next;
            }
        }
        if done || asked.is_some() {
            let mut new = self.unseen();
            new.seen = seen;
            new.answered = asked.unwrap_or(new.answered);
        }
        if asked.is_some() {
            self.settled.notify_all();
        }
        came || done
    }

    /// A mark between the things that were added before and those that are added later.
    pub(crate) fn mark(&self) -> u64 {
        let mut new = self.unseen();
        new.age += 1;
        new.age - 1
    }

    /// Whether everything that was added before a mark is done, and everything that those things gave up in turn.
    pub(crate) fn is_past(&self, mark: u64) -> bool {
        let new = self.unseen();
        least(new.unseen, new.seen).is_none_or(|age| age > mark)
    }

    /// Appends what is new. Returns whether there was anything, and the calls of [`Inbox::settle`] to answer after the
    /// round.
    fn receive(&self, kept: &mut List<T>, pause: Duration) -> (bool, Option<u64>) {
        let mut new = self.unseen();
        if kept.is_some() && new.is_none() {
            new = self.arrived.wait_timeout(new, pause).map_or_else(|error| error.into_inner().0, |(new, _)| new);
        }
        while kept.is_none() && new.is_none() {
            new = self.arrived.wait(new).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut newest, mut oldest) = (new.things.take(), None);
        new.seen = least(new.seen, new.unseen.take());
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

    /// Waits until everything that was added before has been looked at, but no longer than `limit`.
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
