//! Objects of Python's own types, for the values of columns: there can be many of them, and they can be large. PyO3's
//! constructors panic if Python has no memory for them; these raise its `MemoryError`.

use pyo3::ffi::{self, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use super::error::Result;

/// A number that becomes an int or a float.
pub(crate) trait Number: Copy {
    /// The object, or `None` with an exception.
    fn new_object(self, py: Python<'_>) -> Option<Bound<'_, PyAny>>;
}

macro_rules! numbers {
    ($($constructor:ident: $($Number:ty)+;)*) => {$($(
        impl Number for $Number {
            #[inline]
            fn new_object(self, py: Python<'_>) -> Option<Bound<'_, PyAny>> {
                // SAFETY: attached.
                let object = unsafe { ffi::$constructor(self.into()) };
                // SAFETY: a new reference, or NULL.
                unsafe { Bound::from_owned_ptr_or_opt(py, object) }
            }
        }
    )*)*};
}
numbers! {
    PyLong_FromLong: i8 i16 i32 i64;
    PyLong_FromUnsignedLong: u8 u16 u32 u64;
    PyFloat_FromDouble: f32 f64;
}

/// An int or a float.
pub(crate) fn number(py: Python<'_>, number: impl Number) -> PyResult<Bound<'_, PyAny>> {
    number.new_object(py).ok_or_else(|| PyErr::fetch(py))
}

/// A list with an item for each. Making an item must not run code of Python, which could come across the list before it is
/// full.
pub(crate) fn full_list<'py>(
    py: Python<'py>,
    items: impl ExactSizeIterator<Item = Result<Bound<'py, PyAny>>>,
) -> Result<Bound<'py, PyList>> {
    // SAFETY: attached.
    let list = unsafe { ffi::PyList_New(items.len() as Py_ssize_t) };
    // SAFETY: a new reference, or NULL with an exception.
    let list = unsafe { Bound::from_owned_ptr_or_err(py, list) }?;
    for (at, item) in items.enumerate() {
        // SAFETY: a list with that many places, which nobody else has; it takes the reference.
        unsafe { ffi::PyList_SetItem(list.as_ptr(), at as Py_ssize_t, item?.into_ptr()) };
    }
    Ok(list.cast_into().map_err(PyErr::from)?)
}

/// An empty list.
pub(crate) fn list(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    // SAFETY: attached.
    let list = unsafe { ffi::PyList_New(0) };
    // SAFETY: a new reference, or NULL with an exception.
    Ok(unsafe { Bound::from_owned_ptr_or_err(py, list) }?.cast_into()?)
}

/// An empty dict.
pub(crate) fn dict(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    // SAFETY: attached.
    let dict = unsafe { ffi::PyDict_New() };
    // SAFETY: a new reference, or NULL with an exception.
    Ok(unsafe { Bound::from_owned_ptr_or_err(py, dict) }?.cast_into()?)
}

/// A tuple. An item is `None` if making it raised an exception.
pub(crate) fn tuple<'py>(
    py: Python<'py>,
    items: impl ExactSizeIterator<Item = Option<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: attached.
    let tuple = unsafe { ffi::PyTuple_New(items.len() as Py_ssize_t) };
    // SAFETY: a new reference, or NULL with an exception.
    let tuple = unsafe { Bound::from_owned_ptr_or_err(py, tuple) }?;
    for (at, item) in items.enumerate() {
        let Some(item) = item else { return Err(PyErr::fetch(py)) };
        // SAFETY: a tuple with that many places, which nobody else has; it takes the reference.
        unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), at as Py_ssize_t, item.into_ptr()) };
    }
    Ok(tuple)
}

/// A str.
pub(crate) fn text<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyString>> {
    PyString::from_bytes(py, text.as_bytes())
}

/// A bytes object.
pub(crate) fn bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: attached; there are as many bytes.
    let object = unsafe { ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as Py_ssize_t) };
    // SAFETY: a new reference, or NULL with an exception.
    Ok(unsafe { Bound::from_owned_ptr_or_err(py, object) }?.cast_into()?)
}
