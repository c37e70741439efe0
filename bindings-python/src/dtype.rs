//! Element types, by their names.

use devexchange_core::DType;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::{Result, refuse, wrong_type};

/// From a name ("float32"), or something that has one: a dtype or a scalar type of NumPy.
pub(crate) fn from_python(dtype: &Bound<'_, PyAny>) -> Result<DType> {
    if let Ok(name) = dtype.cast::<PyString>() {
        return Ok(name.to_string_lossy().parse()?);
    }
    // What NumPy says of a dtype whose elements are not those of this machine: the name leaves it out.
    if let Some(Ok(order)) = dtype.getattr_opt("byteorder")?.map(|order| order.cast_into::<PyString>())
        && ["<", ">"].contains(&&*order.to_string_lossy())
    {
        return refuse!(DEVX_INVALID_DTYPE, "dtype is {dtype}: not in the byte order of this machine");
    }
    for attribute in ["name", "__name__"] {
        if let Some(Ok(name)) = dtype.getattr_opt(attribute)?.map(|name| name.cast_into::<PyString>()) {
            return Ok(name.to_string_lossy().parse()?);
        }
    }
    wrong_type!("dtype is {dtype}: neither the name of an element type nor something with a name")
}
