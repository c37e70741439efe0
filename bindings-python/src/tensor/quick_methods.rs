//! The quick versions of the methods of a tensor that programs call for each exchange ([`quick`](crate::python::quick)).

use std::ptr::null_mut;

use devexchange_core::Device;
use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::dlpack::VERSION;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use crate::dlpack::consumer::Maker;
use crate::dlpack::{capsule, version};
use crate::python::quick::{borrowed, call_method, define, or_raise, quickly, table, unready};
use crate::tensor::Tensor;

/// PyO3's methods, for calls that the quick ones cannot do. They live as long as the process.
struct Methods {
    dlpack: Py<PyAny>,
    dlpack_device: Py<PyAny>,
    to: Py<PyAny>,
}
static METHODS: PyOnceLock<Methods> = PyOnceLock::new();

/// The quick methods, for a type whose base is PyO3's class.
pub(crate) fn definitions(base: &Bound<'_, PyType>) -> PyResult<*mut ffi::PyMethodDef> {
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

/// `Tensor.__dlpack__` for host memory and a consumer that asks for nothing but a version.
unsafe extern "C" fn give(
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls this, so the thread is attached.
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
        Some(usual) => unsafe { call_method(py, &usual.dlpack, this, arguments, n, names) },
        None => unready(py),
    })
}

/// `Tensor.__dlpack_device__` for host memory: the same pair each time.
unsafe extern "C" fn place(this: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    static HOST: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    // SAFETY: Python calls this, so the thread is attached.
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
        // SAFETY: the call has no arguments.
        Some(usual) => unsafe { call_method(py, &usual.dlpack_device, this, null_mut(), 0, null_mut()) },
        None => unready(py),
    })
}

/// `Tensor.to` for host memory and a type with a function table.
unsafe extern "C" fn to(this: *mut ffi::PyObject, kind: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: Python calls this, so the thread is attached.
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
        or_raise(py, maker.object_of(py, shared)).map(Bound::into_ptr)
    };
    quickly(py, quick, || match METHODS.get(py) {
        // SAFETY: the call has one argument.
        Some(usual) => unsafe { call_method(py, &usual.to, this, &raw const kind, 1, null_mut()) },
        None => unready(py),
    })
}
