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

use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::dlpack::VERSION;
use devexchange_core::memory::vector;
use devexchange_core::{Device, Error as CoreError};
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyModule, PyTuple, PyType};

use crate::consumer::Maker;
use crate::python::ask::is_raised;
use crate::python::error::{Error, Result};
use crate::python::queue;
use crate::tensor::Tensor;
use crate::{capsule, dlpack, tensor_type, version};

/// A new reference, if the call was one of those that are quick.
type Quick = Option<*mut ffi::PyObject>;

/// Does what is quick, or else what is `usual`, unless something is raised that is to stay so. A panic is an exception.
#[inline]
fn quickly(
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

/// PyO3's functions, for what is not quick. They live as long as the process.
struct Usual {
    from_dlpack: Py<PyAny>,
}
static FUNCTIONS: PyOnceLock<Usual> = PyOnceLock::new();

/// The same of the methods of a tensor.
struct Methods {
    dlpack: Py<PyAny>,
    dlpack_device: Py<PyAny>,
    to: Py<PyAny>,
}
static METHODS: PyOnceLock<Methods> = PyOnceLock::new();

// ---- the function ----

/// Puts the quick functions in the place of PyO3's.
pub(crate) fn add_functions(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let function = module.getattr("from_dlpack")?;
    let call = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: from_dlpack };
    let defined = table([define(c"from_dlpack", call, ffi::METH_FASTCALL | ffi::METH_KEYWORDS, &function)?]);
    FUNCTIONS.get_or_init(py, || Usual { from_dlpack: function.unbind() });
    // SAFETY: attached, and a table that lives for ever.
    match unsafe { ffi::PyModule_AddFunctions(module.as_ptr(), defined) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(py)),
    }
}

unsafe extern "C" fn from_dlpack(
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls it, so it is attached.
    let py = unsafe { Python::assume_attached() };
    let quick = || {
        if n != 1 || !names.is_null() {
            return None;
        }
        // SAFETY: there is one argument.
        let object = unsafe { *arguments };
        // SAFETY: its caller keeps it alive.
        let object = unsafe { borrowed::<PyAny>(py, object) };
        queue::drain();
        Some(tensor_type::make_quickly(py, dlpack::take_quickly(&object)?))
    };
    quickly(py, quick, || match FUNCTIONS.get(py) {
        // SAFETY: the arguments are those of the call.
        Some(usual) => unsafe { PyObject_Vectorcall(usual.from_dlpack.as_ptr(), arguments, n as usize, names) },
        None => unready(py),
    })
}

// ---- methods of a tensor ----

/// The quick methods, which a type takes over that has PyO3's class as its base.
pub(crate) fn methods(base: &Bound<'_, PyType>) -> PyResult<*mut ffi::PyMethodDef> {
    let [dlpack, device, to_object] = ["__dlpack__", "__dlpack_device__", "to"].map(|name| base.getattr(name));
    let (dlpack, device, to_object) = (dlpack?, device?, to_object?);
    let give = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: give };
    let place = ffi::PyMethodDefPointer { PyCFunction: place };
    let defined = table([
        define(c"__dlpack__", give, ffi::METH_FASTCALL | ffi::METH_KEYWORDS, &dlpack)?,
        define(c"__dlpack_device__", place, ffi::METH_NOARGS, &device)?,
        define(c"to", ffi::PyMethodDefPointer { PyCFunction: to }, ffi::METH_O, &to_object)?,
    ]);
    let (dlpack, dlpack_device) = (dlpack.unbind(), device.unbind());
    METHODS.get_or_init(base.py(), || Methods { dlpack, dlpack_device, to: to_object.unbind() });
    Ok(defined)
}

/// `Tensor.__dlpack__` of host memory, for who asks for no more than a version.
unsafe extern "C" fn give(
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls it, so it is attached.
    let py = unsafe { Python::assume_attached() };
    let quick = || {
        // SAFETY: the arguments of the call.
        let max_version = unsafe { version::asked(py, arguments, n, names) }?;
        // SAFETY: Python has checked the type, and the caller keeps it alive.
        let tensor = unsafe { borrowed::<Tensor>(py, this) };
        Some(if max_version.major >= VERSION.major {
            capsule::give_quickly::<DLManagedTensorVersioned>(py, tensor.get().share_on_host(py, max_version)?)
        } else {
            capsule::give_quickly::<DLManagedTensor>(py, tensor.get().share_on_host(py, max_version)?)
        })
    };
    quickly(py, quick, || match METHODS.get(py) {
        // SAFETY: the arguments are those of the call.
        Some(usual) => unsafe { call_method(&usual.dlpack, this, arguments, n, names) },
        None => unready(py),
    })
}

/// `Tensor.__dlpack_device__`, of host memory: the same pair each time.
unsafe extern "C" fn place(this: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    static HOST: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    // SAFETY: Python calls it, so it is attached.
    let py = unsafe { Python::assume_attached() };
    let quick = || {
        // SAFETY: Python has checked the type, and the caller keeps it alive.
        let Device { kind, id } = unsafe { borrowed::<Tensor>(py, this) }.get().device_now(py)?;
        if (Device { kind, id }) != Device::CPU {
            return None;
        }
        let pair = HOST.get_or_try_init(py, || (kind.0, id).into_pyobject(py).map(Bound::unbind)).ok()?;
        Some(pair.bind(py).clone().into_ptr())
    };
    quickly(py, quick, || match METHODS.get(py) {
        // SAFETY: it has no arguments.
        Some(usual) => unsafe { call_method(&usual.dlpack_device, this, null_mut(), 0, null_mut()) },
        None => unready(py),
    })
}

/// `Tensor.to` of host memory, for a type with a function table.
unsafe extern "C" fn to(this: *mut ffi::PyObject, kind: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: Python calls it, so it is attached.
    let py = unsafe { Python::assume_attached() };
    let quick = || {
        // SAFETY: any object may be asked.
        if unsafe { ffi::PyType_Check(kind) } == 0 {
            return None;
        }
        // SAFETY: a type, which the caller keeps alive.
        let kind = unsafe { borrowed::<PyType>(py, kind) };
        let maker = Maker::quickly_of(&kind)?;
        // SAFETY: Python has checked the type, and the caller keeps it alive.
        let shared = unsafe { borrowed::<Tensor>(py, this) }.get().share_on_host(py, maker.version())?;
        or_raise(maker.object_of(py, shared)).map(Bound::into_ptr)
    };
    quickly(py, quick, || match METHODS.get(py) {
        // SAFETY: it has one argument.
        Some(usual) => unsafe { call_method(&usual.to, this, &raw const kind, 1, null_mut()) },
        None => unready(py),
    })
}

// ---- calls, and how functions are defined ----

/// Calls a method that a type has.
///
/// # Safety
/// The arguments of a call.
unsafe fn call_method(
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
fn unready(py: Python<'_>) -> *mut ffi::PyObject {
    Python::attach(|_| PyImportError::new_err("devexchange is not imported").restore(py));
    null_mut()
}

/// A definition with the signature and the text of another function. It lives for ever, as all extensions' do.
fn define(
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
fn table<const N: usize>(defined: [ffi::PyMethodDef; N]) -> *mut ffi::PyMethodDef {
    let all = defined.into_iter().chain([ffi::PyMethodDef::zeroed()]);
    Box::leak(all.collect::<Box<[_]>>()).as_mut_ptr()
}

// A public function of CPython since 3.9, and part of the stable ABI since 3.12, with the same arguments. PyO3 has it only
// where the stable ABI does.
unsafe extern "C" {
    fn PyObject_Vectorcall(
        function: *mut ffi::PyObject,
        arguments: *const *mut ffi::PyObject,
        n_positional: usize,
        names: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}
