//! What is written in Python and used from here: exceptions and records (`python/devexchange/_errors.py`,
//! `_types.py`), and methods that an object may have.

use core::ffi::{CStr, c_char, c_long};
use std::fmt::Display;
use std::ptr::null_mut;

use devexchange_core::memory;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyAttributeError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PySequence, PyString, PyTuple, PyType};
use pyo3::{IntoPyObjectExt, ffi};

use crate::error::{Result, refuse, wrong_type};
use crate::queue;

/// A class of a Python module, looked up once.
pub(crate) struct Class {
    module: &'static str,
    name: &'static str,
    found: PyOnceLock<Py<PyType>>,
}

impl Class {
    pub(crate) const fn new(module: &'static str, name: &'static str) -> Self {
        Self { module, name, found: PyOnceLock::new() }
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyType>> {
        self.found.import(py, self.module, self.name)
    }

    /// A new object of the class.
    pub(crate) fn make<'py>(&self, py: Python<'py>, arguments: impl Arguments<'py>) -> PyResult<Bound<'py, PyAny>> {
        call(self.get(py)?, arguments)
    }
}

/// Whether it is an int, or something that stands for one (`numpy.int64`).
pub(crate) fn is_index(value: &Bound<'_, PyAny>) -> bool {
    // SAFETY: attached, and an object.
    unsafe { ffi::PyIndex_Check(value.as_ptr()) != 0 }
}

/// Where in a sequence; none if it is beyond all of them.
pub(crate) fn index(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    match value.extract() {
        Ok(index) => Ok(Some(index)),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// How many there are of something that is called `what`.
pub(crate) fn size(value: &Bound<'_, PyAny>, what: &str) -> Result<usize> {
    number(value, what, 0, usize::MAX)
}

/// A number that is called `what`, and has to be one of those of its type between `least` and `most`.
pub(crate) fn number<'py, T>(value: &Bound<'py, PyAny>, what: &str, least: T, most: T) -> Result<T>
where
    T: FromPyObjectOwned<'py, Error = PyErr> + PartialOrd + Display,
{
    match value.extract::<T>() {
        Ok(number) if (&least..=&most).contains(&&number) => Ok(number),
        Err(_) if !is_index(value) => wrong_type!("{what} is {value:?}: an int was expected"),
        Err(error) if !error.is_instance_of::<PyOverflowError>(value.py()) => Err(error.into()),
        _ => refuse!(DEVX_INVALID_ARGUMENT, "{what} is {value}: it must be between {least} and {most}"),
    }
}

/// What a method gives that takes no arguments.
pub(crate) fn call_method<'py>(obj: &Bound<'py, PyAny>, method: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the object is the one argument.
    let value = unsafe { vectorcall_method(method, &[obj.as_ptr()], null_mut()) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(obj.py(), value) }
}

/// What a function of somebody else's gives.
pub(crate) fn call<'py>(function: &Bound<'py, PyAny>, arguments: impl Arguments<'py>) -> PyResult<Bound<'py, PyAny>> {
    let arguments = arguments.into_bound_py_any(function.py())?;
    // SAFETY: attached, an object and a tuple.
    let value = staying(|| unsafe { PyObject_CallObject(function.as_ptr(), arguments.as_ptr()) });
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), value) }
}

/// What becomes a tuple.
pub(crate) trait Arguments<'py>: IntoPyObject<'py, Target = PyTuple> {}
impl<'py, T: IntoPyObject<'py, Target = PyTuple>> Arguments<'py> for T {}

/// An attribute that a property makes.
pub(crate) fn property<'py>(obj: &Bound<'py, PyAny>, name: &CStr) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: attached, an object and a text that ends.
    let value = staying(|| unsafe { PyObject_GetAttrString(obj.as_ptr(), name.as_ptr()) });
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(obj.py(), value) }
}

/// What a method gives that takes no arguments; none if the object has no such method. It is called without being
/// looked for first, and without an object for a method that is bound.
pub(crate) fn call_if_there<'py>(
    obj: &Bound<'py, PyAny>,
    method: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match call_method(obj, method) {
        Ok(answer) => Ok(Some(answer)),
        // It may as well come from within the method.
        Err(error) if error.is_instance_of::<PyAttributeError>(obj.py()) && !obj.hasattr(method)? => Ok(None),
        Err(error) => Err(error),
    }
}

/// The entries of a sequence, as `each` makes them; none if there are more than `most`. How long it is, is not asked: that is
/// a number of the caller's, which must not say how much memory is asked for.
pub(crate) fn entries<'py, T>(
    sequence: &Bound<'py, PySequence>,
    most: usize,
    mut each: impl FnMut(Bound<'py, PyAny>) -> Result<T>,
) -> Result<Option<Vec<T>>> {
    let mut entries = Vec::new();
    for entry in sequence.try_iter()? {
        if entries.len() == most {
            return Ok(None);
        }
        memory::push(&mut entries, each(entry?)?)?;
    }
    Ok(Some(entries))
}

/// A name out of what is called `what`.
pub(crate) fn name(name: &Bound<'_, PyAny>, what: &str) -> Result<String> {
    match name.cast::<PyString>() {
        Ok(name) => Ok(name.to_str()?.to_owned()),
        Err(_) => wrong_type!("{what} has {name:?}: a str was expected"),
    }
}

/// A call into Python that may come back here and call again. Python allows so many within each other; one more is a
/// `RecursionError`, where the stack would be full.
pub(crate) struct Deeper<'py>(Python<'py>);

impl<'py> Deeper<'py> {
    /// `meanwhile` ends the text of the error: " while …".
    pub(crate) fn enter(py: Python<'py>, meanwhile: &'static CStr) -> PyResult<Self> {
        // SAFETY: attached, and a text that ends.
        match unsafe { ffi::Py_EnterRecursiveCall(meanwhile.as_ptr()) } {
            0 => Ok(Self(py)),
            _ => Err(PyErr::fetch(py)),
        }
    }
}

impl Drop for Deeper<'_> {
    fn drop(&mut self) {
        // SAFETY: attached, and entered once.
        unsafe { ffi::Py_LeaveRecursiveCall() }
    }
}

/// Does something with a thing of this thread's while other threads may run Python: what is done may wait for one that
/// does.
pub(crate) fn detached<T, R: Send>(py: Python<'_>, thing: T, act: impl FnOnce(T) -> R + Send) -> R {
    struct Sendable<T>(T);
    // SAFETY: what is done detached is done on the same thread.
    unsafe impl<T> Send for Sendable<T> {}
    let thing = Sendable(thing);
    py.detach(|| {
        // All of it, and not only what is in it.
        let thing = thing;
        act(thing.0)
    })
}

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

/// Calls a method of somebody else's. A new reference, or NULL with an exception.
///
/// # Safety
/// The arguments are objects, the one without a name first, and there are as many others as names, a tuple or NULL.
#[inline]
pub(crate) unsafe fn vectorcall_method(
    method: &Bound<'_, PyString>,
    arguments: &[*mut ffi::PyObject],
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: attached, as there is a `Bound`; the rest is the caller's contract.
    staying(|| unsafe { PyObject_VectorcallMethod(method.as_ptr(), arguments.as_ptr(), 1, names) })
}

/// Runs what somebody else wrote. It may let other threads run Python, and want to go on when the interpreter ends. CPython
/// before 3.14 ends a daemon thread there (`pthread_exit`), wherever it is: all of its stack is unwound, which is the end of
/// the process as soon as it comes to a function that nothing may unwind. So the thread stays here, as all do since 3.14; but not
/// one of somebody else's, who may wait for it at the end of the process, which then would never come.
#[inline]
fn staying<T>(run: impl FnOnce() -> T) -> T {
    struct Stays;
    impl Drop for Stays {
        fn drop(&mut self) {
            while !queue::is_on_foreign_thread() {
                std::thread::park();
            }
        }
    }
    let unwound = Stays;
    let given = run();
    std::mem::forget(unwound);
    given
}

// Functions of CPython that run what somebody else wrote. None that PyO3 uses: the compiler would take its word for it that
// nothing unwinds them.
unsafe extern "C-unwind" {
    fn PyObject_GetAttrString(object: *mut ffi::PyObject, name: *const c_char) -> *mut ffi::PyObject;
    fn PyObject_CallObject(function: *mut ffi::PyObject, arguments: *mut ffi::PyObject) -> *mut ffi::PyObject;
    // As below.
    fn PyObject_VectorcallMethod(
        name: *mut ffi::PyObject,
        arguments: *const *mut ffi::PyObject,
        n_positional: usize,
        names: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}

// Public functions of CPython since 3.9, and part of the stable ABI since 3.12, with the same arguments. PyO3 has them
// only where the stable ABI does.
unsafe extern "C" {
    pub(crate) fn PyObject_Vectorcall(
        function: *mut ffi::PyObject,
        arguments: *const *mut ffi::PyObject,
        n_positional: usize,
        names: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}
