//! Batches that an iterator of Python's gives, one at a time, on whatever thread asks for the next one.

use std::ptr::NonNull;

use devexchange_core::abi::types::{DEVX_CALLBACK, DEVX_CLOSED, DEVX_OK, DEVX_OUT_OF_MEMORY, DevxStatus};
use devexchange_core::{Batch, Error as CoreError, Owner, Result as CoreResult};
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyIterator;

use crate::batch;
use crate::error::{Error, Result, wrong_type};
use crate::python::Class;
use crate::queue::{self, Aside, Held};

static ERROR: Class = Class::new("devexchange._errors", "Error");

/// Gives the iterator up at its end, at its first error, or when it is dropped, whatever is first.
pub(crate) struct Source(Option<Kept>);

/// An iterator that the owner keeps alive, and Python gives up.
struct Kept {
    iterator: NonNull<ffi::PyObject>,
    _owner: Owner,
}

// SAFETY: the object is used only by who is attached to the interpreter.
unsafe impl Send for Kept {}

impl Source {
    pub(crate) fn new(iterator: Bound<'_, PyIterator>) -> Self {
        let address = NonNull::new(iterator.as_ptr());
        let owner = queue::owner(Held::Object(iterator.into_any().unbind()));
        Self(address.map(|iterator| Kept { iterator, _owner: owner }))
    }

    /// # Errors
    /// What the iterator raises, as text; `DEVX_CLOSED` when the interpreter ends.
    pub(crate) fn next(&mut self) -> CoreResult<Option<Batch>> {
        let Some(kept) = &self.0 else { return Ok(None) };
        let given = queue::enter(|py| {
            let _aside = Aside::new(py);
            kept.next(py).map_err(|error| told(py, error))
        });
        let Some(given) = given else {
            return Err(CoreError::new(DEVX_CLOSED, "the interpreter of Python, which has the source, ends"));
        };
        if !matches!(given, Ok(Some(_))) {
            self.0 = None;
            queue::drain();
        }
        given
    }
}

impl Kept {
    fn next(&self, py: Python<'_>) -> Result<Option<Batch>> {
        // SAFETY: attached, and the owner keeps the object alive.
        let iterator = unsafe { Bound::from_borrowed_ptr(py, self.iterator.as_ptr()) };
        let Some(item) = iterator.cast_into::<PyIterator>().map_err(PyErr::from)?.next() else { return Ok(None) };
        let item = item?;
        match batch::offered(&item)? {
            Some(batch) => Ok(Some(batch)),
            None => wrong_type!(
                "the iterable gave {}: neither a RecordBatch nor an object with __arrow_c_device_array__ or \
                 __arrow_c_array__",
                item.get_type()
            ),
        }
    }
}

/// An exception for those who do not know Python: its text, and its status if it is one of this package.
fn told(py: Python<'_>, error: Error) -> CoreError {
    let error = match error {
        Error::Refused(error) => return error,
        Error::Python(error) => error,
    };
    let value = error.value(py);
    let number = |name: &str| value.getattr(name).and_then(|number| number.extract::<i32>()).unwrap_or(0);
    if ERROR.get(py).is_ok_and(|class| value.is_instance(class).unwrap_or(false)) && number("status") != DEVX_OK.0 {
        return CoreError::driver(DevxStatus(number("status")), number("driver_code"), value.to_string());
    }
    let status = if error.is_instance_of::<PyMemoryError>(py) { DEVX_OUT_OF_MEMORY } else { DEVX_CALLBACK };
    CoreError::new(status, error.to_string())
}
