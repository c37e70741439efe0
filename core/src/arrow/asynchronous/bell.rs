//! A state that several threads look at, and who is told when it has changed.

use std::cell::OnceCell;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, MutexGuard};

type Wake = Arc<dyn Fn() + Send + Sync>;

/// How long to wait. The clock is not asked before there is something to wait for.
pub(super) struct Deadline {
    timeout: Option<Duration>,
    until: OnceCell<Option<Instant>>,
}

impl Deadline {
    /// After so much time, or never.
    pub(super) fn after(timeout: Option<Duration>) -> Self {
        Self { timeout, until: OnceCell::new() }
    }

    pub(super) fn never() -> Self {
        Self::after(None)
    }

    /// What is left of the time, from the first question on.
    fn left(&self) -> Option<Duration> {
        let timeout = self.timeout?;
        if timeout.is_zero() {
            return Some(timeout);
        }
        // A time that is too far away is waited for as if there was none.
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
    waker: Option<Waker>,
    wake: Option<Wake>,
    /// Threads that wait within this library: where there are none, the system need not be told.
    waiting: usize,
}

impl<M> Belled<M> {
    pub(super) fn new(state: M, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            inner: Mutex::new(Inner { state, waker: None, wake: Some(Arc::new(wake)), waiting: 0 }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step of the state.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut M) -> R) -> R {
        step(&mut self.lock().state)
    }

    /// As [`Belled::with`], of a step for which threads may wait that do so within this library: lets them look again.
    pub(super) fn with_nudge<R>(&self, step: impl FnOnce(&mut M) -> R) -> R {
        let (answer, anybody) = {
            let mut inner = self.lock();
            (step(&mut inner.state), inner.waiting > 0)
        };
        // Who waits looked at the state under the same lock: either before it changed, and is counted, or after.
        if anybody {
            self.changed.notify_all();
        }
        answer
    }

    /// One step, and if it has no answer, the waker is called when it may have one.
    pub(super) fn poll<R>(&self, cx: &mut Context<'_>, step: impl FnOnce(&mut M) -> Poll<R>) -> Poll<R> {
        let mut inner = self.lock();
        let answer = step(&mut inner.state);
        if answer.is_pending() && !inner.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            inner.waker = Some(cx.waker().clone());
        }
        answer
    }

    /// Takes the step again until it has an answer, or until the deadline.
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
            inner.waiting += 1;
            inner = match left {
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(left) => self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            inner.waiting -= 1;
        }
    }

    /// Lets the threads look again that wait within this library.
    pub(super) fn nudge(&self) {
        self.with_nudge(|_| ());
    }

    /// Tells everybody that the state has changed.
    pub(super) fn ring(&self) {
        let (waker, wake, anybody) = {
            let mut inner = self.lock();
            (inner.waker.take(), inner.wake.clone(), inner.waiting > 0)
        };
        if anybody {
            self.changed.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Gives the wake callback up; nothing will change any more.
    pub(super) fn silence(&self) {
        let wake = self.lock().wake.take();
        drop(wake);
    }
}
