//! Arrow C stream interface (source of `arrow/c/stream.h`): arrays of one type, one after the other.

use super::arrow_data::{ArrowArray, ArrowSchema};
use core::ffi::{c_char, c_int, c_void};

/// A source of arrays, from which the consumer pulls with one call at a time.
///
/// The functions that return `int` return 0, or an `errno` code.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrowArrayStream {
    /// Writes the type that all arrays have. The caller owns it, independently of the stream.
    pub get_schema: Option<unsafe extern "C" fn(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int>,
    /// Writes the next array, or a released one at the end. The caller owns it, independently of the
    /// stream.
    pub get_next: Option<unsafe extern "C" fn(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int>,
    /// Gives a text about the last call if that failed, or NULL. It is valid until the next call.
    pub get_last_error: Option<unsafe extern "C" fn(stream: *mut ArrowArrayStream) -> *const c_char>,
    /// Releases the stream, not the arrays that it gave; sets its own `release` to NULL.
    pub release: Option<unsafe extern "C" fn(stream: *mut ArrowArrayStream)>,
    /// For the producer's own use.
    pub private_data: *mut c_void,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<ArrowArrayStream>() == 40);
