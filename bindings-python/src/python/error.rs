//! The one place where errors become exceptions.

use core::ffi::CStr;
use std::borrow::Cow;

use devexchange_core::abi::types::{self as t, DevxStatus};
use devexchange_core::{Error as CoreError, Refused};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyException, PyMemoryError, PyNotImplementedError};
use pyo3::prelude::*;

use crate::python::class::Class;
use crate::python::objects;

/// Why a call fails: an error of the core, or an exception.
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
    /// Whether this is an exception that ends the program, which must not be recovered from.
    pub(crate) fn is_end(&self, py: Python<'_>) -> bool {
        matches!(self, Self::Python(raised) if !is_error(py, raised))
    }

    /// This error as an exception.
    pub(crate) fn raised(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Python(error) => error,
            Self::Refused(error) => exception(py, &error),
        }
    }

    /// This error with `first`, the error that led to this attempt, as its cause, unless it has a cause already.
    pub(crate) fn after(self, first: Self, py: Python<'_>) -> Self {
        let raised = PyErr::from(self);
        if raised.cause(py).is_none() {
            raised.set_cause(py, Some(first.into()));
        }
        Self::Python(raised)
    }

    /// This error as NumPy's protocol (`__array__`) wants it: a `ValueError` if a copy is needed but not allowed.
    pub(crate) fn for_numpy(self, py: Python<'_>) -> Self {
        match self {
            Self::Refused(error) if error.status() == t::DEVX_COPY_REQUIRED => {
                Self::Python(of_kind(py, &INVALID_VALUE, &error))
            }
            other => other,
        }
    }

    /// This error with `context` before its text. An exception stays as it is.
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
            refused @ Error::Refused(_) => Python::attach(|py| refused.raised(py)),
        }
    }
}

/// A kind of error: our class, and the name of the built-in exception that it also is (`_errors.py`).
struct Kind {
    class: Class,
    builtin: &'static CStr,
}

macro_rules! kinds {
    ($($NAME:ident = $name:literal, $builtin:literal;)*) => {
        $(static $NAME: Kind = Kind { class: Class::new("devexchange._errors", $name), builtin: $builtin };)*
        static CLASSES: &[(&str, &Class)] = &[("Error", &ERROR), $(($name, &$NAME.class)),*];
    };
}
kinds! {
    REFUSED = "Refused", c"BufferError";
    INVALID_VALUE = "InvalidValue", c"ValueError";
    INVALID_TYPE = "InvalidType", c"TypeError";
    OUT_OF_RANGE = "OutOfRange", c"IndexError";
    OUT_OF_MEMORY = "OutOfMemory", c"MemoryError";
    FAILED = "Failed", c"RuntimeError";
    SYSTEM_FAILED = "SystemFailed", c"OSError";
    TIMED_OUT = "TimedOut", c"TimeoutError";
}

/// The base class of all our exceptions.
static ERROR: Class = Class::new("devexchange._errors", "Error");

/// Puts all classes into the native module, from where the package takes them. If the package is imported anew in the same
/// process, it then has the classes that are raised, not others of the same names.
pub(crate) fn add_classes(module: &Bound<'_, PyModule>) -> PyResult<()> {
    CLASSES.iter().try_for_each(|(name, class)| module.add(*name, class.get(module.py())?))
}

/// The text of an exception as an error of the core, with its status if it is one of our exceptions and has one.
///
/// # Errors
/// An exception that ends the program and is raised meanwhile: Python checks for signals while it makes the text.
pub(super) fn in_words(py: Python<'_>, error: &PyErr) -> PyResult<CoreError> {
    let value = error.value(py);
    let text = match value.str() {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(raised) if is_error(py, &raised) => "<exception str() failed>".to_owned(),
        Err(end) => return Err(end),
    };
    let number = |name: &str| value.getattr(name).and_then(|number| number.extract::<i32>()).unwrap_or(0);
    if ERROR.get(py).is_ok_and(|class| value.is_instance(class).unwrap_or(false)) && number("status") != 0 {
        return Ok(CoreError::driver(DevxStatus(number("status")), number("driver_code"), text));
    }
    let status = if error.is_instance_of::<PyMemoryError>(py) {
        t::DEVX_OUT_OF_MEMORY
    } else if error.is_instance_of::<PyNotImplementedError>(py) {
        t::DEVX_UNSUPPORTED
    } else {
        t::DEVX_CALLBACK
    };
    let kind = value.get_type().qualname()?;
    Ok(CoreError::new(status, format_args!("{}: {text}", kind.to_string_lossy())))
}

/// Whether an exception is an error, not one that ends the program.
pub(crate) fn is_error(py: Python<'_>, raised: &PyErr) -> bool {
    raised.is_instance_of::<PyException>(py)
}

/// Returns the name of a status, for example "DEVX_INVALID_SHAPE"; "DEVX_?" for a number without a meaning.
#[pyfunction]
pub(crate) fn status_name(status: i32) -> Cow<'static, str> {
    devexchange_core::error::status_name(DevxStatus(status)).map_or("DEVX_?".into(), CStr::to_string_lossy)
}

fn kind(status: DevxStatus) -> &'static Kind {
    match status {
        t::DEVX_OUT_OF_MEMORY => &OUT_OF_MEMORY,
        t::DEVX_OUT_OF_RANGE => &OUT_OF_RANGE,
        t::DEVX_MISMATCH => &INVALID_TYPE,
        t::DEVX_DRIVER | t::DEVX_CALLBACK | t::DEVX_BUSY | t::DEVX_PANIC => &FAILED,
        t::DEVX_SYSTEM => &SYSTEM_FAILED,
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

/// The name of the built-in exception for a status, for callers that must not call Python.
pub(crate) fn builtin(status: DevxStatus) -> &'static CStr {
    kind(status).builtin
}

pub(crate) fn exception(py: Python<'_>, error: &CoreError) -> PyErr {
    of_kind(py, if error.is_late() { &TIMED_OUT } else { kind(error.status()) }, error)
}

/// The error for a result that did not come within the caller's time.
pub(crate) fn timed_out(py: Python<'_>, error: &CoreError) -> Error {
    Error::Python(of_kind(py, &TIMED_OUT, error))
}

fn of_kind(py: Python<'_>, kind: &Kind, error: &CoreError) -> PyErr {
    let made = objects::text(py, error.message()).and_then(|text| {
        let exception = kind.class.make(py, (text, error.status().0, error.driver_code()))?;
        // Only `OSError` and its subclasses have this attribute.
        if error.errno() != 0 && (error.status() == t::DEVX_SYSTEM || error.is_late()) {
            exception.setattr("errno", error.errno())?;
        }
        Ok(exception)
    });
    made.map_or_else(|error| error, PyErr::from_value)
}

/// A built-in exception with a text. PyO3 makes the text only when it raises the exception, and then ends the process if Python
/// has no memory for it.
pub(crate) fn built_in<T: PyTypeInfo>(text: String) -> PyErr {
    let made = Python::try_attach(|py| match objects::text(py, &text) {
        Ok(text) => PyErr::new::<T, _>(text.unbind()),
        Err(error) => error,
    });
    made.unwrap_or_else(|| PyErr::new::<T, _>(text))
}

/// `Err` with a status constant of `devexchange_core::abi::types` and a formatted text.
macro_rules! refuse {
    ($status:ident, $($text:tt)*) => {
        Err($crate::python::error::Error::Refused(devexchange_core::Error::new(
            devexchange_core::abi::types::$status,
            format_args!($($text)*),
        )))
    };
}
pub(crate) use refuse;

/// `Err` with a `TypeError`: an argument is not the kind of Python object that is needed.
macro_rules! wrong_type {
    ($($text:tt)*) => {
        Err($crate::python::error::Error::Python($crate::python::error::built_in::<pyo3::exceptions::PyTypeError>(format!(
            $($text)*
        ))))
    };
}
pub(crate) use wrong_type;
