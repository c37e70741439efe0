//! Tensors as NumPy arrays.

use devexchange_core::Flags;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyMemoryView};

use crate::python::error::{Result, refuse};
use crate::tensor::type_object::New;

/// Makes a NumPy array of a tensor, as NumPy's protocol (`__array__`) asks for. A view is read-only if the tensor is.
pub(crate) fn array<'py>(
    py: Python<'py>,
    tensor: New,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>> {
    static FROM_DLPACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let device = tensor.0.device();
    if !device.is_host() {
        return refuse!(DEVX_DEVICE, "device is {device}, not host memory: copy_to copies it, on a stream");
    }
    let read_only = tensor.0.flags().has(Flags::READ_ONLY);
    let tensor = tensor.into_pyobject(py)?;
    let array = match FROM_DLPACK.import(py, "numpy", "from_dlpack")?.call1((&tensor,)) {
        // NumPy before 2.1 asks for the struct that cannot say that memory is read-only. A buffer can.
        Err(error) if read_only && error.is_instance_of::<PyBufferError>(py) => {
            let Ok(buffer) = PyMemoryView::from(&tensor) else { return Err(error.into()) };
            py.import("numpy")?.call_method1("asarray", (buffer,))?
        }
        made => made?,
    };
    if dtype.is_none() && copy != Some(true) {
        return Ok(array);
    }
    let numpy = py.import("numpy")?;
    Ok(match copy {
        // This also works before NumPy 2, which does not pass `copy`.
        None => numpy.call_method1("asarray", (array, dtype))?,
        Some(copy) => numpy.call_method("array", (array, dtype), Some(&[("copy", copy)].into_py_dict(py)?))?,
    })
}
