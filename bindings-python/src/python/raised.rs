//! Exceptions that pass through calls which know nothing of Python. A callback written in Python can report its exception
//! only as a status and a text. Here the caller of the surrounding call, on the same thread, gets the exception itself.

use std::cell::Cell;
use std::mem::ManuallyDrop;

use devexchange_core::abi::types::DEVX_CALLBACK;
use devexchange_core::{Error as CoreError, trace};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRecursionError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::error::{Error, Result, exception, in_words, is_error};

thread_local! {
    /// How many calls of [`calling`] this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// The last exception of a callback in the innermost of these calls. It has no destructor: a consumer may ask for a batch
    /// while its thread ends, when values with a destructor are gone. Outside of calls there is nothing to drop.
    static RAISED: Cell<ManuallyDrop<Option<PyErr>>> = const { Cell::new(ManuallyDrop::new(None)) };
}

/// Replaces the last exception, and returns the one before.
fn replace(raised: Option<PyErr>) -> Option<PyErr> {
    ManuallyDrop::into_inner(RAISED.replace(ManuallyDrop::new(raised)))
}

/// Makes a call that may come back to Python on this thread; other threads may run Python meanwhile. If the call fails after
/// a callback raised an exception, the exception is the cause of the error. An exception that ends the program
/// (`KeyboardInterrupt`, `SystemExit`) is raised as it is, and so is a `RecursionError`, which would otherwise become a cause
/// in every call on the way.
pub(crate) fn calling<T: Send>(py: Python<'_>, call: impl FnOnce() -> devexchange_core::Result<T> + Send) -> Result<T> {
    let within = Within::new();
    let done = py.detach(call);
    let raised = replace(None);
    drop(within);
    match (done, raised) {
        (Ok(value), None) => Ok(value),
        // The code that was told of the failure goes on without the result.
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

/// The error for callers that do not know Python: the text of the exception, and its status if it is one of our exceptions
/// and has one. The exception itself is kept for the surrounding call.
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
    // Last, because from here on a signal can raise it again in any code that runs.
    keep(py, &error);
    told
}

/// Keeps the exception of a callback for the surrounding call. If there is one already, the code that was told of it has gone
/// on.
pub(crate) fn keep(py: Python<'_>, raised: &PyErr) {
    if DEPTH.get() == 0 {
        return unheard(py, raised);
    }
    let raised = raised.clone_ref(py);
    let (kept, other) = match replace(None) {
        Some(end) if !is_error(py, &end) => (end, Some(raised)),
        before => (raised, before),
    };
    replace(Some(kept));
    if let Some(other) = other {
        unheard(py, &other);
    }
}

/// Handles an exception of a callback that no Python code gets: only its text remains, except in the trace. But a
/// `KeyboardInterrupt` must not be swallowed: Python's main thread gets another one.
fn unheard(py: Python<'_>, raised: &PyErr) {
    if trace::enabled() {
        trace::say(format_args!("a callback failed:"));
        raised.display(py);
    }
    if raised.is_instance_of::<PyKeyboardInterrupt>(py) {
        // SAFETY: it only notes a signal, and does not even need an attached thread.
        unsafe { ffi::PyErr_SetInterrupt() };
    }
}

/// Runs a program's callback. The callback may call other libraries, whose own callbacks may fail: their exceptions do not
/// concern the caller of the surrounding call.
pub(crate) fn answering<T>(answer: impl FnOnce() -> T) -> T {
    let _within = Within::depth(0);
    answer()
}

/// A scope with its own depth of calls and no exception. Its end restores the depth and exception from before.
struct Within {
    depth: usize,
    raised: Option<PyErr>,
}

impl Within {
    fn new() -> Self {
        Self::depth(DEPTH.get() + 1)
    }

    fn depth(depth: usize) -> Self {
        Self { depth: DEPTH.replace(depth), raised: replace(None) }
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        DEPTH.set(self.depth);
        drop(replace(self.raised.take()));
    }
}
