//! Metadata of streams, batches, fields and errors: a dict of texts in Python, a block of bytes elsewhere.

use devexchange_core::arrow::asynchronous::MetadataBlock;
use devexchange_core::arrow::metadata;
use devexchange_core::memory::{push, vector};
use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping, PyString};

use crate::python::error::{Error, Result, refuse, wrong_type};
use crate::python::objects;

/// Bytes that are not UTF-8 become surrogates, as in file names, and go out as they came (PEP 383).
const OTHER_BYTES: &str = "surrogateescape";

/// The pairs of a block as a dict of texts; empty without a block.
pub(crate) fn to_python<'py>(py: Python<'py>, block: Option<&MetadataBlock>) -> Result<Bound<'py, PyDict>> {
    of_pairs(py, block.into_iter().flat_map(MetadataBlock::pairs))
}

/// Pairs as a dict of texts. If a key has several values, the last one is kept.
pub(crate) fn of_pairs<'a, 'py>(
    py: Python<'py>,
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<Bound<'py, PyDict>> {
    let texts = objects::dict(py)?;
    for (key, value) in pairs {
        texts.set_item(text(py, key)?, text(py, value)?)?;
    }
    Ok(texts)
}

/// Bytes as a text.
pub(crate) fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => objects::text(py, text),
        Err(_) => Ok(objects::bytes(py, bytes)?.call_method1("decode", ("utf-8", OTHER_BYTES))?.cast_into()?),
    }
}

/// The block of a mapping of texts; `None` if there are no pairs.
pub(crate) fn block(pairs: Option<&Bound<'_, PyAny>>) -> Result<Option<Vec<u8>>> {
    let Some(given) = pairs.filter(|given| !given.is_none()) else { return Ok(None) };
    let Ok(mapping) = given.cast::<PyMapping>() else {
        return wrong_type!("metadata is of {}: a mapping of texts is needed", given.get_type());
    };
    let mut parts = Vec::new();
    for pair in mapping.items()? {
        let (key, value) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        push(&mut parts, (bytes(&key)?, bytes(&value)?))?;
    }
    if parts.is_empty() {
        return Ok(None);
    }
    let mut pairs = vector(parts.len())?;
    pairs.extend(parts.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())));
    Ok(Some(metadata::encode(&pairs)?))
}

fn bytes<'py>(text: &Bound<'py, PyAny>) -> Result<Bound<'py, PyBytes>> {
    let Ok(text) = text.cast::<PyString>() else {
        return wrong_type!("metadata has {}: a str is needed", text.get_type());
    };
    match text.call_method1("encode", ("utf-8", OTHER_BYTES)) {
        Ok(bytes) => Ok(bytes.cast_into().map_err(PyErr::from)?),
        Err(error) if error.is_instance_of::<PyUnicodeEncodeError>(text.py()) => {
            refuse!(DEVX_INVALID_TEXT, "metadata has {:?}: not valid Unicode", text.to_string_lossy())
        }
        Err(error) => Err(Error::Python(error)),
    }
}
