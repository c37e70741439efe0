//! Requests from threads that are not Julia's, which a Julia task answers.

use core::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use devexchange_core::abi::types::{DEVX_CLOSED, DEVX_NOT_READY};
use devexchange_core::error::{Error, Result};

use crate::call::Call;

/// The requests that have no answer yet.
pub(crate) struct Desk(Mutex<Queue>);

struct Queue {
    open: bool,
    waiting: Vec<Arc<Request>>,
}

/// One call.
pub(crate) struct Request {
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    Asked(Box<Call>),
    /// A task is working on it.
    Taken,
    Answered(Box<Call>),
    /// Nobody waits for the answer any more, or it was collected.
    Over,
}

impl Desk {
    /// A desk that refuses all requests.
    pub(crate) const fn closed() -> Self {
        Self(Mutex::new(Queue { open: false, waiting: Vec::new() }))
    }

    pub(crate) fn open(&self) {
        lock(&self.0).open = true;
    }

    /// Ends all requests that wait, and refuses later ones.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut queue = lock(&self.0);
            queue.open = false;
            std::mem::take(&mut queue.waiting)
        };
        waiting.iter().for_each(|request| request.end());
    }

    /// Passes a call on and waits for the answer. Until a task takes the request, it waits for at most `patience`, if there is
    /// one; from then on as long as it takes. `send` tells a Julia task of the request.
    ///
    /// # Errors
    /// `DEVX_CLOSED` if nobody answers any more, `DEVX_NOT_READY` if no task took the request in time.
    pub(crate) fn ask(&self, call: Call, patience: Option<Duration>, send: impl FnOnce(*mut c_void)) -> Result<Call> {
        let request = Arc::new(Request { state: Mutex::new(State::Asked(Box::new(call))), changed: Condvar::new() });
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
    fn wait(&self, patience: Option<Duration>) -> Result<Call> {
        // A deadline that is too far away to express is the same as none.
        let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        let mut state = lock(&self.state);
        loop {
            let left = match (&*state, deadline) {
                (State::Answered(..), _) => {
                    return match std::mem::replace(&mut *state, State::Over) {
                        State::Answered(call) => Ok(*call),
                        _ => closed(),
                    };
                }
                (State::Over, _) => return closed(),
                (State::Asked(_), Some(deadline)) => Some(deadline.saturating_duration_since(Instant::now())),
                (State::Asked(_), None) | (State::Taken, _) => None,
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
        let mut state = lock(&self.state);
        // An existing answer is left to the thread that waits: nobody else would give back what is in it.
        if !matches!(*state, State::Answered(..)) {
            *state = State::Over;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Takes a request and returns its call; `None` if nobody waits for the answer any more.
    ///
    /// # Safety
    /// [`Desk::ask`] sent `address`, and it was not taken before.
    pub(crate) unsafe fn take(address: *mut c_void) -> Option<Call> {
        // SAFETY: `ask` made it from a reference, which it left to the receiver.
        let request = unsafe { Arc::from_raw(address.cast::<Self>()) };
        let call = {
            let mut state = lock(&request.state);
            let State::Asked(call) = &*state else { return None };
            let call = **call;
            *state = State::Taken;
            call
        };
        // The receiver keeps the reference until it answers.
        let _ = Arc::into_raw(request);
        Some(call)
    }

    /// Answers a request.
    ///
    /// # Errors
    /// `DEVX_CLOSED` if nobody waits for the answer any more; its contents then still belong to the caller.
    ///
    /// # Safety
    /// [`Request::take`] took `address`, and it was not answered before.
    pub(crate) unsafe fn answer(address: *mut c_void, call: Call) -> Result<()> {
        // SAFETY: the reference that `take` left to the receiver.
        let request = unsafe { Arc::from_raw(address.cast::<Self>()) };
        let mut state = lock(&request.state);
        if !matches!(*state, State::Taken) {
            return closed();
        }
        *state = State::Answered(Box::new(call));
        drop(state);
        request.changed.notify_one();
        Ok(())
    }
}

fn not_taken(patience: Duration) -> Error {
    let seconds = patience.as_secs_f64();
    let reason = "all of Julia's threads are blocked in foreign calls, or compute without a pause";
    Error::new(DEVX_NOT_READY, format_args!("no Julia task took the call up within {seconds} s: {reason}"))
}

fn closed<T>() -> Result<T> {
    Err(Error::new(DEVX_CLOSED, "Julia is shutting down"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::NEXT;
    use devexchange_core::abi::types::{DEVX_CALLBACK, DEVX_OK};

    fn request(state: State) -> Request {
        Request { state: Mutex::new(state), changed: Condvar::new() }
    }

    #[test]
    fn an_answer_that_is_there_is_not_lost_at_the_end() {
        let answered = request(State::Answered(Box::new(Call::of(NEXT))));
        answered.end();
        assert_eq!(answered.wait(None).map(|call| call.error.status).ok(), Some(DEVX_OK));
        let taken = request(State::Taken);
        taken.end();
        assert_eq!(taken.wait(None).map(|_| ()).map_err(|refused| refused.status()), Err(DEVX_CLOSED));
    }

    #[test]
    fn a_request_that_was_taken_waits_as_long_as_it_takes() {
        let desk = Desk::closed();
        desk.open();
        std::thread::scope(|scope| {
            let answered = desk.ask(Call::on(NEXT, 3).to(7), Some(Duration::ZERO), |request| {
                // SAFETY: just sent, and taken once.
                let mut call = unsafe { Request::take(request) }.expect("somebody waits");
                assert_eq!((call.token, call.error.status), (7, DEVX_CALLBACK));
                call.error.status = DEVX_OK;
                let address = request.expose_provenance();
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(20));
                    // SAFETY: taken above, and answered once.
                    let told = unsafe { Request::answer(std::ptr::with_exposed_provenance_mut(address), call) };
                    assert!(told.is_ok());
                });
            });
            assert_eq!(answered.map(|call| (call.error.status, call.request.device_id)).ok(), Some((DEVX_OK, 3)));
        });
        // Nothing is kept of it.
        assert!(lock(&desk.0).waiting.is_empty());
    }
}
