//! Quick versions of the functions that programs call for each exchange, written like those of a C extension. They do
//! ordinary calls in a few steps. Any other call, and one that fails, is left to PyO3's function of the same name, which
//! begins anew: nothing was taken yet.
//!
//! PyO3 does not know here that the thread is attached. So the quick functions neither make nor drop values that need to know
//! (`PyErr`, `Py`); `Bound` does not need to.

use core::ffi::{CStr, c_int};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use devexchange_core::Error as CoreError;
use devexchange_core::memory::vector;
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::ask::is_raised;
use crate::python::error::{Error, Result};

/// A new reference (or NULL with an exception) if the call could be done quickly.
pub(crate) type Quick = Option<*mut ffi::PyObject>;

/// Calls `quick`, and `usual` if that does nothing, unless an exception is raised that has to stay. A panic becomes an
/// exception.
#[inline]
pub(crate) fn quickly(
    py: Python<'_>,
    quick: impl FnOnce() -> Quick,
    usual: impl FnOnce() -> *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    match catch_unwind(AssertUnwindSafe(quick)) {
        Ok(Some(object)) => object,
        Ok(None) if is_raised(py) => null_mut(),
        Ok(None) => usual(),
        Err(payload) => raise(py, Error::Refused(CoreError::panicked(payload))),
    }
}

/// Raises an error and returns NULL.
#[cold]
pub(crate) fn raise(py: Python<'_>, error: Error) -> *mut ffi::PyObject {
    let mut error = Some(error);
    let mut restore = |py: Python<'_>| {
        if let Some(error) = error.take() {
            error.raised(py).restore(py);
        }
    };
    // After the handlers of `atexit`, when the objects of modules end, PyO3 attaches no thread any more. Without that it
    // leaves to the process what would be dropped here.
    if Python::try_attach(&mut restore).is_none() {
        restore(py);
    }
    null_mut()
}

/// Returns the value; for an error, raises it and returns `None`.
#[inline]
pub(crate) fn or_raise<T>(py: Python<'_>, done: Result<T>) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(error) => {
            raise(py, error);
            None
        }
    }
}

/// A borrowed object, whose reference is not counted here.
///
/// # Safety
/// The object is of that type, and lives as long as the result is used.
pub(crate) unsafe fn borrowed<'a, 'py, T>(py: Python<'py>, object: *mut ffi::PyObject) -> Borrowed<'a, 'py, T> {
    // SAFETY: the caller's contract.
    let object = unsafe { Borrowed::from_ptr(py, object) };
    // SAFETY: as above.
    unsafe { object.cast_unchecked() }
}

/// Calls a method of a type.
///
/// # Safety
/// The arguments are those of a call.
pub(crate) unsafe fn call_method(
    py: Python<'_>,
    method: &Py<PyAny>,
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: names are a tuple.
    let named = if names.is_null() { 0 } else { unsafe { ffi::PyTuple_Size(names) } };
    let mut all = match vector((n + named) as usize + 1) {
        Ok(all) => all,
        Err(error) => return raise(py, Error::Refused(error)),
    };
    all.push(this);
    if !arguments.is_null() {
        // SAFETY: there are as many arguments as the call says.
        all.extend_from_slice(unsafe { std::slice::from_raw_parts(arguments, (n + named) as usize) });
    }
    // SAFETY: the object comes first, and the names belong to the last arguments.
    unsafe { PyObject_Vectorcall(method.as_ptr(), all.as_ptr(), n as usize + 1, names) }
}

/// Raises an `ImportError` for a call of a function that the module has not defined yet.
pub(crate) fn unready(py: Python<'_>) -> *mut ffi::PyObject {
    raise(py, Error::Python(PyImportError::new_err("devexchange is not imported")))
}

/// Makes a definition with the signature and docstring of another function. It lives for ever, like that of every extension.
pub(crate) fn define(
    name: &'static CStr,
    call: ffi::PyMethodDefPointer,
    flags: c_int,
    of: &Bound<'_, PyAny>,
) -> PyResult<ffi::PyMethodDef> {
    let (signature, text) = (of.getattr("__text_signature__")?, of.getattr("__doc__")?);
    let text = CString::new(format!("{}{signature}\n--\n\n{text}", name.to_string_lossy()))?;
    Ok(ffi::PyMethodDef { ml_name: name.as_ptr(), ml_meth: call, ml_flags: flags, ml_doc: text.into_raw() })
}

/// Makes a table of definitions with an end marker, as Python expects it.
pub(crate) fn table<const N: usize>(defined: [ffi::PyMethodDef; N]) -> *mut ffi::PyMethodDef {
    let all = defined.into_iter().chain([ffi::PyMethodDef::zeroed()]);
    Box::leak(all.collect::<Box<[_]>>()).as_mut_ptr()
}

// A public function of CPython since 3.9, and part of the stable ABI since 3.12, with the same arguments. PyO3 declares it
// only where the stable ABI has it.
unsafe extern "C" {
    pub(crate) fn PyObject_Vectorcall(
        function: *mut ffi::PyObject,
        arguments: *const *mut ffi::PyObject,
        n_positional: usize,
        names: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}
