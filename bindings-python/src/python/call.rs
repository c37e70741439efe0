//! Calls of foreign Python code: functions, methods, properties, and the end of objects.

use core::ffi::{CStr, c_char, c_int};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::{IntoPyObjectExt, ffi};

use crate::python::interpreter;
use crate::python::objects::{self, Number};

/// Calls a method without arguments.
pub(crate) fn call_method<'py>(obj: &Bound<'py, PyAny>, method: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the object is the one argument.
    let value = unsafe { vectorcall_method(method, &[obj.as_ptr()], null_mut()) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(obj.py(), value) }
}

/// Calls a foreign function.
pub(crate) fn call<'py>(function: &Bound<'py, PyAny>, arguments: impl Arguments<'py>) -> PyResult<Bound<'py, PyAny>> {
    let arguments = arguments.tuple(function.py())?;
    // SAFETY: attached, an object and a tuple.
    let value = staying(|| unsafe { PyObject_CallObject(function.as_ptr(), arguments.as_ptr()) });
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), value) }
}

/// The arguments of a call: a tuple of what converts into objects, or an array of numbers. Neither the tuple nor the numbers of
/// an array panic if Python has no memory.
pub(crate) trait Arguments<'py> {
    fn tuple(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

macro_rules! arguments {
    ($(($($argument:ident: $T:ident),*))*) => {$(
        impl<'py, $($T: IntoPyObject<'py>),*> Arguments<'py> for ($($T,)*) {
            fn tuple(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let ($($argument,)*) = self;
                objects::tuple(py, [$($argument.into_bound_py_any(py)?),*].into_iter().map(Some))
            }
        }
    )*};
}
arguments! {
    ()
    (a: A)
    (a: A, b: B)
    (a: A, b: B, c: C)
    (a: A, b: B, c: C, d: D)
    (a: A, b: B, c: C, d: D, e: E)
    (a: A, b: B, c: C, d: D, e: E, f: F)
}

impl<'py, T: Number, const N: usize> Arguments<'py> for [T; N] {
    fn tuple(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        objects::tuple(py, self.into_iter().map(|number| number.new_object(py)))
    }
}

/// Reads an attribute that may be a property.
pub(crate) fn property<'py>(obj: &Bound<'py, PyAny>, name: &CStr) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: attached, an object and a text that ends.
    let value = staying(|| unsafe { PyObject_GetAttrString(obj.as_ptr(), name.as_ptr()) });
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(obj.py(), value) }
}

/// Calls a method without arguments; `None` if the object has no such method. The call is made without looking for the method
/// first, and without creating a bound method.
pub(crate) fn call_if_there<'py>(
    obj: &Bound<'py, PyAny>,
    method: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match call_method(obj, method) {
        Ok(answer) => Ok(Some(answer)),
        // The error may also come from within the method.
        Err(error) if error.is_instance_of::<PyAttributeError>(obj.py()) && !obj.hasattr(method)? => Ok(None),
        Err(error) => Err(error),
    }
}

/// A call into Python that may come back here and call again. Python limits the depth of such calls: beyond it there is a
/// `RecursionError`, not a stack overflow.
pub(crate) struct Deeper<'py>(Python<'py>);

impl<'py> Deeper<'py> {
    /// Enters a call. `meanwhile` ends the text of the error: " while …".
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

/// Calls a foreign method. Returns a new reference, or NULL with an exception.
///
/// # Safety
/// The arguments are objects: first the one positional argument, then one for each name. `names` is a tuple or NULL.
#[inline]
pub(crate) unsafe fn vectorcall_method(
    method: &Bound<'_, PyString>,
    arguments: &[*mut ffi::PyObject],
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: attached, as there is a `Bound`; the rest is the caller's contract.
    staying(|| unsafe { PyObject_VectorcallMethod(method.as_ptr(), arguments.as_ptr(), 1, names) })
}

/// A counted reference to an object, which is given up by an attached thread. Giving up the last one may run foreign code:
/// `__del__`, or the `finally` of a generator.
#[derive(Debug)]
pub(crate) struct Reference(ManuallyDrop<Py<PyAny>>);

impl Reference {
    pub(crate) fn new(object: Bound<'_, PyAny>) -> Self {
        Self(ManuallyDrop::new(object.unbind()))
    }

    pub(crate) fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.0.bind(py)
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: attached, and nobody uses the reference after this.
        staying(|| unsafe { Py_DecRef(self.0.as_ptr()) });
    }
}

/// Asks an object for a view of its memory (buffer protocol).
pub(crate) fn buffer(obj: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Box<ffi::Py_buffer>> {
    let mut view = Box::new(ffi::Py_buffer::new());
    // SAFETY: attached, an object, and room for the view.
    match staying(|| unsafe { PyObject_GetBuffer(obj.as_ptr(), &raw mut *view, flags) }) {
        0 => Ok(view),
        _ => Err(PyErr::fetch(obj.py())),
    }
}

/// Gives a buffer back to the object that lent it, which may end.
///
/// # Safety
/// Attached; the object filled the view in, and it is given back once.
pub(crate) unsafe fn give_back(view: &mut ffi::Py_buffer) {
    // SAFETY: the caller's contract.
    staying(|| unsafe { PyBuffer_Release(view) });
}

/// Runs foreign code. The code may let other threads run Python, and try to go on when the interpreter ends. CPython before
/// 3.14 then ends a daemon thread (`pthread_exit`), wherever it is. This unwinds the whole stack, and aborts the process at
/// the first function that must not be unwound. So the thread stays here, as all threads do since 3.14. A foreign thread does
/// not stay: somebody may wait for it at the end of the process, which then would never come.
#[inline]
fn staying<T>(run: impl FnOnce() -> T) -> T {
    struct Stays;
    impl Drop for Stays {
        fn drop(&mut self) {
            while !interpreter::is_on_foreign_thread() {
                std::thread::park();
            }
        }
    }
    let unwound = Stays;
    let given = run();
    std::mem::forget(unwound);
    given
}

// Functions of CPython that run foreign code, declared here as ones that can unwind. They must not be functions that PyO3
// uses: it declares them as never unwinding, and the compiler would rely on that.
unsafe extern "C-unwind" {
    fn PyObject_GetAttrString(object: *mut ffi::PyObject, name: *const c_char) -> *mut ffi::PyObject;
    fn PyObject_CallObject(function: *mut ffi::PyObject, arguments: *mut ffi::PyObject) -> *mut ffi::PyObject;
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut ffi::Py_buffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut ffi::Py_buffer);
    fn Py_DecRef(object: *mut ffi::PyObject);
    // Public since CPython 3.9, and part of the stable ABI since 3.12, with the same arguments.
    fn PyObject_VectorcallMethod(
        name: *mut ffi::PyObject,
        arguments: *const *mut ffi::PyObject,
        n_positional: usize,
        names: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}
