//! What programs call for each exchange, the way that an extension in C has it. A call that has nothing special about it
//! is done in a few steps; any other, and one that fails, is left to PyO3's function of the same name, which begins
//! anew: nothing was taken yet.
//!
//! PyO3 does not know here that the thread is attached. So nothing quick makes or drops what needs to know that
//! (`PyErr`, `Py`); `Bound` does not.

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

/// A new reference, if the call was one of those that are quick.
pub(crate) type Quick = Option<*mut ffi::PyObject>;

/// Does what is quick, or else what is `usual`, unless something is raised that is to stay so. A panic is an exception.
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
        Err(payload) => raise(Error::Refused(CoreError::panicked(payload))),
    }
}

#[cold]
fn raise(error: Error) -> *mut ffi::PyObject {
    Python::attach(|py| PyErr::from(error).restore(py));
    null_mut()
}

/// None if it is an error, which is raised.
#[inline]
pub(crate) fn or_raise<T>(done: Result<T>) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(error) => {
            raise(error);
            None
        }
    }
}

/// An object of which no reference is counted here.
///
/// # Safety
/// It is of that type, and lives as long as the result is used.
pub(crate) unsafe fn borrowed<'a, 'py, T>(py: Python<'py>, object: *mut ffi::PyObject) -> Borrowed<'a, 'py, T> {
    // SAFETY: the caller's contract.
    let object = unsafe { Borrowed::from_ptr(py, object) };
    // SAFETY: as above.
    unsafe { object.cast_unchecked() }
}

/// Calls a method that a type has.
///
/// # Safety
/// The arguments of a call.
pub(crate) unsafe fn call_method(
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
        Err(error) => return raise(Error::Refused(error)),
    };
    all.push(this);
    if !arguments.is_null() {
        // SAFETY: there are as many as the call says.
        all.extend_from_slice(unsafe { std::slice::from_raw_parts(arguments, (n + named) as usize) });
    }
    // SAFETY: the object comes first, and the names are those of the last ones.
    unsafe { PyObject_Vectorcall(method.as_ptr(), all.as_ptr(), n as usize + 1, names) }
}

/// A function is called that the module has not defined yet.
pub(crate) fn unready(py: Python<'_>) -> *mut ffi::PyObject {
    Python::attach(|_| PyImportError::new_err("devexchange is not imported").restore(py));
    null_mut()
}

/// A definition with the signature and the text of another function. It lives for ever, as all extensions' do.
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

/// As Python wants it, with an end.
pub(crate) fn table<const N: usize>(defined: [ffi::PyMethodDef; N]) -> *mut ffi::PyMethodDef {
    let all = defined.into_iter().chain([ffi::PyMethodDef::zeroed()]);
    Box::leak(all.collect::<Box<[_]>>()).as_mut_ptr()
}

// A public function of CPython since 3.9, and part of the stable ABI since 3.12, with the same arguments. PyO3 has it only
// where the stable ABI does.
unsafe extern "C" {
    pub(crate) fn PyObject_Vectorcall(
        function: *mut ffi::PyObject,
        arguments: *const *mut ffi::PyObject,
        n_positional: usize,
        names: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}
