//! Exceptions that propagate while something else is done.

use pyo3::ffi;
use pyo3::prelude::*;

/// A propagating exception, put aside while foreign code runs that must not see or replace it.
pub(crate) struct Aside<'py> {
    exception: [*mut ffi::PyObject; 3],
    _py: Python<'py>,
}

impl<'py> Aside<'py> {
    pub(crate) fn new(py: Python<'py>) -> Self {
        let [mut kind, mut value, mut traceback] = [std::ptr::null_mut(); 3];
        // SAFETY: attached, and there is room for all three.
        unsafe { ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback) };
        Self { exception: [kind, value, traceback], _py: py }
    }

    /// Like [`Aside::new`], but only if there is an exception: for frequent calls, where this check costs less.
    #[inline]
    pub(crate) fn if_raised(py: Python<'py>) -> Option<Self> {
        // SAFETY: attached.
        let raised = unsafe { !ffi::PyErr_Occurred().is_null() };
        raised.then(|| Self::new(py))
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        let [kind, value, traceback] = self.exception;
        // SAFETY: attached; the references are those that were fetched, and are given back once.
        unsafe { ffi::PyErr_Restore(kind, value, traceback) }
    }
}

/// Runs `end`, the last act of a Python object. The object may end because of an exception that still propagates, which is
/// put aside. Without an interpreter to attach to, `end` is only dropped.
pub(crate) fn quietly(end: impl FnOnce(Python<'_>)) {
    Python::try_attach(|py| {
        let _aside = Aside::new(py);
        end(py);
    });
}
