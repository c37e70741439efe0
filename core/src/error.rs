//! Errors: a status, the driver's code if there is one, and a text that names the field and the value.

use std::any::Any;
use std::borrow::Cow;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fmt, io};

use crate::abi::types::{self as t, DevxError, DevxStatus as Status};
use crate::text;
use crate::vacant::Vacant;

/// The reason for a refusal. Nothing was taken and no output was written.
///
/// One pointer, so that a result which is not an error is returned in registers.
#[derive(PartialEq, Eq)]
pub struct Error(Option<Box<Reason>>);

const NO_MEMORY: &str = "there is no memory, not even to say what failed";

/// The reason of an error for which there is no memory.
static UNSAID: Reason =
    Reason { status: t::DEVX_OUT_OF_MEMORY, driver_code: 0, errno: 0, message: Cow::Borrowed(NO_MEMORY) };

#[derive(PartialEq, Eq)]
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
    pub fn new(status: Status, message: impl Into<Text>) -> Self {
        Self::of(status, 0, 0, message)
    }

    /// If there is no memory for the error, it is `DEVX_OUT_OF_MEMORY` instead.
    fn of(status: Status, driver_code: i32, errno: i32, text: impl Into<Text>) -> Self {
        let reason = text.into().0.map(|message| Reason { status, driver_code, errno, message });
        Self(reason.and_then(|reason| Some(Vacant::find()?.fill(reason))))
    }

    /// The error that there is no memory for so many bytes; 0 if the number is not known.
    pub(crate) fn no_memory(bytes: usize) -> Self {
        let text = format_args!("{bytes} bytes could not be allocated");
        refused(|| if bytes == 0 { Self(None) } else { Self::new(t::DEVX_OUT_OF_MEMORY, text) })
    }

    fn reason(&self) -> &Reason {
        self.0.as_deref().unwrap_or(&UNSAID)
    }

    /// An error of the device driver.
    pub fn driver(status: Status, driver_code: i32, message: impl Into<Text>) -> Self {
        Self::of(status, driver_code, 0, message)
    }

    /// An error of a callback, with an `errno` code (Arrow C stream interface, "Error codes"): a foreign callback returned it,
    /// or your own source returns it to a consumer in C. The status is `DEVX_CALLBACK`.
    pub fn callback(errno: i32, message: impl Into<Text>) -> Self {
        Self::of(t::DEVX_CALLBACK, 0, errno, message)
    }

    /// The error that a wait has reached its time limit.
    pub(crate) fn late(message: impl Into<Text>) -> Self {
        Self::of(t::DEVX_NOT_READY, 0, rustix::io::Errno::TIMEDOUT.raw_os_error(), message)
    }

    /// An error of the operating system.
    pub(crate) fn system(call: &str, errno: rustix::io::Errno) -> Self {
        let errno = errno.raw_os_error();
        Self::of(t::DEVX_SYSTEM, 0, errno, format_args!("{call}: {}", text::OfErrno(errno)))
    }

    /// Turns a panic that was caught at a boundary, which is a defect of this library, into an error with its text.
    pub fn panicked(payload: Box<dyn Any + Send>) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let error = Self::new(t::DEVX_PANIC, format_args!("{}", text.unwrap_or("a panic without a text")));
        // A payload may panic in its own drop; the second payload is leaked rather than dropped.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
        error
    }

    /// The status that the C API returns for this error. The constants are in [`abi::types`](crate::abi::types), with what each
    /// of them means:
    ///
    /// ```
    /// use devexchange_core::abi::types::{DEVX_COPY_REQUIRED, DEVX_DEVICE};
    /// use devexchange_core::{Result, Tensor};
    ///
    /// fn sum(tensor: &Tensor) -> Result<f64> {
    ///     match tensor.as_slice::<f64>() {
    ///         Ok(elements) => Ok(elements.iter().sum()),
    ///         Err(error) if error.status() == DEVX_COPY_REQUIRED => sum(&tensor.copy()?),
    ///         Err(error) if error.status() == DEVX_DEVICE => Err(error.within("copy it to the host first: ")),
    ///         Err(error) => Err(error),
    ///     }
    /// }
    ///
    /// let matrix = Tensor::from_vec(vec![1.0, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(sum(&matrix.slice(1, 0, 1)?)?, 4.0);
    /// # Ok::<(), devexchange_core::Error>(())
    /// ```
    pub fn status(&self) -> Status {
        self.reason().status
    }

    /// The same error with another status, where it means something else to the caller.
    pub(crate) fn with_status(mut self, status: Status) -> Self {
        match &mut self.0 {
            Some(reason) => reason.status = status,
            None => return Self::new(status, NO_MEMORY),
        }
        self
    }

    /// The same error with the code of a driver call that it follows from.
    pub(crate) fn with_driver_code(mut self, driver_code: i32) -> Self {
        if let Some(reason) = &mut self.0 {
            reason.driver_code = driver_code;
        }
        self
    }

    /// Code of the failed device driver call, or 0.
    pub fn driver_code(&self) -> i32 {
        self.reason().driver_code
    }

    /// Whether a wait has reached its time limit.
    pub fn is_late(&self) -> bool {
        self.status() == t::DEVX_NOT_READY && self.errno() == rustix::io::Errno::TIMEDOUT.raw_os_error()
    }

    /// The `errno` code that a foreign callback or the operating system returned; `ETIMEDOUT` if a wait has reached its time
    /// limit ([`Error::is_late`]); otherwise 0.
    pub fn errno(&self) -> i32 {
        self.reason().errno
    }

    /// The text, without the status.
    pub fn message(&self) -> &str {
        &self.reason().message
    }

    /// The error as the C record, whose text is cut if it is too long.
    pub fn to_raw(&self) -> DevxError {
        let mut message = [0; t::DEVX_ERROR_MESSAGE_BYTES];
        text::fill(self.message(), &mut message);
        DevxError { status: self.status(), driver_code: self.driver_code(), message }
    }

    /// The same error with `context` put before its text, to say which part it is about.
    #[must_use]
    pub fn within(mut self, context: impl fmt::Display) -> Self {
        let text = text::formatted(format_args!("{context}{}", self.message()));
        if let (Some(reason), Some(text)) = (&mut self.0, text) {
            reason.message = text;
        }
        self
    }

    /// Like [`Error::within`], but for a named part, a "field" for example; unchanged if the name is empty.
    #[must_use]
    pub(crate) fn within_named(self, what: &str, name: &str) -> Self {
        if name.is_empty() { self } else { self.within(format_args!("{what} {}: ", text::Name(name))) }
    }
}

impl Clone for Error {
    fn clone(&self) -> Self {
        let Some(reason) = &self.0 else { return Self(None) };
        let text: Text = match &reason.message {
            Cow::Borrowed(text) => (*text).into(),
            Cow::Owned(text) => format_args!("{text}").into(),
        };
        Self::of(reason.status, reason.driver_code, reason.errno, text)
    }
}

/// The text of an error: static or formatted; none if there was no memory for it.
#[derive(Debug)]
pub struct Text(Option<Cow<'static, str>>);

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self(Some(text.into()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Some(text.into()))
    }
}

impl From<fmt::Arguments<'_>> for Text {
    fn from(text: fmt::Arguments<'_>) -> Self {
        Self(text::formatted(text))
    }
}

/// Formats the error for a program whose `main` returns it: the name of the status, the text, and the driver's code if
/// there is one.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reason { status, driver_code, message, .. } = self.reason();
        write!(f, "{status}: {message}")?;
        if *driver_code != 0 { write!(f, " (the driver's code is {driver_code})") } else { Ok(()) }
    }
}

/// Writes the name of the status, for example `DEVX_INVALID_SHAPE`.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match status_name(*self) {
            Some(name) => f.pad(&name.to_string_lossy()),
            None => write!(f, "status {}", self.0),
        }
    }
}

/// The same, as a failed comparison shows it.
impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}

/// An error of a program's own source or manager, which reads a file, for example: `DEVX_SYSTEM` with the code of the operating
/// system if there is one, otherwise `DEVX_CALLBACK` with an `errno` code that fits. An error of this library comes out as it
/// was.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        if let Some(ours) = error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            return ours.clone();
        }
        if let Some(errno) = error.raw_os_error() {
            return Self::of(t::DEVX_SYSTEM, 0, errno, format_args!("{error}"));
        }
        let errno = match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => libc::EINVAL,
            io::ErrorKind::Unsupported => libc::ENOTSUP,
            io::ErrorKind::OutOfMemory => libc::ENOMEM,
            _ => libc::EIO,
        };
        Self::callback(errno, format_args!("{error}"))
    }
}

/// The error of this library is in it, and the kind is that of its `errno` code.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match (error.errno(), error.status()) {
            (0, t::DEVX_OUT_OF_MEMORY) => io::ErrorKind::OutOfMemory,
            (0, t::DEVX_UNSUPPORTED) => io::ErrorKind::Unsupported,
            (0, _) => io::ErrorKind::Other,
            (errno, _) => Self::from_raw_os_error(errno).kind(),
        };
        Self::new(kind, error)
    }
}

/// A refusal that gives back what the call was given.
///
/// `?` makes an [`Error`] of it in a function that returns this crate's [`Result`]. In a function that returns another kind
/// of error (`anyhow::Error`, `Box<dyn Error>`), `?` keeps the `Refused` itself, and what was not taken with it;
/// `.map_err(Error::from)?` makes it an [`Error`] there, whose status a `downcast_ref` finds. An error type of your own that is
/// made of an [`Error`] needs the same.
pub struct Refused<T> {
    /// Why the call was refused.
    pub error: Error,
    /// What was not taken.
    pub returned: T,
}

/// Formats the error alone, for a program that unwraps it or whose `main` returns it: what was not taken can be a large vector.
impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<T> std::error::Error for Refused<T> {}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

/// Runs a function that may panic, and turns a panic into an error.
///
/// # Errors
/// The error that `act` returns; `DEVX_PANIC` if it panics.
pub fn caught<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|payload| Err(Error::panicked(payload)))
}

/// The text about a C callback that failed without an error text: its name, and the status that it returned.
#[derive(Clone, Copy, Debug)]
pub struct Returned<'a>(pub &'a str, pub Status);

impl fmt::Display for Returned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, status) = self;
        match status_name(*status) {
            Some(known) => write!(f, "{name} returned {}", known.to_string_lossy()),
            None => write!(f, "{name} returned {}", status.0),
        }
    }
}

/// Makes an error, kept out of line from the usual path.
#[cold]
#[inline(never)]
pub(crate) fn refused(make: impl FnOnce() -> Error) -> Error {
    make()
}

/// Makes an `Err` from a status constant of [`crate::abi::types`] and a formatted text.
macro_rules! refuse {
    ($status:ident, $($text:tt)*) => {
        Err($crate::error::refused(move || $crate::error::Error::new($crate::abi::types::$status, format_args!($($text)*))))
    };
}
pub(crate) use refuse;

macro_rules! names {
    ($($name:ident)*) => {
        /// The name of the constant, for example `DEVX_INVALID_SHAPE`; `None` for a number without a meaning.
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
