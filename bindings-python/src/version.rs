//! What version a consumer of `__dlpack__` asks for, if that is all that it asks for.

use core::ffi::c_int;
use pyo3::ffi;

/// What `max_version` is, where all else that is named is `None`.
///
/// # Safety
/// The arguments of a call.
pub(crate) unsafe fn asked(
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> Option<Option<(u32, u32)>> {
    let mut max_version = None;
    if n != 0 || names.is_null() {
        return (n == 0).then_some(max_version);
    }
    // SAFETY: names are a tuple.
    let count = unsafe { ffi::PyTuple_Size(names) };
    // SAFETY: there are as many arguments as names.
    let values = unsafe { std::slice::from_raw_parts(arguments, count as usize) };
    for (i, &value) in values.iter().enumerate() {
        // SAFETY: names are a tuple, and this is one of them.
        let name = unsafe { ffi::PyTuple_GetItem(names, i as ffi::Py_ssize_t) };
        // SAFETY: a string, which the tuple keeps.
        match unsafe { text(name) }? {
            // SAFETY: an argument of the call.
            b"max_version" => max_version = Some(unsafe { pair(value) }?),
            // SAFETY: attached.
            b"dl_device" | b"copy" | b"stream" if value == unsafe { ffi::Py_None() } => {}
            _ => return None,
        }
    }
    Some(max_version)
}

/// # Safety
/// A borrowed string, which lives as long as the result is used.
unsafe fn text<'a>(string: *mut ffi::PyObject) -> Option<&'a [u8]> {
    let mut length = 0;
    // SAFETY: the caller's contract.
    let first = unsafe { ffi::PyUnicode_AsUTF8AndSize(string, &raw mut length) };
    // SAFETY: the string keeps its text.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first.cast(), length as usize) })
}

/// A pair of small numbers.
///
/// # Safety
/// A borrowed object.
unsafe fn pair(object: *mut ffi::PyObject) -> Option<(u32, u32)> {
    // SAFETY: any object may be asked.
    if unsafe { ffi::PyTuple_CheckExact(object) } == 0 {
        return None;
    }
    // SAFETY: a tuple.
    if unsafe { ffi::PyTuple_Size(object) } != 2 {
        return None;
    }
    // SAFETY: there are two.
    let [first, second] = [0, 1].map(|i| unsafe { ffi::PyTuple_GetItem(object, i) });
    // SAFETY: the tuple keeps both.
    let [first, second] = [first, second].map(|number| unsafe { small(number) });
    Some((first?, second?))
}

/// # Safety
/// A borrowed object.
unsafe fn small(object: *mut ffi::PyObject) -> Option<u32> {
    // SAFETY: any object may be asked.
    if unsafe { ffi::PyLong_CheckExact(object) } == 0 {
        return None;
    }
    let mut overflow: c_int = 0;
    // SAFETY: an integer, so nothing is raised.
    let value = unsafe { ffi::PyLong_AsLongAndOverflow(object, &raw mut overflow) };
    u32::try_from(value).ok().filter(|_| overflow == 0)
}
