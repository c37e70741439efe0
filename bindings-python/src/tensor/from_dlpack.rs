//! `from_dlpack`, the way in for all producers of DLPack.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

use crate::device;
use crate::dlpack::import;
use crate::dlpack::wanted::Wanted;
use crate::order::stream;
use crate::python::error::Result;
use crate::python::quick::{PyObject_Vectorcall, borrowed, define, quickly, table, unready};
use crate::python::{argument, queue};
use crate::tensor::type_object::{self, New};

/// Takes a tensor from an object with `__dlpack__`, or whose type has `__dlpack_c_exchange_api__`.
///
/// The tensor is a view of the same memory, which is released when the last user of the tensor is gone. An object that refers
/// to the tensor made over it has to close the tensor, because Python's cycle collector cannot see such a cycle.
///
/// `device` is where the elements are wanted: a name such as "cpu", "cuda" or "cuda:1", a pair of device type and number
/// (`Device`), or a `torch.device`; by default where they are. `copy` is True to always copy, False to never copy, None to
/// copy only if needed, which is for another device. Elements on a device that this library has no runtime for (ROCm, Metal)
/// are copied by their producer, if they are wanted on the CPU. Memory that is not aligned to its elements (an array of NumPy
/// over a packed structure) cannot be a tensor: with True, the producer is asked for a copy of it. On a GPU the data is ready
/// for work on `stream`, by default the legacy default stream (1), which is made to wait for the producer's work; with -1
/// nothing waits.
///
/// Raises BufferError if the exchange is not possible as requested, TypeError for objects without the protocol, ValueError
/// for an invalid tensor or stream. Then nothing was taken.
#[pyfunction]
#[pyo3(signature = (obj, /, *, device=None, copy=None, stream=None))]
pub(crate) fn from_dlpack(
    obj: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    stream: Option<&Bound<'_, PyAny>>,
) -> Result<New> {
    queue::drain();
    let device = device.map(device::asked).transpose()?;
    let wanted = Wanted { device, copy, stream: stream::optional(stream)?, by_producer: false };
    Ok(New(import::import(obj, &wanted)?))
}

/// PyO3's function, for calls that the quick function cannot do. It lives as long as the process.
static USUAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Replaces PyO3's function with the quick one.
pub(crate) fn add_quick(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let function = module.getattr("from_dlpack")?;
    let call = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: quick_from_dlpack };
    let defined = table([define(c"from_dlpack", call, ffi::METH_FASTCALL | ffi::METH_KEYWORDS, &function)?]);
    USUAL.get_or_init(py, || function.unbind());
    // SAFETY: attached, and a table that lives for ever.
    match unsafe { ffi::PyModule_AddFunctions(module.as_ptr(), defined) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(py)),
    }
}

unsafe extern "C" fn quick_from_dlpack(
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls this, so the thread is attached.
    let py = unsafe { Python::assume_attached() };
    let quick = || {
        if n != 1 || !names.is_null() {
            return None;
        }
        // SAFETY: there is one argument.
        let object = unsafe { *arguments };
        // SAFETY: the caller keeps the object alive.
        let object = unsafe { borrowed::<PyAny>(py, object) };
        queue::drain();
        Some(type_object::make_quickly(py, import::take_quickly(&object)?))
    };
    quickly(py, quick, || match USUAL.get(py) {
        // SAFETY: the arguments are those of the call.
        Some(usual) => unsafe { PyObject_Vectorcall(usual.as_ptr(), arguments, n as usize, names) },
        None => unready(py),
    })
}
