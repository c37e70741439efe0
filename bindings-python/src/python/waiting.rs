//! Calls that wait for other code in this process.

use std::time::{Duration, Instant};

use devexchange_core::abi::types::DEVX_NOT_READY;
use devexchange_core::error::Result as CoreResult;
use pyo3::prelude::*;

use crate::python::error::{Error, Result, refuse, timed_out};

/// How long one wait lasts. A signal does not end a wait for a condition, so signals are checked in between.
const LOOK: Duration = Duration::from_millis(50);

/// Calls `ask`, which waits for the given time, until it returns anything but `DEVX_NOT_READY`. After `timeout` seconds the
/// error is `TimedOut`; `None` waits as long as it takes. Other threads may run Python meanwhile, and the main thread handles
/// signals while it waits.
///
/// `begin` is called before each wait. Its result is passed to `ask` and not kept.
pub(crate) fn waiting<A: Send, T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    begin: impl Fn() -> Result<A>,
    ask: impl Fn(A, Duration) -> CoreResult<T> + Sync,
) -> Result<T> {
    // A time that is too far away counts as no limit.
    let until = seconds(timeout)?.and_then(|time| Instant::now().checked_add(time));
    loop {
        let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()).min(LOOK));
        let asked = begin()?;
        match py.detach(|| ask(asked, left)) {
            Err(error) if error.status() == DEVX_NOT_READY => {
                if left.is_zero() {
                    let seconds = timeout.unwrap_or_default();
                    return Err(timed_out(py, &error.within(format_args!("timeout is {seconds}: "))));
                }
            }
            answer => return answer.map_err(Error::Refused),
        }
        py.check_signals()?;
    }
}

/// Reads a time to wait, in seconds. `None` is as long as it takes, and so is a time that is too long to be represented.
pub(crate) fn seconds(timeout: Option<f64>) -> Result<Option<Duration>> {
    match timeout {
        None => Ok(None),
        Some(seconds) if seconds >= 0.0 => Ok(Duration::try_from_secs_f64(seconds).ok()),
        Some(seconds) => refuse!(DEVX_INVALID_ARGUMENT, "timeout is {seconds}: not a number of seconds"),
    }
}

/// Calls `act` with a thing of this thread, detached from the interpreter: `act` may wait for a thread that runs Python.
pub(crate) fn detached<T, R: Send>(py: Python<'_>, thing: T, act: impl FnOnce(T) -> R + Send) -> R {
    struct Sendable<T>(T);
    // SAFETY: the detached closure runs on the same thread.
    unsafe impl<T> Send for Sendable<T> {}
    let thing = Sendable(thing);
    py.detach(|| {
        // Capture the whole wrapper, not only the field in it.
        let thing = thing;
        act(thing.0)
    })
}
