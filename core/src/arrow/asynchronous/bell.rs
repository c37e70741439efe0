//! A state that several threads look at, and who is told when it has changed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

type Wake = Arc<dyn Fn() + Send + Sync>;

/// A state under a lock, which is never held while anything foreign is called.
pub(super) struct Belled<M> {
    inner: Mutex<Inner<M>>,
    changed: Condvar,
}

struct Inner<M> {
    state: M,
    waker: Option<Waker>,
    wake: Option<Wake>,
}

impl<M> Belled<M> {
    pub(super) fn new(state: M, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { inner: Mutex::new(Inner { state, waker: None, wake: Some(Arc::new(wake)) }), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step of the state.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut M) -> R) -> R {
        step(&mut self.lock().state)
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
    pub(super) fn wait<R>(&self, deadline: Option<Instant>, mut step: impl FnMut(&mut M) -> Poll<R>) -> Poll<R> {
        let mut inner = self.lock();
        loop {
            if let Poll::Ready(answer) = step(&mut inner.state) {
                return Poll::Ready(answer);
            }
            inner = match deadline {
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                        return Poll::Pending;
                    };
                    self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Lets the threads look again that wait within this library.
    pub(super) fn nudge(&self) {
        self.changed.notify_all();
    }

    /// Tells everybody that the state has changed.
    pub(super) fn ring(&self) {
        self.nudge();
        let (waker, wake) = {
            let mut inner = self.lock();
            (inner.waker.take(), inner.wake.clone())
        };
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
