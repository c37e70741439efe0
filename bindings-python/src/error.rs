//! The one place where errors become exceptions.

use devexchange_core::abi::types::{self as t, DevxStatus};
use devexchange_core::{Error as CoreError, Refused};
use pyo3::prelude::*;

use crate::python::Class;

/// Why a call fails: the core's reason, or an exception.
pub(crate) enum Error {
    Refused(CoreError),
    Python(PyErr),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl From<CoreError> for Error {
    fn from(error: CoreError) -> Self {
        Self::Refused(error)
    }
}

impl Error {
    /// The same reason, said of a part. An exception stays as it is.
    pub(crate) fn within(self, context: &str) -> Self {
        match self {
            Self::Refused(error) => Self::Refused(error.within(context)),
            raised @ Self::Python(_) => raised,
        }
    }
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        Self::Refused(refused.error)
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            Error::Python(error) => error,
            Error::Refused(error) => Python::attach(|py| exception(py, &error)),
        }
    }
}

macro_rules! classes {
    ($($NAME:ident = $name:literal;)*) => {
        $(static $NAME: Class = Class::new("devexchange._errors", $name);)*
    };
}
classes! {
    REFUSED = "Refused";
    INVALID_VALUE = "InvalidValue";
    INVALID_TYPE = "InvalidType";
    OUT_OF_RANGE = "OutOfRange";
    OUT_OF_MEMORY = "OutOfMemory";
    FAILED = "Failed";
}

/// Which class says it: see `_errors.py`, where each is also an exception of Python's own.
fn class(status: DevxStatus) -> &'static Class {
    match status {
        t::DEVX_OUT_OF_MEMORY => &OUT_OF_MEMORY,
        t::DEVX_OUT_OF_RANGE => &OUT_OF_RANGE,
        t::DEVX_MISMATCH => &INVALID_TYPE,
        t::DEVX_DRIVER | t::DEVX_CALLBACK | t::DEVX_BUSY | t::DEVX_PANIC => &FAILED,
        t::DEVX_VERSION
        | t::DEVX_DEVICE
        | t::DEVX_UNSUPPORTED
        | t::DEVX_COPY_REQUIRED
        | t::DEVX_IMPOSSIBLE
        | t::DEVX_READ_ONLY
        | t::DEVX_NOT_READY => &REFUSED,
        _ => &INVALID_VALUE,
    }
}

fn exception(py: Python<'_>, error: &CoreError) -> PyErr {
    let arguments = (error.message(), error.status().0, error.driver_code());
    match class(error.status()).make(py, arguments) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// `Err` with a status constant of `devexchange_core::abi::types` and a formatted text.
macro_rules! refuse {
    ($status:ident, $($text:tt)*) => {
        Err($crate::error::Error::Refused(devexchange_core::Error::new(
            devexchange_core::abi::types::$status,
            format!($($text)*),
        )))
    };
}
pub(crate) use refuse;

/// `Err` with a `TypeError`: what was given is not the kind of Python object that is needed.
macro_rules! wrong_type {
    ($($text:tt)*) => {
        Err($crate::error::Error::Python(pyo3::exceptions::PyTypeError::new_err(format!($($text)*))))
    };
}
pub(crate) use wrong_type;
