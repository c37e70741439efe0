//! The version that a consumer of `__dlpack__` asks for, if it asks for nothing else.

use std::cell::UnsafeCell;

use devexchange_core::abi::dlpack::DLPackVersion;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::argument::{self, is_index};
use crate::python::ask;
use crate::python::error::{Result, refuse, wrong_type};
use crate::python::quick::borrowed;

/// The version for a consumer that names none: it reads the legacy struct.
const UNNAMED: DLPackVersion = DLPackVersion { major: 0, minor: 0 };

/// The value of `max_version`. `None` if the call has positional arguments, or any other keyword argument that is not `None`.
///
/// # Safety
/// The arguments are those of a call.
#[inline]
pub(crate) unsafe fn asked(
    py: Python<'_>,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> Option<DLPackVersion> {
    if n != 0 || names.is_null() {
        return (n == 0).then_some(UNNAMED);
    }
    if let Some(last) = last(py).filter(|last| last.names == names) {
        // SAFETY: there are as many arguments as names.
        let values = unsafe { std::slice::from_raw_parts(arguments, last.count) };
        let none = none(py);
        if values.iter().enumerate().all(|(i, &value)| value == if i == last.at { last.value } else { none }) {
            return Some(last.version);
        }
    }
    // SAFETY: the caller's contract.
    unsafe { read(py, arguments, names) }
}

/// Like [`asked`], but for a call with keyword arguments only.
///
/// # Safety
/// As for [`asked`].
unsafe fn read(
    py: Python<'_>,
    arguments: *const *mut ffi::PyObject,
    names: *mut ffi::PyObject,
) -> Option<DLPackVersion> {
    // SAFETY: names are a tuple.
    let count = unsafe { ffi::PyTuple_Size(names) } as usize;
    // SAFETY: there are as many arguments as names.
    let values = unsafe { std::slice::from_raw_parts(arguments, count) };
    let mut asked = None;
    for (at, &value) in values.iter().enumerate() {
        // SAFETY: names are a tuple, and `at` is an index into it.
        let name = unsafe { ffi::PyTuple_GetItem(names, at as ffi::Py_ssize_t) };
        // SAFETY: a string, which the tuple keeps.
        match unsafe { text(py, name) }? {
            b"max_version" => {
                // SAFETY: an argument of the call.
                let pair = unsafe { borrowed::<PyAny>(py, value) };
                let [major, minor] = ask::pair(&pair)?;
                let version = DLPackVersion { major: major.try_into().ok()?, minor: minor.try_into().ok()? };
                asked = Some(Asked { names, count, at, value, version });
            }
            b"dl_device" | b"copy" | b"stream" if value == none(py) => {}
            _ => return None,
        }
    }
    let Some(asked) = asked else { return Some(UNNAMED) };
    // SAFETY: a pair, as checked above.
    if unsafe { is_plain(asked.value) } {
        keep(py, asked);
    }
    Some(asked.version)
}

/// Reads the version from a `max_version` argument.
pub(crate) fn from_python(asked: &Bound<'_, PyAny>) -> Result<(u32, u32)> {
    let pair = asked.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>().ok();
    let Some((major, minor)) = pair.filter(|(major, minor)| is_index(major) && is_index(minor)) else {
        return wrong_type!("max_version is {asked:?}: a pair (major, minor) is needed");
    };
    match (argument::fitting(&major)?, argument::fitting(&minor)?) {
        (Some(major), Some(minor)) => Ok((major, minor)),
        _ => refuse!(DEVX_INVALID_ARGUMENT, "max_version is {asked}: its numbers must be between 0 and {}", u32::MAX),
    }
}

fn none(_py: Python<'_>) -> *mut ffi::PyObject {
    // SAFETY: attached.
    unsafe { ffi::Py_None() }
}

/// A version, and the objects with which it was asked for.
#[derive(Clone, Copy)]
struct Asked {
    names: *mut ffi::PyObject,
    count: usize,
    /// Which of the arguments is the version.
    at: usize,
    value: *mut ffi::PyObject,
    version: DLPackVersion,
}

/// The last request. Most consumers make the tuples of names and version once and pass the same objects each time. Tuples do
/// not change, and as long as these are kept here, no other object has their addresses.
struct Last(UnsafeCell<Option<Asked>>);
// SAFETY: only attached threads touch it, and only if there is a GIL.
unsafe impl Sync for Last {}

static LAST: Last = Last(UnsafeCell::new(None));

/// The last request. Without a GIL none is kept, because it would need a lock.
#[inline]
fn last(_py: Python<'_>) -> Option<Asked> {
    if cfg!(Py_GIL_DISABLED) {
        return None;
    }
    // SAFETY: attached, with a GIL.
    unsafe { *LAST.0.get() }
}

fn keep(_py: Python<'_>, asked: Asked) {
    if cfg!(Py_GIL_DISABLED) {
        return;
    }
    for object in [asked.names, asked.value] {
        // SAFETY: attached, and the call has both.
        unsafe { ffi::Py_INCREF(object) };
    }
    // SAFETY: attached, with a GIL.
    let before = unsafe { (*LAST.0.get()).replace(asked) };
    for object in before.into_iter().flat_map(|before| [before.names, before.value]) {
        // SAFETY: attached, and counted when it was kept.
        unsafe { ffi::Py_DECREF(object) };
    }
}

/// Whether an object is a plain tuple of two plain ints. An object of a program's own class may refer to anything, and
/// caching it would keep that alive.
///
/// # Safety
/// A borrowed tuple of two items.
unsafe fn is_plain(pair: *mut ffi::PyObject) -> bool {
    let is_number = |at| {
        // SAFETY: the caller's contract.
        let item = unsafe { ffi::PyTuple_GetItem(pair, at) };
        // SAFETY: an object, which the tuple keeps.
        unsafe { ffi::PyLong_CheckExact(item) != 0 }
    };
    // SAFETY: as above.
    let is_tuple = unsafe { ffi::PyTuple_CheckExact(pair) != 0 };
    is_tuple && is_number(0) && is_number(1)
}

/// The UTF-8 text of a string.
///
/// # Safety
/// `string` is a borrowed string that lives as long as the result is used.
unsafe fn text<'a>(py: Python<'_>, string: *mut ffi::PyObject) -> Option<&'a [u8]> {
    let mut length = 0;
    // SAFETY: the caller's contract.
    let first = unsafe { ffi::PyUnicode_AsUTF8AndSize(string, &raw mut length) };
    if first.is_null() {
        // The string cannot be written as UTF-8, so it is not one of the known names.
        ask::has_raised(py);
        return None;
    }
    // SAFETY: the string keeps its text.
    Some(unsafe { std::slice::from_raw_parts(first.cast(), length as usize) })
}
