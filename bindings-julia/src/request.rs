//! Questions that a thread which is not Julia's asks, and that a Julia task answers.

use core::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use devexchange_core::abi::types::{DEVX_CLOSED, DEVX_NOT_READY, DevxBatch, DevxError, DevxStatus as Status};
use devexchange_core::error::{Error, Result};

/// The requests that nobody has answered yet.
pub(crate) struct Desk(Mutex<Queue>);

struct Queue {
    open: bool,
    waiting: Vec<Arc<Request>>,
}

/// One question: for the next batch of the source with this token.
pub(crate) struct Request {
    token: u64,
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    Asked,
    /// A task is working on it.
    Taken,
    Answered(Box<Answer>),
    /// Nobody waits for the answer any more, or somebody has it.
    Over,
}

/// What the source of a stream returned and wrote.
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) batch: *mut DevxBatch,
    pub(crate) error: DevxError,
}

// SAFETY: the batch is a reference that whoever has the answer may use on any thread.
unsafe impl Send for Answer {}

impl Desk {
    /// A desk where nobody answers.
    pub(crate) const fn closed() -> Self {
        Self(Mutex::new(Queue { open: false, waiting: Vec::new() }))
    }

    pub(crate) fn open(&self) {
        lock(&self.0).open = true;
    }

    /// Sends everybody away who waits, and who comes later.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut queue = lock(&self.0);
            queue.open = false;
            std::mem::take(&mut queue.waiting)
        };
        waiting.iter().for_each(|request| request.end());
    }

    /// Asks for the next batch of a source and waits for the answer: as long as it takes once a task works on it, until
    /// then only for the time that is given, if one is. `send` makes a Julia task aware of the request.
    ///
    /// # Errors
    /// `DEVX_CLOSED` if nobody answers any more, `DEVX_NOT_READY` if nobody took the request in time.
    pub(crate) fn ask(&self, token: u64, patience: Option<Duration>, send: impl FnOnce(*mut c_void)) -> Result<Answer> {
        let state = Mutex::new(State::Asked);
        let request = Arc::new(Request { token, state, changed: Condvar::new() });
        {
            let mut queue = lock(&self.0);
            if !queue.open {
                return closed();
            }
            queue.waiting.push(Arc::clone(&request));
        }
        send(Arc::into_raw(Arc::clone(&request)).cast_mut().cast());
        let answer = request.wait(patience);
        lock(&self.0).waiting.retain(|other| !Arc::ptr_eq(other, &request));
        answer
    }
}

impl Request {
    fn wait(&self, patience: Option<Duration>) -> Result<Answer> {
        // A time that is too far away is as good as none.
        let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        let mut state = lock(&self.state);
        loop {
            let left = match (&*state, deadline) {
                (State::Answered(_), _) => {
                    return match std::mem::replace(&mut *state, State::Over) {
                        State::Answered(answer) => Ok(*answer),
                        _ => closed(),
                    };
                }
                (State::Over, _) => return closed(),
                (State::Asked, Some(deadline)) => Some(deadline.saturating_duration_since(Instant::now())),
                (State::Asked, None) | (State::Taken, _) => None,
            };
            state = match left {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => {
                    *state = State::Over;
                    return Err(not_taken(patience.unwrap_or_default()));
                }
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    fn end(&self) {
        *lock(&self.state) = State::Over;
        self.changed.notify_one();
    }

    /// Takes a request on: the token of the source that is asked, or `None` if nobody waits for it any more.
    ///
    /// # Safety
    /// `address` is one that [`Desk::ask`] sent, and was not taken before.
    pub(crate) unsafe fn take(address: *mut c_void) -> Option<u64> {
        // SAFETY: `ask` made it from a reference, which it left to the receiver.
        let request = unsafe { Arc::from_raw(address.cast::<Self>()) };
        let mut state = lock(&request.state);
        if !matches!(*state, State::Asked) {
            return None;
        }
        *state = State::Taken;
        drop(state);
        let token = request.token;
        // The reference stays the receiver's until it answers.
        let _ = Arc::into_raw(request);
        Some(token)
    }

    /// Answers a request.
    ///
    /// # Errors
    /// `DEVX_CLOSED` if nobody waits for the answer any more: a batch in it is still the caller's.
    ///
    /// # Safety
    /// `address` is one that [`Request::take`] took on, and was not answered before.
    pub(crate) unsafe fn answer(address: *mut c_void, answer: Answer) -> Result<()> {
        // SAFETY: the reference that `take` left to the receiver.
        let request = unsafe { Arc::from_raw(address.cast::<Self>()) };
        let mut state = lock(&request.state);
        if !matches!(*state, State::Taken) {
            return closed();
        }
        *state = State::Answered(Box::new(answer));
        drop(state);
        request.changed.notify_one();
        Ok(())
    }
}

fn not_taken(patience: Duration) -> Error {
    let seconds = patience.as_secs_f64();
    let reason = "all of Julia's threads are blocked in foreign calls, or compute without a pause";
    Error::new(DEVX_NOT_READY, format!("no Julia task took the call up within {seconds} s: {reason}"))
}

fn closed<T>() -> Result<T> {
    Err(Error::new(DEVX_CLOSED, "Julia is shutting down"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
