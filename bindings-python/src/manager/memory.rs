//! Memory that a manager allocated.

use std::sync::Arc;

use devexchange_core::manager::Allocated;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::device;
use crate::order::stream;
use crate::python::aside;
use crate::python::error::{Result, wrong_type};
use crate::python::handle::Handle;

/// Uninitialised memory of a `MemoryManager`.
///
/// It is given back once: by `close`, at the end of a `with` block, or when nothing refers to this object any more, on
/// whatever thread that is. It can outlive its manager. For an array over a manager's memory see `empty`.
#[pyclass(frozen, module = "devexchange", weakref)]
pub(crate) struct Memory(Handle<Arc<Allocated>>);

impl Memory {
    pub(crate) fn new(allocated: Allocated) -> Self {
        Self(Handle::new("memory", Arc::new(allocated)))
    }

    pub(crate) fn get(&self) -> Result<Arc<Allocated>> {
        self.0.get()
    }
}

impl Drop for Memory {
    /// Detaches from the interpreter: drivers wait for the device before they free memory, and the device may wait for a
    /// callback in Python.
    fn drop(&mut self) {
        // Without an interpreter to attach to there is nothing to detach from, and the handle closes itself.
        aside::quietly(|py| self.close(py));
    }
}

#[pymethods]
impl Memory {
    #[new]
    #[pyo3(signature = (*_arguments, **_options), text_signature = None)]
    fn refuse_new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Result<Self> {
        wrong_type!("Memory has no constructor: MemoryManager.allocate and MemoryManager.pin make one")
    }

    /// Address of the first byte. If no bytes were requested, it is 0, or what a manager written in Python gave.
    #[getter]
    fn address(&self) -> Result<usize> {
        Ok(self.get()?.address.addr())
    }

    /// Where the memory is.
    #[getter]
    fn device<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        device::to_python(py, self.get()?.device)
    }

    /// Number of bytes that were requested.
    #[getter]
    fn bytes(&self) -> Result<usize> {
        Ok(self.get()?.bytes)
    }

    /// Makes `stream` wait, on the device, until the memory may be touched.
    fn wait(&self, stream: &Bound<'_, PyAny>) -> Result<()> {
        let memory = self.get()?;
        Ok(memory.ready.wait(memory.stream(stream::number(stream)?)?)?)
    }

    /// Waits until anybody may touch the memory.
    ///
    /// For memory in the order of a stream, this is when the work that was queued there before is done.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let memory = self.get()?;
        Ok(py.detach(|| memory.synchronize())?)
    }

    /// Refuses. Without this, NumPy would make an array of one object.
    #[pyo3(signature = (*_arguments, **_options))]
    fn __array__(&self, _arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Result<()> {
        wrong_type!("Memory has no elements: empty(shape, dtype, manager=manager) makes a Tensor, which NumPy takes")
    }

    /// Gives the memory back. Closing again does nothing.
    fn close(&self, py: Python<'_>) {
        self.0.close_apart(py);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        match self.get() {
            Ok(memory) => format!("<devexchange.Memory of {} bytes on {}>", memory.bytes, memory.device),
            Err(_) => "<devexchange.Memory closed>".to_owned(),
        }
    }
}
