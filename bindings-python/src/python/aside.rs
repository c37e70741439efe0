//! Exceptions that are on their way while something else is done.

use pyo3::ffi;
use pyo3::prelude::*;

/// An exception that is on its way, put aside while foreign code runs that must not see or replace it.
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

    /// The same if there is an exception, for what is done so often that a look costs less.
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
        // SAFETY: attached; the references are those that were taken, and are given back once.
        unsafe { ffi::PyErr_Restore(kind, value, traceback) }
    }
}

/// Gives up what an object of Python's has at its end: an object may end because of an exception, which is still on its
/// way then. Without an interpreter to attach to there is none, and `end` is only dropped.
pub(crate) fn quietly(end: impl FnOnce(Python<'_>)) {
    Python::try_attach(|py| {
        let _aside = Aside::new(py);
        end(py);
    });
}
