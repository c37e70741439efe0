//! Exceptions that pass through calls which know nothing of Python. A callback that is written in Python can say only as a
//! status and a text what it raised; who made the call that it is part of, on the same thread, gets the exception here.

use std::cell::Cell;

use devexchange_core::abi::types::DEVX_CALLBACK;
use devexchange_core::{Error as CoreError, trace};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRecursionError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::error::{Error, Result, exception, in_words, is_error};

thread_local! {
    /// How many calls of [`calling`] this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// What a callback raised last in the innermost of them.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Makes a call that may come back to Python on this thread; meanwhile other threads may run Python. If it fails after an
/// exception, that is the cause of the error. What is no error of the program's but its end (`KeyboardInterrupt`,
/// `SystemExit`) is raised as it is, and so is a `RecursionError`: as a cause it would be that of each call on the way.
pub(crate) fn calling<T: Send>(py: Python<'_>, call: impl FnOnce() -> devexchange_core::Result<T> + Send) -> Result<T> {
    let within = Within::new();
    let done = py.detach(call);
    let raised = RAISED.take();
    drop(within);
    match (done, raised) {
        (Ok(value), None) => Ok(value),
        // Who was told of it goes on without what it asked for.
        (Ok(value), Some(raised)) => {
            unheard(py, &raised);
            Ok(value)
        }
        (Err(error), None) => Err(error.into()),
        (Err(_), Some(raised)) if !is_error(py, &raised) || raised.is_instance_of::<PyRecursionError>(py) => {
            Err(Error::Python(raised))
        }
        (Err(error), Some(raised)) => {
            let error = exception(py, &error);
            error.set_cause(py, Some(raised));
            Err(Error::Python(error))
        }
    }
}

/// For those who do not know Python: the text of what was raised, and its status if it is one of ours that has one. The
/// exception itself is kept for who made the call.
pub(crate) fn to_core(py: Python<'_>, error: Error) -> CoreError {
    let mut error = match error {
        Error::Refused(error) => return error,
        Error::Python(error) => error,
    };
    let told = in_words(py, &error).or_else(|end| {
        error = end;
        in_words(py, &error)
    });
    let told = told.unwrap_or_else(|_| CoreError::new(DEVX_CALLBACK, "an exception without a text"));
    // At last: from here on it may be raised again in whatever runs.
    keep(py, &error);
    told
}

/// Keeps what a callback raised for who made the call. If there is something already, whoever was told of that has gone on.
pub(crate) fn keep(py: Python<'_>, raised: &PyErr) {
    if DEPTH.get() == 0 {
        return unheard(py, raised);
    }
    let raised = raised.clone_ref(py);
    let (kept, other) = match RAISED.take() {
        Some(end) if !is_error(py, &end) => (end, Some(raised)),
        before => (raised, before),
    };
    RAISED.set(Some(kept));
    if let Some(other) = other {
        unheard(py, &other);
    }
}

/// Nobody of Python's is told what a callback raised: its text is all that is left of it, except in the trace. But a
/// `KeyboardInterrupt` is not for others to swallow: Python's main thread gets another one.
fn unheard(py: Python<'_>, raised: &PyErr) {
    if trace::enabled() {
        trace::say(format_args!("a callback failed:"));
        raised.display(py);
    }
    if raised.is_instance_of::<PyKeyboardInterrupt>(py) {
        // SAFETY: attached, though it need not be; it notes a signal.
        unsafe { ffi::PyErr_SetInterrupt() };
    }
}

/// Runs what a program has for a callback. It may ask other libraries for something, whose callbacks fail: that is between them,
/// and no matter of who made the call that this is part of.
pub(crate) fn answering<T>(answer: impl FnOnce() -> T) -> T {
    let _within = Within::depth(0);
    answer()
}

/// How many calls this thread is in as seen from here, and what there was before.
struct Within {
    depth: usize,
    raised: Option<PyErr>,
}

impl Within {
    fn new() -> Self {
        Self::depth(DEPTH.get() + 1)
    }

    fn depth(depth: usize) -> Self {
        Self { depth: DEPTH.replace(depth), raised: RAISED.take() }
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        DEPTH.set(self.depth);
        drop(RAISED.replace(self.raised.take()));
    }
}
