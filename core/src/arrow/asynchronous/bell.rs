//! A state that several threads use, and notification of those who wait for a change.

use std::cell::OnceCell;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::{Wake, shielded};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// How long to wait. The clock is first read when there is something to wait for.
pub(super) struct Deadline {
    timeout: Option<Duration>,
    until: OnceCell<Option<Instant>>,
}

impl Deadline {
    /// A deadline after `timeout` from the first question on; never for `None`.
    pub(super) fn after(timeout: Option<Duration>) -> Self {
        Self { timeout, until: OnceCell::new() }
    }

    pub(super) fn never() -> Self {
        Self::after(None)
    }

    /// The time that is left.
    fn left(&self) -> Option<Duration> {
        let timeout = self.timeout?;
        if timeout.is_zero() {
            return Some(timeout);
        }
        // A time too far away to express is the same as no limit.
        let until = self.until.get_or_init(|| Instant::now().checked_add(timeout));
        until.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

/// A state under a lock, which is never held while anything foreign is called.
pub(super) struct Belled<M> {
    inner: Mutex<Inner<M>>,
    changed: Condvar,
}

struct Inner<M> {
    state: M,
    bells: Bells,
}

/// Whom to tell when the state has changed.
pub(super) struct Bells {
    wakers: Wakers,
    /// The last number that an awaiting task received.
    last: u64,
    wake: Option<Wake>,
    /// Number of threads that wait within this library. If there are none, the system need not be told.
    waiting: usize,
    /// Whether they have to look again when the lock is released.
    nudged: bool,
}

/// The wakers of tasks, each under the number of its task. Most often there is only one, for which no memory is needed.
#[derive(Default)]
struct Wakers {
    first: Option<(u64, Waker)>,
    others: Vec<(u64, Waker)>,
}

/// The number of all callers that poll by hand, which share one waker.
const POLLS: u64 = 0;

impl Wakers {
    fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    fn find(&mut self, number: u64) -> Option<&mut Waker> {
        let mut all = self.first.iter_mut().chain(&mut self.others);
        all.find_map(|(of, waker)| (*of == number).then_some(waker))
    }

    /// Puts a waker in the place of the last one with this number, which is returned.
    ///
    /// # Errors
    /// The waker itself, if there is no memory for it.
    fn put(&mut self, number: u64, waker: Waker) -> Result<Option<Waker>, Waker> {
        if let Some(place) = self.find(number) {
            return Ok(Some(std::mem::replace(place, waker)));
        }
        if self.first.is_none() {
            self.first = Some((number, waker));
        } else if self.others.try_reserve(1).is_ok() {
            self.others.push((number, waker));
        } else {
            return Err(waker);
        }
        Ok(None)
    }

    fn remove(&mut self, number: u64) -> Option<Waker> {
        let is_of = |(of, _): &mut (u64, Waker)| *of == number;
        let found = self.first.take_if(is_of).or_else(|| {
            let at = self.others.iter_mut().position(is_of)?;
            Some(self.others.swap_remove(at))
        });
        found.map(|(_, waker)| waker)
    }
}

/// Whom to tell when the lock is released. It depends on nothing else, so the state may be gone by then.
#[must_use]
pub(super) struct Ring {
    wakers: Wakers,
    wake: Option<Wake>,
}

impl Ring {
    /// Calls the user's code. A panic ends there, so that the others are told all the same.
    pub(super) fn tell(self) {
        let Wakers { first, others } = self.wakers;
        for (_, waker) in first.into_iter().chain(others) {
            shielded((), || waker.wake());
        }
        if let Some(wake) = self.wake {
            shielded((), || wake.call());
        }
    }
}

impl Bells {
    /// Lets the threads that wait within this library look again. A thread that waits looked at the state under this
    /// lock: either before the change, and then it is counted, or after it.
    #[inline]
    pub(super) fn nudge(&mut self) {
        self.nudged = self.waiting > 0;
    }

    /// Tells everybody that the state has changed: marks the waiting threads, and returns the wakers and the callback
    /// to call; `None` if there are none.
    #[inline]
    pub(super) fn ring(&mut self) -> Option<Ring> {
        self.nudge();
        if self.wakers.is_empty() && self.wake.is_none() {
            return None;
        }
        Some(Ring { wakers: std::mem::take(&mut self.wakers), wake: self.wake.clone() })
    }
}

/// The lock, held. It has to be released with [`Turn::end`], which notifies the threads that wait.
#[must_use]
pub(super) struct Turn<'a, M> {
    inner: MutexGuard<'a, Inner<M>>,
    belled: &'a Belled<M>,
}

impl<M> Turn<'_, M> {
    #[inline]
    pub(super) fn parts(&mut self) -> (&mut M, &mut Bells) {
        let Inner { state, bells } = &mut *self.inner;
        (state, bells)
    }

    /// Runs `act` without the lock, then takes the lock again.
    #[inline]
    pub(super) fn aside(self, act: impl FnOnce()) -> Self {
        let belled = self.belled;
        self.end();
        act();
        belled.begin()
    }

    #[inline]
    pub(super) fn end(self) {
        let Self { mut inner, belled } = self;
        let nudged = std::mem::take(&mut inner.bells.nudged);
        drop(inner);
        if nudged {
            belled.changed.notify_all();
        }
    }
}

impl<M> Belled<M> {
    pub(super) fn new(state: M, wake: Option<Wake>) -> Self {
        let bells = Bells { wakers: Wakers::default(), last: 0, wake, waiting: 0, nudged: false };
        Self { inner: Mutex::new(Inner { state, bells }), changed: Condvar::new() }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one step of the state.
    #[inline]
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut M) -> R) -> R {
        step(&mut self.lock().state)
    }

    /// Begins steps that others may have to be told of. They end with [`Turn::end`].
    #[inline]
    pub(super) fn begin(&self) -> Turn<'_, M> {
        Turn { inner: self.lock(), belled: self }
    }

    /// Takes one step that others may have to be told of.
    #[inline]
    pub(super) fn turn<R>(&self, step: impl FnOnce(&mut M, &mut Bells) -> R) -> R {
        let mut turn = self.begin();
        let (state, bells) = turn.parts();
        let answer = step(state, bells);
        turn.end();
        answer
    }

    /// Takes one step. If it has no answer, the waker of `cx` is called when there may be one. All callers of this
    /// share one waker, that of the latest call.
    pub(super) fn poll<R>(&self, cx: &mut Context<'_>, step: impl FnOnce(&mut M) -> Poll<R>) -> Poll<R> {
        self.poll_as(&mut Some(POLLS), cx, step)
    }

    /// A poll with its own waker, for a future: any number of tasks may await.
    pub(super) fn awaiting(&self) -> Awaiting<'_, M> {
        Awaiting { belled: self, number: None }
    }

    /// Like [`Belled::poll`], but with a waker under its own number, which is assigned if there is none yet.
    fn poll_as<R>(
        &self,
        number: &mut Option<u64>,
        cx: &mut Context<'_>,
        step: impl FnOnce(&mut M) -> Poll<R>,
    ) -> Poll<R> {
        let mut fresh = None;
        loop {
            let mut inner = self.lock();
            let known = number.and_then(|number| inner.bells.wakers.find(number));
            let is_known = known.is_some_and(|waker| waker.will_wake(cx.waker()));
            // Cloning a waker, or ending a task with it, may use this state again, so it must not happen with the lock
            // held.
            if !is_known && fresh.is_none() {
                drop(inner);
                fresh = Some(cx.waker().clone());
                continue;
            }
            let answer = step(&mut inner.state);
            let Bells { wakers, last, .. } = &mut inner.bells;
            let put = fresh.take_if(|_| answer.is_pending() && !is_known).map(|waker| {
                let number = *number.get_or_insert_with(|| {
                    *last += 1;
                    *last
                });
                wakers.put(number, waker)
            });
            drop(inner);
            // Without memory for its waker, the task has to look again at once.
            if let Some(Err(waker)) = put {
                waker.wake();
            }
            return answer;
        }
    }

    /// Repeats the step until it has an answer, or until the deadline.
    pub(super) fn wait<R>(&self, deadline: &Deadline, mut step: impl FnMut(&mut M) -> Poll<R>) -> Poll<R> {
        let mut inner = self.lock();
        loop {
            if let Poll::Ready(answer) = step(&mut inner.state) {
                return Poll::Ready(answer);
            }
            let left = deadline.left();
            if left == Some(Duration::ZERO) {
                return Poll::Pending;
            }
            inner.bells.waiting += 1;
            inner = match left {
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(left) => self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            inner.bells.waiting -= 1;
        }
    }

    /// Gives up the wake callback, because nothing will change any more.
    pub(super) fn silence(&self) {
        let wake = self.lock().bells.wake.take();
        drop(wake);
    }
}

/// The poll of a future. It has its own waker, which is removed when the future is dropped.
pub(super) struct Awaiting<'a, M> {
    belled: &'a Belled<M>,
    number: Option<u64>,
}

impl<M> Awaiting<'_, M> {
    /// Like [`Belled::poll`], but with its own waker.
    pub(super) fn poll<R>(&mut self, cx: &mut Context<'_>, step: impl FnOnce(&mut M) -> Poll<R>) -> Poll<R> {
        self.belled.poll_as(&mut self.number, cx, step)
    }
}

impl<M> Drop for Awaiting<'_, M> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let waker = self.belled.lock().bells.wakers.remove(number);
        // Dropped without the lock.
        drop(waker);
    }
}
