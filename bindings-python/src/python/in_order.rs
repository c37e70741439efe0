//! Iterators over objects that are indexed by numbers.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pyo3::prelude::*;

use crate::python::objects;

/// An iterator over the items 0, 1, 2, … of an object, up to its length, or over the same items in reverse. Python's own
/// iterators over a sequence take an `IndexError` for the end, and so would hide that a row points outside of its dictionary.
#[pyclass(frozen, module = "devexchange")]
pub(crate) struct InOrder {
    object: Py<PyAny>,
    length: usize,
    is_reversed: bool,
    /// How many items it was asked for.
    asked: AtomicUsize,
}

impl InOrder {
    pub(crate) fn new(object: Bound<'_, PyAny>, length: usize) -> Self {
        Self { object: object.unbind(), length, is_reversed: false, asked: AtomicUsize::new(0) }
    }

    pub(crate) fn reversed(object: Bound<'_, PyAny>, length: usize) -> Self {
        Self { is_reversed: true, ..Self::new(object, length) }
    }
}

#[pymethods]
impl InOrder {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// An item that cannot be read is skipped by the next call, so that repeated calls do not raise the same error for ever.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let further = |asked: usize| (asked < self.length).then(|| asked + 1);
        match self.asked.fetch_update(Relaxed, Relaxed, further) {
            Ok(before) => {
                let at = if self.is_reversed { self.length - 1 - before } else { before };
                self.object.bind(py).get_item(objects::number(py, at as u64)?).map(Some)
            }
            Err(_) => Ok(None),
        }
    }

    fn __length_hint__(&self) -> usize {
        self.length - self.asked.load(Relaxed)
    }
}
