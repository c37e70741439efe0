//! Tensors as NumPy arrays.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::IntoPyDict;

use crate::python::error::Result;
use crate::tensor::type_object::New;

/// Makes a NumPy array of a tensor, as NumPy's protocol (`__array__`) asks for. A view is read-only if the tensor is.
pub(crate) fn array<'py>(
    py: Python<'py>,
    tensor: New,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>> {
    static FROM_DLPACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let array = FROM_DLPACK.import(py, "numpy", "from_dlpack")?.call1((tensor,))?;
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
