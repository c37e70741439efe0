//! The request to a producer for its capsule (array API, `__dlpack__`). The names of its keywords are in tuples that are made
//! once, so that a call makes neither a tuple nor a dict.

use std::ptr::null_mut;

use devexchange_core::dlpack::VERSION;
use devexchange_core::{Device, RawStream};
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
    device: bool,
    max_version: bool,
    stream: bool,
}

/// Asks a producer for its capsule. A producer that is older than an argument raises `TypeError` for it, and is asked again
/// without it; but stream and device, where there are any, are never left out. If that does not help either, the first
/// `TypeError` that names no argument is taken for the producer's own error, and raised.
///
/// `to_host` asks for the elements in host memory, wherever they are.
pub(crate) fn request<'py>(
    obj: &Bound<'py, PyAny>,
    stream: Option<RawStream>,
    copy: Option<bool>,
    to_host: bool,
) -> Result<Bound<'py, PyAny>> {
    let py = obj.py();
    let stream = stream.map(|stream| stream.value().into_pyobject(py)).transpose().map_err(PyErr::from)?;
    let mut given = Given { copy: copy.is_some(), device: to_host, max_version: true, stream: stream.is_some() };
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
    let given = Given { copy: false, device: false, max_version: true, stream: false };
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
    let mut arguments = [obj.as_ptr(), null_mut(), null_mut(), null_mut(), null_mut()];
    let values = [copy, host(py)?, version(py)?, stream];
    let passed = given.each().into_iter().zip(values).filter(|(given, _)| *given);
    arguments.iter_mut().skip(1).zip(passed).for_each(|(place, (_, value))| *place = value);
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

/// The CPU, as `dl_device` names it: a tuple that lives for ever.
fn host(py: Python<'_>) -> PyResult<*mut ffi::PyObject> {
    static MADE: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    let Device { kind, id } = Device::CPU;
    let host = MADE.get_or_try_init(py, || (kind.0, id).into_pyobject(py).map(Bound::unbind))?;
    Ok(host.as_ptr())
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

    /// Whether each argument is passed, in the order in which they are.
    fn each(self) -> [bool; 4] {
        [self.copy, self.device, self.max_version, self.stream]
    }

    /// The names of the arguments that are passed.
    fn names(self, py: Python<'_>) -> PyResult<&Bound<'_, PyTuple>> {
        static MADE: [PyOnceLock<Py<PyTuple>>; 16] = [const { PyOnceLock::new() }; 16];
        let [copy, device, max_version, stream] = self.each().map(usize::from);
        let which = copy | device << 1 | max_version << 2 | stream << 3;
        #[expect(clippy::indexing_slicing, reason = "four bits")]
        let made = MADE[which].get_or_try_init(py, move || {
            let names = self.each().into_iter().zip(["copy", "dl_device", "max_version", "stream"]);
            let given = names.filter(|(given, _)| *given).map(|(_, name)| PyString::intern(py, name));
            PyTuple::new(py, given.collect::<Vec<_>>()).map(Bound::unbind)
        })?;
        Ok(made.bind(py))
    }
}
