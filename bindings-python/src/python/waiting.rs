//! Calls that wait for somebody within this process.

use std::time::{Duration, Instant};

use devexchange_core::abi::types::DEVX_NOT_READY;
use devexchange_core::error::Result as CoreResult;
use pyo3::prelude::*;

use crate::python::error::{Error, Result, refuse, timed_out};

/// A signal does not end a wait for a condition, so there are looks in between.
const LOOK: Duration = Duration::from_millis(50);

/// Asks `ask`, which waits as long as it is told to, until it gives something else than `DEVX_NOT_READY` or `timeout` seconds
/// are over, which is `TimedOut`; None is for as long as it takes. Other threads may run Python meanwhile, the main thread
/// handles signals.
///
/// `begin` is called before each look: what it gives is asked, and not kept.
pub(crate) fn waiting<A: Send, T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    begin: impl Fn() -> Result<A>,
    ask: impl Fn(A, Duration) -> CoreResult<T> + Sync,
) -> Result<T> {
    // A time that is too far away is as good as none.
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

/// A time to wait, in seconds; None is for as long as it takes, and so is one beyond all.
pub(crate) fn seconds(timeout: Option<f64>) -> Result<Option<Duration>> {
    match timeout {
        None => Ok(None),
        Some(seconds) if seconds >= 0.0 => Ok(Duration::try_from_secs_f64(seconds).ok()),
        Some(seconds) => refuse!(DEVX_INVALID_ARGUMENT, "timeout is {seconds}: not a number of seconds"),
    }
}

/// Does something with a thing of this thread's while other threads may run Python: what is done may wait for one that
/// does.
pub(crate) fn detached<T, R: Send>(py: Python<'_>, thing: T, act: impl FnOnce(T) -> R + Send) -> R {
    struct Sendable<T>(T);
    // SAFETY: what is done detached is done on the same thread.
    unsafe impl<T> Send for Sendable<T> {}
    let thing = Sendable(thing);
    py.detach(|| {
        // All of it, and not only what is in it.
        let thing = thing;
        act(thing.0)
    })
}
