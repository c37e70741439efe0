//! Arguments from programs: numbers, texts and sequences.

use std::fmt::Display;

use devexchange_core::memory;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeEncodeError};
use pyo3::prelude::*;
use pyo3::types::slice::PySliceIndices;
use pyo3::types::{PySequence, PySlice, PyString};
use pyo3::{ffi, intern};

use crate::python::error::{Result, refuse, wrong_type};

/// Whether a value is an int, or stands for one (`numpy.int64`).
pub(crate) fn is_index(value: &Bound<'_, PyAny>) -> bool {
    // SAFETY: attached, and an object.
    unsafe { ffi::PyIndex_Check(value.as_ptr()) != 0 }
}

/// Reads a number; `None` if it does not fit its type. Any other exception is raised: it may be one of the `__index__` of a
/// program.
pub(crate) fn fitting<'py, T: FromPyObjectOwned<'py>>(value: &Bound<'py, PyAny>) -> PyResult<Option<T>> {
    match value.extract().map_err(Into::into) {
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a pair, whose entries can be numbers; `None` if it is no pair, if an entry is not what it should be, or does not fit.
/// An exception is raised as by [`fitting`].
pub(crate) fn pair<'py, A, B>(value: &Bound<'py, PyAny>) -> PyResult<Option<(A, B)>>
where
    A: FromPyObjectOwned<'py>,
    B: FromPyObjectOwned<'py>,
{
    fn entry<'py, T: FromPyObjectOwned<'py>>(value: &Bound<'py, PyAny>) -> PyResult<Option<T>> {
        match fitting(value) {
            Err(_) if !is_index(value) => Ok(None),
            entry => entry,
        }
    }
    let Ok((first, second)) = value.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>() else { return Ok(None) };
    let Some(first) = entry(&first)? else { return Ok(None) };
    Ok(entry(&second)?.map(|second| (first, second)))
}

/// Reads an amount that is called `what`.
pub(crate) fn size(value: &Bound<'_, PyAny>, what: &str) -> Result<usize> {
    number(value, what, 0, usize::MAX)
}

/// Reads a number that is called `what`. It has to fit its type and be between `least` and `most`.
pub(crate) fn number<'py, T>(value: &Bound<'py, PyAny>, what: &str, least: T, most: T) -> Result<T>
where
    T: FromPyObjectOwned<'py> + PartialOrd + Display,
{
    match fitting::<T>(value) {
        Ok(Some(number)) if (&least..=&most).contains(&&number) => Ok(number),
        Ok(_) => refuse!(DEVX_INVALID_ARGUMENT, "{what} is {value}: it must be between {least} and {most}"),
        Err(_) if !is_index(value) => wrong_type!("{what} is {value:?}: an int was expected"),
        Err(error) => Err(error.into()),
    }
}

/// Reads the number of the first requested row.
pub(crate) fn offset(given: &Bound<'_, PyAny>) -> PyResult<i64> {
    Ok(number(given, "offset", 0, i64::MAX)?)
}

/// Reads the number of requested rows; by default all from `offset` on.
pub(crate) fn length(given: Option<&Bound<'_, PyAny>>, offset: i64, all: i64) -> Result<i64> {
    given.map_or(Ok((all - offset).max(0)), |length| number(length, "length", 0, i64::MAX))
}

/// Reads a slice of rows (`i:j`) out of `all` rows: the number of the first row, and how many there are.
pub(crate) fn rows(slice: &Bound<'_, PySlice>, all: i64, what: &str) -> Result<(i64, i64)> {
    let PySliceIndices { start, step, slicelength, .. } = slice.indices(all as isize)?;
    if step != 1 {
        return refuse!(DEVX_INVALID_ARGUMENT, "step is {step}: the rows of a {what} follow each other");
    }
    Ok((start as i64, slicelength as i64))
}

/// Reads the entries of a sequence with `each`; `None` if there are more than `most`. The sequence is not asked for its
/// length, because a number from the caller must not decide how much memory is allocated.
pub(crate) fn entries<'py, T>(
    sequence: &Bound<'py, PySequence>,
    most: usize,
    mut each: impl FnMut(Bound<'py, PyAny>) -> Result<T>,
) -> Result<Option<Vec<T>>> {
    let mut entries = Vec::new();
    for entry in sequence.try_iter()? {
        if entries.len() == most {
            return Ok(None);
        }
        memory::push(&mut entries, each(entry?)?)?;
    }
    Ok(Some(entries))
}

/// Reads a text; `what` introduces it in the text of an error ("name is").
pub(crate) fn text<'a>(text: &'a Bound<'_, PyAny>, what: &str) -> Result<&'a str> {
    let Ok(given) = text.cast::<PyString>() else { return wrong_type!("{what} {text:?}: a str was expected") };
    match given.to_str() {
        Ok(text) => Ok(text),
        Err(error) if error.is_instance_of::<PyUnicodeEncodeError>(text.py()) => {
            refuse!(DEVX_INVALID_TEXT, "{what} {text:?}: not valid Unicode")
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads `copy`: True, False or None.
pub(crate) fn copy(given: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    if given.is_none() {
        return Ok(None);
    }
    match given.extract::<bool>() {
        Err(error) if error.is_instance_of::<PyTypeError>(given.py()) => {
            Ok(wrong_type!("copy is {given:?}: True, False or None was expected")?)
        }
        copy => copy.map(Some),
    }
}

/// Reads `timeout`, a number of seconds; None is as long as it takes.
pub(crate) fn timeout(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if given.is_none() {
        return Ok(None);
    }
    match given.extract::<f64>() {
        Err(_) if !is_index(given) && !given.hasattr(intern!(given.py(), "__float__"))? => {
            Ok(wrong_type!("timeout is {given:?}: a number of seconds, or None, was expected")?)
        }
        seconds => seconds.map(Some),
    }
}
