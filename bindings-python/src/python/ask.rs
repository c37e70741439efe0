//! Questions to objects that make no `PyErr`, for the quick calls.

use core::ffi::c_long;
use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::call::vectorcall_method;

/// Whether an exception is raised, which stays raised.
#[inline]
pub(crate) fn is_raised(_py: Python<'_>) -> bool {
    // SAFETY: attached.
    unsafe { !ffi::PyErr_Occurred().is_null() }
}

/// Whether an exception was raised. An error is forgotten; an exception that ends the program (`KeyboardInterrupt`) stays
/// raised.
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
    // SAFETY: attached, and an exception is raised.
    if unsafe { ffi::PyErr_ExceptionMatches(error) } != 0 {
        // SAFETY: attached.
        unsafe { ffi::PyErr_Clear() };
    }
}

/// An attribute, without a `PyErr`. `None` if there is none or an exception was raised, which [`has_raised`] has then
/// handled.
pub(crate) fn attribute<'py>(obj: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: attached, and both are objects.
    let value = unsafe { ffi::PyObject_GetAttr(obj.as_ptr(), name.as_ptr()) };
    given(obj.py(), value)
}

/// The result of a method without arguments, without a `PyErr`. `None` if there is no such method or an exception was raised,
/// which [`has_raised`] has then handled.
pub(crate) fn answer<'py>(obj: &Bound<'py, PyAny>, method: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the object is the one argument.
    given(obj.py(), unsafe { vectorcall_method(method, &[obj.as_ptr()], null_mut()) })
}

/// Wraps a new reference. `None` for NULL; [`has_raised`] then handles the exception.
pub(crate) fn given(py: Python<'_>, value: *mut ffi::PyObject) -> Option<Bound<'_, PyAny>> {
    if value.is_null() {
        has_raised(py);
        return None;
    }
    // SAFETY: a new reference.
    Some(unsafe { Bound::from_owned_ptr(py, value) })
}

/// The numbers of a pair, without a `PyErr`. `None` if the object is not a tuple of two integers that fit C's `long`.
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
        // A number that is too large gives -1 with an exception.
        (value != -1 || !has_raised(object.py())).then_some(value)
    };
    Some([number(0)?, number(1)?])
}
