//! Python classes that are instantiated from here: exceptions and records (`python/devexchange/_errors.py`, `_types.py`), and
//! some of the standard library.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::python::call::{Arguments, call};

/// A class of a Python module, looked up once.
pub(crate) struct Class {
    module: &'static str,
    name: &'static str,
    found: PyOnceLock<Py<PyType>>,
}

impl Class {
    pub(crate) const fn new(module: &'static str, name: &'static str) -> Self {
        Self { module, name, found: PyOnceLock::new() }
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyType>> {
        self.found.import(py, self.module, self.name)
    }

    /// Makes an instance of the class.
    pub(crate) fn make<'py>(&self, py: Python<'py>, arguments: impl Arguments<'py>) -> PyResult<Bound<'py, PyAny>> {
        call(self.get(py)?, arguments)
    }
}
