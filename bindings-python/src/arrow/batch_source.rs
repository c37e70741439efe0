//! Batches that a Python iterator yields, one at a time, on whatever thread asks for the next one.

use std::ptr::NonNull;

use devexchange_core::abi::types::DEVX_CLOSED;
use devexchange_core::{Batch, Error as CoreError, Owner, Result as CoreResult};
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use pyo3::{ffi, intern};

use crate::arrow::batch;
use crate::python::aside::Aside;
use crate::python::call::{self, Deeper, Reference};
use crate::python::error::Result;
use crate::python::queue::{self, Held};
use crate::python::{interpreter, raised};

/// A source of batches. It gives the iterator up at its end, at its first error, or when the source is dropped, whichever is
/// first.
pub(crate) struct Source(Option<Kept>);

/// An iterator that the owner keeps alive and that Python gives up.
struct Kept {
    iterator: NonNull<ffi::PyObject>,
    _owner: Owner,
}

// SAFETY: only threads that are attached to the interpreter use the object.
unsafe impl Send for Kept {}

impl Source {
    pub(crate) fn new(iterator: Bound<'_, PyIterator>) -> Self {
        let address = NonNull::new(iterator.as_ptr());
        let owner = queue::owner(Held::Object(Reference::new(iterator.into_any())));
        Self(address.map(|iterator| Kept { iterator, _owner: owner }))
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// Whatever the iterator raises, as text; `DEVX_CLOSED` when the interpreter ends.
    pub(crate) fn next(&mut self) -> CoreResult<Option<Batch>> {
        let Some(kept) = self.0.take() else { return Ok(None) };
        let given = interpreter::enter(|py| {
            let _aside = Aside::new(py);
            let given = raised::answering(|| kept.next(py));
            if matches!(given, Ok(Some(_))) {
                self.0 = Some(kept);
            } else {
                drop(kept);
                queue::drain();
            }
            // Last, because `to_core` asks for that.
            given.map_err(|error| raised::to_core(py, error))
        });
        given.unwrap_or_else(|why| Err(CoreError::new(DEVX_CLOSED, format_args!("the source is not asked: {why}"))))
    }
}

impl Kept {
    fn next(&self, py: Python<'_>) -> Result<Option<Batch>> {
        // The iterator may itself be a stream over another iterator.
        let _deeper = Deeper::enter(py, c" while a batch was asked for")?;
        // SAFETY: attached, and the owner keeps the object alive.
        let iterator = unsafe { Bound::from_borrowed_ptr(py, self.iterator.as_ptr()) };
        let item = match call::call_method(&iterator, intern!(py, "__next__")) {
            Err(end) if end.is_instance_of::<PyStopIteration>(py) => return Ok(None),
            given => given?,
        };
        batch::wanted(&item, "the iterable gave").map(Some)
    }
}
