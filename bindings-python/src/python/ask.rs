//! What objects are asked without a `PyErr`, for what must be quick.

use core::ffi::c_long;
use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::call::vectorcall_method;

/// Whether something is raised, which it stays.
#[inline]
pub(crate) fn is_raised(_py: Python<'_>) -> bool {
    // SAFETY: attached.
    unsafe { !ffi::PyErr_Occurred().is_null() }
}

/// Whether something was raised. An error is forgotten; what ends the program (`KeyboardInterrupt`) stays raised.
#[inline]
pub(crate) fn has_raised(py: Python<'_>) -> bool {
    let raised = is_raised(py);
    if raised {
        forget_error(py);
    }
    raised
}

#[cold]
fn forget_error(_py: Python<'_>) {
    // SAFETY: never written.
    let error = unsafe { ffi::PyExc_Exception };
    // SAFETY: attached, and something is raised.
    if unsafe { ffi::PyErr_ExceptionMatches(error) } != 0 {
        // SAFETY: attached.
        unsafe { ffi::PyErr_Clear() };
    }
}

/// An attribute, without a `PyErr`; none if there is none, or [`has_raised`].
pub(crate) fn attribute<'py>(obj: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: attached, and both are objects.
    let value = unsafe { ffi::PyObject_GetAttr(obj.as_ptr(), name.as_ptr()) };
    given(obj.py(), value)
}

/// What a method gives that takes no arguments, without a `PyErr`; none if there is none, or [`has_raised`].
pub(crate) fn answer<'py>(obj: &Bound<'py, PyAny>, method: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the object is the one argument.
    given(obj.py(), unsafe { vectorcall_method(method, &[obj.as_ptr()], null_mut()) })
}

/// A new reference; none if it is NULL, which [`has_raised`] says.
pub(crate) fn given(py: Python<'_>, value: *mut ffi::PyObject) -> Option<Bound<'_, PyAny>> {
    if value.is_null() {
        has_raised(py);
        return None;
    }
    // SAFETY: a new reference.
    Some(unsafe { Bound::from_owned_ptr(py, value) })
}

/// The numbers of a pair, without a `PyErr`. None if it is no tuple of two integers, or one of them is too large for C.
pub(crate) fn pair(object: &Bound<'_, PyAny>) -> Option<[c_long; 2]> {
    // SAFETY: attached, and an object.
    let is_tuple = unsafe { ffi::PyTuple_Check(object.as_ptr()) } != 0;
    // SAFETY: as above, and a tuple.
    if !is_tuple || unsafe { ffi::PyTuple_Size(object.as_ptr()) } != 2 {
        return None;
    }
    let number = |at| {
        // SAFETY: one of two items, which the tuple keeps.
        let item = unsafe { ffi::PyTuple_GetItem(object.as_ptr(), at) };
        // SAFETY: an object.
        if unsafe { ffi::PyLong_Check(item) } == 0 {
            return None;
        }
        // SAFETY: an integer.
        let value = unsafe { ffi::PyLong_AsLong(item) };
        // What is too large is -1, with an exception.
        (value != -1 || !has_raised(object.py())).then_some(value)
    };
    Some([number(0)?, number(1)?])
}
