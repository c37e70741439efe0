//! What is written in Python and used from here: exceptions and records (`python/devexchange/_errors.py`,
//! `_types.py`), and methods that an object may have.

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

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

    /// A new object of the class.
    pub(crate) fn make<'py>(
        &self,
        py: Python<'py>,
        arguments: impl pyo3::call::PyCallArgs<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.get(py)?.call1(arguments)
    }
}

/// What a method gives that takes no arguments; none if the object has no such method. It is called without being
/// looked for first, and without an object for a method that is bound.
pub(crate) fn call_if_there<'py>(
    obj: &Bound<'py, PyAny>,
    method: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match obj.call_method0(method) {
        Ok(answer) => Ok(Some(answer)),
        // It may as well come from within the method.
        Err(error) if error.is_instance_of::<PyAttributeError>(obj.py()) && !obj.hasattr(method)? => Ok(None),
        Err(error) => Err(error),
    }
}
