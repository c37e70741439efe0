//! `with` blocks in which the expensive part of giving memory back is put off.

use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};

use devexchange_core::manager::Shared;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::python::error::Result;
use crate::python::{queue, raised};

/// The context manager that `MemoryManager.defer_cleanup` returns; it can be entered several times.
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
            self.manager.resume_cleanup()?;
            // Now, before an interrupt can be raised, which would otherwise hit the functions that give memory back.
            queue::drain();
            Ok(())
        })
    }
}

impl Drop for DeferredCleanup {
    fn drop(&mut self) {
        for _ in 0..*self.depth.get_mut() {
            // Each of these was begun, so it is not refused.
            drop(self.manager.resume_cleanup());
        }
    }
}
