//! What went wrong: a status, the driver's code where there is one, and a text that names the field and the value.

use std::any::Any;
use std::borrow::Cow;
use std::ffi::CStr;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::types::{self as t, DevxError, DevxStatus as Status};
use crate::text;

/// The reason of a refusal. Nothing was taken and no output was written.
///
/// One pointer, so that a result which is not an error is returned in registers.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Reason>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Reason {
    status: Status,
    driver_code: i32,
    errno: i32,
    message: Cow<'static, str>,
}

/// Result of the fallible functions of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of the library itself or of its input.
    pub fn new(status: Status, message: impl Into<Cow<'static, str>>) -> Self {
        Self::of(status, 0, 0, message.into())
    }

    fn of(status: Status, driver_code: i32, errno: i32, message: Cow<'static, str>) -> Self {
        Self(Box::new(Reason { status, driver_code, errno, message }))
    }

    /// An error of the device driver.
    pub fn driver(status: Status, driver_code: i32, message: impl Into<Cow<'static, str>>) -> Self {
        Self::of(status, driver_code, 0, message.into())
    }

    /// An error of a foreign callback that returned an `errno` code (Arrow C stream interface, "Error codes").
    pub(crate) fn callback(errno: i32, message: impl Into<Cow<'static, str>>) -> Self {
        Self::of(t::DEVX_CALLBACK, 0, errno, message.into())
    }

    /// An error of the operating system.
    pub(crate) fn system(call: &str, errno: rustix::io::Errno) -> Self {
        let errno = errno.raw_os_error();
        let text = format!("{call}: {}", std::io::Error::from_raw_os_error(errno));
        Self::of(t::DEVX_SYSTEM, 0, errno, text.into())
    }

    /// What a panic says that was caught at a boundary: a defect of this library, told as an error.
    pub fn panicked(payload: Box<dyn Any + Send>) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        // A payload may panic in its own drop; the second payload is leaked rather than dropped.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
        Self::new(t::DEVX_PANIC, text.unwrap_or_else(|| "a panic without a text".to_owned()))
    }

    /// The status that the C API returns for this error.
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// The same error with another status, for a caller to whom it means something else.
    pub(crate) fn with_status(mut self, status: Status) -> Self {
        self.0.status = status;
        self
    }

    /// Code of the failed device driver call, or 0.
    pub fn driver_code(&self) -> i32 {
        self.0.driver_code
    }

    /// What a foreign callback or the operating system returned (`errno`), or 0.
    pub fn errno(&self) -> i32 {
        self.0.errno
    }

    /// The text, without the status.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// As the C record, whose text is cut if it is too long.
    pub fn to_raw(&self) -> DevxError {
        let mut message = [0; t::DEVX_ERROR_MESSAGE_BYTES];
        text::fill(self.message(), &mut message);
        DevxError { status: self.0.status, driver_code: self.0.driver_code, message }
    }

    /// The same error, said of a part: `context` is put before the text.
    #[must_use]
    pub fn within(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context}{}", self.0.message).into();
        self
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}

/// A refusal that gives back what the call was given.
#[derive(Debug)]
pub struct Refused<T> {
    /// Why.
    pub error: Error,
    /// What was not taken.
    pub returned: T,
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

/// Runs what may panic; a panic ends here, as an error.
///
/// # Errors
/// What `act` returns; `DEVX_PANIC`.
pub fn caught<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|payload| Err(Error::panicked(payload)))
}

/// Makes an error, out of the way of what usually happens.
#[cold]
#[inline(never)]
pub(crate) fn refused(make: impl FnOnce() -> Error) -> Error {
    make()
}

/// `Err` with a status constant of [`crate::abi::types`] and a formatted text.
macro_rules! refuse {
    ($status:ident, $($text:tt)*) => {
        Err($crate::error::refused(move || $crate::error::Error::new($crate::abi::types::$status, format!($($text)*))))
    };
}
pub(crate) use refuse;

macro_rules! names {
    ($($name:ident)*) => {
        /// The constant's name, for example `DEVX_INVALID_SHAPE`; `None` for a number without a meaning.
        pub fn status_name(status: Status) -> Option<&'static CStr> {
            $(if status == t::$name {
                return CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()).ok();
            })*
            None
        }

        /// Every status that has a meaning.
        pub const STATUSES: &[Status] = &[$(t::$name),*];
    };
}
names! {
    DEVX_OK DEVX_NULL_ARGUMENT DEVX_INVALID_ARGUMENT DEVX_RELEASED DEVX_CLOSED DEVX_INVALID_FORMAT
    DEVX_INVALID_DTYPE DEVX_INVALID_SHAPE DEVX_INVALID_LENGTH DEVX_INVALID_NULL_COUNT DEVX_INVALID_BUFFERS
    DEVX_INVALID_CHILDREN DEVX_INVALID_METADATA DEVX_MISMATCH DEVX_TOO_DEEP DEVX_VERSION DEVX_DEVICE
    DEVX_UNSUPPORTED DEVX_COPY_REQUIRED DEVX_IMPOSSIBLE DEVX_READ_ONLY DEVX_OUT_OF_MEMORY DEVX_INVALID_TEXT
    DEVX_OUT_OF_RANGE DEVX_INVALID_STREAM DEVX_NOT_READY DEVX_DRIVER DEVX_CALLBACK DEVX_BUSY
    DEVX_SYSTEM DEVX_PANIC
}
