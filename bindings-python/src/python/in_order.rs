//! Iterators over objects that are indexed by numbers.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pyo3::prelude::*;

/// An iterator over the items 0, 1, 2, … of an object, up to its length. Python's own iterator over a sequence takes an
/// `IndexError` for the end, and so would hide that a row points outside of its dictionary.
#[pyclass(frozen, module = "devexchange")]
pub(crate) struct InOrder {
    object: Py<PyAny>,
    length: usize,
    next: AtomicUsize,
}

impl InOrder {
    pub(crate) fn new(object: Bound<'_, PyAny>, length: usize) -> Self {
        Self { object: object.unbind(), length, next: AtomicUsize::new(0) }
    }
}

#[pymethods]
impl InOrder {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// An item that cannot be read is skipped by the next call, so that repeated calls do not raise the same error for ever.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let further = |at: usize| (at < self.length).then(|| at + 1);
        match self.next.fetch_update(Relaxed, Relaxed, further) {
            Ok(at) => self.object.bind(py).get_item(at).map(Some),
            Err(_) => Ok(None),
        }
    }

    fn __length_hint__(&self) -> usize {
        self.length - self.next.load(Relaxed)
    }
}
