//! The one place where errors and panics become a status and an error record, and where pointers are checked.

use core::ffi::CStr;
use core::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use devexchange_core::abi::types;
use devexchange_core::memory::collected;
use devexchange_core::{Error, Result};

use crate::ctypes::{Char, ErrorRecord, Status};

/// Runs the body of a function, and makes a status of its error or panic.
#[inline(always)]
pub(crate) fn guard(record: Option<&mut ErrorRecord>, body: impl FnOnce() -> Result<()>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status(types::DEVX_OK),
        Ok(Err(error)) => failed(record, error),
        Err(payload) => failed(record, Error::panicked(payload)),
    }
}

/// Fills in the record; apart from [`guard`], so that a call that succeeds needs no stack space for a text.
#[cold]
#[inline(never)]
fn failed(record: Option<&mut ErrorRecord>, error: Error) -> Status {
    if let Some(record) = record {
        record.0 = error.to_raw();
    }
    Status(error.status())
}

/// Runs the body of a release function, which cannot report a panic.
#[inline(always)]
pub(crate) fn guard_release(body: impl FnOnce()) {
    guard(None, || {
        body();
        Ok(())
    });
}

/// An argument that must not be NULL.
#[inline]
pub(crate) fn required<T>(argument: Option<T>, name: &'static str) -> Result<T> {
    match argument {
        Some(argument) => Ok(argument),
        None => Err(missing(name)),
    }
}

#[cold]
pub(crate) fn missing(name: impl Display) -> Error {
    Error::new(types::DEVX_NULL_ARGUMENT, format_args!("{name} is NULL"))
}

/// A text argument; `None` for NULL.
///
/// # Safety
/// `text` is NULL or NUL-terminated, and outlives the result.
pub(crate) unsafe fn text<'a>(text: *const Char, name: impl Display) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    let text = unsafe { CStr::from_ptr(text.cast()) };
    match text.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Error::new(types::DEVX_INVALID_TEXT, format_args!("{name} is not valid UTF-8: {text:?}"))),
    }
}

/// A text argument that must not be NULL.
///
/// # Safety
/// Same as [`text`].
pub(crate) unsafe fn required_text<'a>(given: *const Char, name: &'static str) -> Result<&'a str> {
    // SAFETY: the caller's contract.
    unsafe { text(given, name) }?.ok_or_else(|| missing(name))
}

/// A list of texts, none of which may be NULL.
///
/// # Safety
/// `first` is NULL or has `length` texts, each NULL or NUL-terminated, that outlive the result.
pub(crate) unsafe fn texts<'a>(first: *const *const Char, length: usize, name: &'static str) -> Result<Vec<&'a str>> {
    // SAFETY: the caller's contract.
    let list = unsafe { list(first, length, name) }?.iter().enumerate();
    collected(list.map(|(i, &one)| {
        // SAFETY: the caller's contract.
        let one = unsafe { text(one, format_args!("{name}[{i}]")) }?;
        one.ok_or_else(|| missing(format_args!("{name}[{i}]")))
    }))
}

/// A list argument, whose address may be NULL if the list is empty.
///
/// # Safety
/// `first` is NULL or has `length` values that outlive the result.
pub(crate) unsafe fn list<'a, T>(first: *const T, length: usize, name: &'static str) -> Result<&'a [T]> {
    if length == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(Error::new(types::DEVX_NULL_ARGUMENT, format_args!("{name} is NULL with {length} entries")));
    }
    if length > isize::MAX as usize / size_of::<T>() {
        return Err(Error::new(types::DEVX_INVALID_ARGUMENT, format_args!("{name} has {length} entries")));
    }
    // SAFETY: the caller's contract.
    Ok(unsafe { std::slice::from_raw_parts(first, length) })
}

/// Like [`list`], but for values that are written.
///
/// # Safety
/// Same as [`list`]; also, nobody else uses the values meanwhile.
pub(crate) unsafe fn list_mut<'a, T>(first: *mut T, length: usize, name: &'static str) -> Result<&'a mut [T]> {
    // SAFETY: the caller's contract.
    let length = unsafe { list(first.cast_const(), length, name) }?.len();
    let first = if length == 0 { std::ptr::NonNull::dangling().as_ptr() } else { first };
    // SAFETY: the caller's contract.
    Ok(unsafe { std::slice::from_raw_parts_mut(first, length) })
}

/// Defines a handle: the address of a counted reference, as C holds it.
macro_rules! handle {
    ($(#[$doc:meta])* $Handle:ident = $c_name:literal of $Core:ty) => {
        $(#[$doc])*
        #[safer_ffi::derive_ReprC(rename = $c_name)]
        #[repr(opaque)]
        pub(crate) struct $Handle {
            _opaque: (),
        }

        impl $Handle {
            /// Hands the reference to C, as the address that is returned.
            pub(crate) fn give(value: $Core) -> *mut Self {
                value.into_raw().cast()
            }

            /// Borrows the reference that C holds.
            ///
            /// # Safety
            /// `handle` is NULL or a living handle. It is not released while the result is used, and no other call uses it
            /// while `produced_on` of the result runs.
            pub(crate) unsafe fn borrow<'a>(
                handle: *const Self,
                name: &'static str,
            ) -> devexchange_core::Result<devexchange_core::Borrowed<'a, $Core>> {
                let handle = $crate::error::required((!handle.is_null()).then_some(handle), name)?;
                // SAFETY: the caller's contract.
                Ok(unsafe { <$Core>::borrow_raw(handle.cast_mut().cast()) })
            }

            /// Takes the reference from C and sets its handle to NULL; `None` if it was NULL.
            ///
            /// # Safety
            /// `*handle` is NULL or a living handle.
            pub(crate) unsafe fn take(handle: Option<&mut *mut Self>) -> Option<$Core> {
                let taken = std::mem::replace(handle?, std::ptr::null_mut());
                // SAFETY: the caller's contract; the handle is NULL now, so it is taken once.
                (!taken.is_null()).then(|| unsafe { <$Core>::from_raw(taken.cast()) })
            }
        }
    };
}
pub(crate) use handle;

/// Defines `hand_over` for handles that a call gives up if it succeeds.
macro_rules! handed_over {
    ($Handle:ident of $Core:ty, $name:literal) => {
        impl $Handle {
            /// Passes the reference that C holds to `take` and sets the handle to NULL; if `take` refuses it, the handle is as
            /// before.
            ///
            /// # Safety
            /// `*handle` is NULL or a living handle.
            pub(crate) unsafe fn hand_over<T>(
                handle: Option<&mut *mut Self>,
                take: impl FnOnce($Core) -> std::result::Result<T, devexchange_core::Refused<$Core>>,
            ) -> devexchange_core::Result<T> {
                let handle = $crate::error::required(handle, $name)?;
                // SAFETY: the caller's contract.
                let taken = unsafe { Self::take(Some(&mut *handle)) };
                let taken = $crate::error::required(taken, concat!("*", $name))?;
                take(taken).map_err(|refused| {
                    *handle = Self::give(refused.returned);
                    refused.error
                })
            }
        }
    };
}
pub(crate) use handed_over;

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing_said() -> ErrorRecord {
        ErrorRecord(Error::new(types::DEVX_OK, "").to_raw())
    }

    #[test]
    fn a_panic_becomes_a_status_and_a_text() {
        let mut record = nothing_said();
        let status = guard(Some(&mut record), || std::panic::resume_unwind(Box::new("a test")));
        assert_eq!(status.0, types::DEVX_PANIC);
        assert_eq!(record.0.status, types::DEVX_PANIC);
        assert_eq!(devexchange_core::text::read(&record.0.message).0, b"a test");
        assert_eq!(guard(None, || std::panic::resume_unwind(Box::new("a test"))).0, types::DEVX_PANIC);
    }

    #[test]
    fn a_release_does_not_unwind() {
        guard_release(|| std::panic::resume_unwind(Box::new("a test")));
    }
}
