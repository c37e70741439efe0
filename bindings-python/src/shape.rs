//! Shapes, read from arguments.

use devexchange_core::layout::MAX_NDIM;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PySequence;

use crate::python::argument::{self, is_index};
use crate::python::error::{Error, Result, refuse, wrong_type};

/// Reads one extent or a sequence of extents. An extent is an int or stands for one (`numpy.int64`).
pub(crate) fn from_python(shape: &Bound<'_, PyAny>) -> Result<Vec<i64>> {
    if is_index(shape) {
        return Ok(vec![extent(shape)?]);
    }
    match shape.cast::<PySequence>() {
        Ok(extents) => match argument::entries(extents, MAX_NDIM, |each| extent(&each))? {
            Some(extents) => Ok(extents),
            None => too_many(extents),
        },
        Err(_) => wrong_type!("shape is {shape:?}: an int or a sequence of them was expected"),
    }
}

fn too_many(extents: &Bound<'_, PySequence>) -> Result<Vec<i64>> {
    match extents.len() {
        Ok(n) => refuse!(DEVX_INVALID_SHAPE, "shape has {n} extents: more than {MAX_NDIM}"),
        // The length is too large for Python's `len`.
        Err(error) if error.is_instance_of::<PyOverflowError>(extents.py()) => {
            refuse!(DEVX_INVALID_SHAPE, "shape has more than {MAX_NDIM} extents")
        }
        Err(error) => Err(error.into()),
    }
}

fn extent(value: &Bound<'_, PyAny>) -> Result<i64> {
    if !is_index(value) {
        return wrong_type!("shape has {value:?}: an int was expected");
    }
    match argument::fitting(value) {
        Ok(Some(extent)) => Ok(extent),
        Ok(None) => refuse!(DEVX_INVALID_SHAPE, "shape has {value}: more than 64 bits"),
        // An array of NumPy has `__index__`, too, and refuses it unless it has one element.
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) && value.len().is_ok() => {
            let listed =
                wrong_type!("shape has {value:?}: an int was expected; tuple(array) makes a shape of an array");
            listed.map_err(|told: Error| told.after(error.into(), value.py()))
        }
        Err(error) => Err(error.into()),
    }
}
