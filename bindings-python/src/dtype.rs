//! Element types, by their names.

use devexchange_core::DType;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::error::{Result, refuse, wrong_type};

/// From a name ("float32"), or something that has one: a dtype or a scalar type of NumPy, a number type of Python's, a dtype
/// of PyTorch.
pub(crate) fn from_python(dtype: &Bound<'_, PyAny>) -> Result<DType> {
    if let Ok(name) = dtype.cast::<PyString>() {
        return Ok(name.to_string_lossy().parse()?);
    }
    let text = |attribute: &str| -> Result<Option<String>> {
        let said = dtype.getattr_opt(attribute)?.map(|said| said.cast_into::<PyString>());
        Ok(said.and_then(std::result::Result::ok).map(|said| said.to_string_lossy().into_owned()))
    };
    // What NumPy's names leave out: elements that are not those of this machine, and what is called float128 for its size.
    if matches!(text("byteorder")?.as_deref(), Some("<" | ">")) {
        return refuse!(DEVX_INVALID_DTYPE, "dtype is {dtype}: not in the byte order of this machine");
    }
    // Dtypes that are not NumPy's own use the same letters, but not for floating point numbers.
    if matches!((text("kind")?.as_deref(), text("char")?.as_deref()), (Some("f"), Some("g")) | (Some("c"), Some("G"))) {
        return refuse!(DEVX_INVALID_DTYPE, "dtype is {dtype}: the format of a long double differs between machines");
    }
    if let Some(name) = text("name")? {
        return Ok(name.parse()?);
    }
    if let Some(name) = text("__name__")? {
        return Ok(of_type(&name).parse()?);
    }
    if let Some(name) = dtype.str()?.to_string_lossy().strip_prefix("torch.") {
        return Ok(name.parse()?);
    }
    wrong_type!("dtype is {dtype}: neither the name of an element type nor something with a name")
}

/// The name of the elements that NumPy makes of a type whose own name is another one.
fn of_type(name: &str) -> &str {
    match name {
        "int" | "longlong" => "int64",
        "ulonglong" => "uint64",
        "float" => "float64",
        "complex" => "complex128",
        name => name,
    }
}
