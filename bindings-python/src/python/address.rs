//! Addresses of structs, as arguments.

use pyo3::prelude::*;

use crate::python::argument;

/// A number that a program uses as an address.
pub(crate) struct Address(usize);

impl Address {
    /// The address as a pointer.
    pub(crate) fn pointer<T>(self) -> *mut T {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

impl<'py> FromPyObject<'_, 'py> for Address {
    type Error = PyErr;

    fn extract(number: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(argument::size(&number, "address")?))
    }
}
