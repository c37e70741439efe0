//! Element types, read from their names.

use devexchange_core::DType;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::error::{Result, refuse, wrong_type};

/// Reads a name ("float32") or an object that has one: a NumPy dtype or scalar type, a Python number type, a PyTorch dtype.
pub(crate) fn from_python(dtype: &Bound<'_, PyAny>) -> Result<DType> {
    if let Ok(name) = dtype.cast::<PyString>() {
        return Ok(name.to_string_lossy().parse()?);
    }
    let text = |attribute: &str| -> Result<Option<String>> {
        let said = dtype.getattr_opt(attribute)?.map(|said| said.cast_into::<PyString>());
        Ok(said.and_then(std::result::Result::ok).map(|said| said.to_string_lossy().into_owned()))
    };
    // NumPy's names do not tell a foreign byte order, nor a long double, which they call float128 after its size.
    if matches!(text("byteorder")?.as_deref(), Some("<" | ">")) {
        return refuse!(DEVX_INVALID_DTYPE, "dtype is {dtype}: not in the byte order of this machine");
    }
    // Dtypes from outside NumPy reuse these letters, but not with the kinds of floating point and complex numbers.
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
        // PyTorch writes the lanes of packed elements as "_x2".
        return Ok(name.replacen("_x", "x", 1).parse()?);
    }
    wrong_type!("dtype is {dtype}: neither the name of an element type nor something with a name")
}

/// The name of the elements that NumPy makes of a type, where it differs from the name of the type.
fn of_type(name: &str) -> &str {
    match name {
        "int" | "longlong" => "int64",
        "ulonglong" => "uint64",
        "float" => "float64",
        "complex" => "complex128",
        name => name,
    }
}
