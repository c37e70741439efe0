//! The request to a producer for its capsule (array API, `__dlpack__`). The names of its keywords are in tuples that are made
//! once, so that a call makes neither a tuple nor a dict.

use std::ptr::null_mut;

use devexchange_core::RawStream;
use devexchange_core::dlpack::VERSION;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyString, PyTuple};

use crate::python::ask;
use crate::python::call::vectorcall_method;
use crate::python::error::{self, Result};

/// Which arguments are passed to a producer; the others have their defaults.
#[derive(Clone, Copy)]
struct Given {
    copy: bool,
    max_version: bool,
    stream: bool,
}

/// Asks a producer for its capsule. A producer that is older than an argument raises `TypeError` for it, and is asked again
/// without it; but the stream, where there is one, is never left out. If that does not help either, the first `TypeError`
/// that names no argument is taken for the producer's own error, and raised.
pub(crate) fn request<'py>(
    obj: &Bound<'py, PyAny>,
    stream: Option<RawStream>,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>> {
    let py = obj.py();
    let stream = stream.map(|stream| stream.value().into_pyobject(py)).transpose().map_err(PyErr::from)?;
    let mut given = Given { copy: copy.is_some(), max_version: true, stream: stream.is_some() };
    let (stream, copy) = (stream.as_ref().map_or(null_mut(), Bound::as_ptr), flag(py, copy == Some(true)));
    let mut own = None;
    loop {
        let error = match ask(obj, given, copy, stream) {
            Ok(capsule) => return Ok(capsule),
            Err(error) => error,
        };
        // An unknown argument raises exactly `TypeError`; an exception of a derived class means something else.
        if !error.get_type(py).is(py.get_type::<PyTypeError>()) || !given.drop_one() {
            let first = own.filter(|_| error::is_error(py, &error));
            return Err(first.unwrap_or(error).into());
        }
        if own.is_none() && !names_an_argument(py, &error) {
            own = Some(error);
        }
    }
}

/// Whether the text of a `TypeError` is about an argument, in the words of Python and of binding generators.
fn names_an_argument(py: Python<'_>, error: &PyErr) -> bool {
    let text = error.value(py).to_string();
    ["argument", "max_version"].iter().any(|word| text.contains(word))
}

/// Asks a producer in host memory for its capsule. `None` if that fails: the error is forgotten, and [`request`] has to ask
/// again, which reports why.
#[inline]
pub(crate) fn request_quickly<'py>(obj: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let py = obj.py();
    let given = Given { copy: false, max_version: true, stream: false };
    let arguments = [obj.as_ptr(), version(py).ok()?];
    let (method, names) = (intern!(py, "__dlpack__"), given.names(py).ok()?);
    // SAFETY: as in `ask`.
    let capsule = unsafe { vectorcall_method(method, &arguments, names.as_ptr()) };
    ask::given(py, capsule)
}

/// Calls `__dlpack__` once. `copy` and `stream` are borrowed objects, if they are passed.
fn ask<'py>(
    obj: &Bound<'py, PyAny>,
    given: Given,
    copy: *mut ffi::PyObject,
    stream: *mut ffi::PyObject,
) -> PyResult<Bound<'py, PyAny>> {
    let py = obj.py();
    let (method, names) = (intern!(py, "__dlpack__"), given.names(py)?);
    // In the order of the names.
    let arguments = match (given.copy, given.max_version) {
        (false, false) => [obj.as_ptr(), stream, null_mut(), null_mut()],
        (false, true) => [obj.as_ptr(), version(py)?, stream, null_mut()],
        (true, false) => [obj.as_ptr(), copy, stream, null_mut()],
        (true, true) => [obj.as_ptr(), copy, version(py)?, stream],
    };
    // SAFETY: the object is the one positional argument, and there are as many other arguments as names.
    let capsule = unsafe { vectorcall_method(method, &arguments, names.as_ptr()) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// The highest version that this library reads: a tuple that lives for ever.
fn version(py: Python<'_>) -> PyResult<*mut ffi::PyObject> {
    static MADE: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    let version = MADE.get_or_try_init(py, || (VERSION.major, VERSION.minor).into_pyobject(py).map(Bound::unbind))?;
    Ok(version.as_ptr())
}

/// `True` or `False`, which live for ever.
fn flag(py: Python<'_>, value: bool) -> *mut ffi::PyObject {
    PyBool::new(py, value).as_ptr()
}

impl Given {
    /// Leaves out one of the arguments that a producer may be too old for, `copy` first. False if none is left.
    fn drop_one(&mut self) -> bool {
        let dropped = self.copy || self.max_version;
        self.max_version &= self.copy;
        self.copy = false;
        dropped
    }

    /// The names of the arguments that are passed.
    fn names(self, py: Python<'_>) -> PyResult<&Bound<'_, PyTuple>> {
        static MADE: [PyOnceLock<Py<PyTuple>>; 8] = [const { PyOnceLock::new() }; 8];
        let which = usize::from(self.copy) | usize::from(self.max_version) << 1 | usize::from(self.stream) << 2;
        #[expect(clippy::indexing_slicing, reason = "three bits")]
        let made = MADE[which].get_or_try_init(py, move || {
            let names = [(self.copy, "copy"), (self.max_version, "max_version"), (self.stream, "stream")];
            let given = names.iter().filter(|(given, _)| *given).map(|(_, name)| PyString::intern(py, name));
            PyTuple::new(py, given.collect::<Vec<_>>()).map(Bound::unbind)
        })?;
        Ok(made.bind(py))
    }
}
