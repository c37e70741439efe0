//! Blocks in which what is expensive about giving memory back does not happen.

use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};

use devexchange_core::manager::Shared;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::python::error::Result;
use crate::python::{queue, raised};

/// What `MemoryManager.defer_cleanup` gives: a context manager, which may be entered several times.
#[pyclass(frozen, module = "devexchange")]
pub(crate) struct DeferredCleanup {
    manager: Shared,
    depth: AtomicUsize,
}

impl DeferredCleanup {
    pub(super) fn new(manager: Shared) -> Self {
        Self { manager, depth: AtomicUsize::new(0) }
    }
}

#[pymethods]
impl DeferredCleanup {
    fn __enter__(slf: Bound<'_, Self>) -> Result<Bound<'_, Self>> {
        let this = slf.get();
        this.depth.fetch_add(1, AcqRel);
        raised::calling(slf.py(), || {
            this.manager.defer_cleanup();
            Ok(())
        })?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> Result<()> {
        if self.depth.fetch_update(AcqRel, Acquire, |depth| depth.checked_sub(1)).is_err() {
            return Ok(());
        }
        raised::calling(py, || {
            self.manager.resume_cleanup();
            // Before an interrupt comes, which would come to what gives memory back.
            queue::drain();
            Ok(())
        })
    }
}

impl Drop for DeferredCleanup {
    fn drop(&mut self) {
        for _ in 0..*self.depth.get_mut() {
            self.manager.resume_cleanup();
        }
    }
}
