//! Arrow C device stream interface (source of `arrow/c/device_stream.h`): arrays of one type on one
//! device, one after the other.

use super::arrow_data::ArrowSchema;
use super::arrow_device::{ArrowDeviceArray, ArrowDeviceType};
use core::ffi::{c_char, c_int, c_void};

/// A source of arrays on one device; otherwise like `ArrowArrayStream`.
///
/// The functions that return `int` return 0, or an `errno` code.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrowDeviceArrayStream {
    /// Kind of the device that all arrays lie on, one of `ARROW_DEVICE_…`.
    pub device_type: ArrowDeviceType,
    /// Writes the type that all arrays have, in main memory. The caller owns it, independently of the
    /// stream.
    pub get_schema: Option<unsafe extern "C" fn(stream: *mut ArrowDeviceArrayStream, out: *mut ArrowSchema) -> c_int>,
    /// Writes the next array, or a released one at the end. The caller owns it, independently of the
    /// stream.
    pub get_next:
        Option<unsafe extern "C" fn(stream: *mut ArrowDeviceArrayStream, out: *mut ArrowDeviceArray) -> c_int>,
    /// Gives a text about the last call if that failed, or NULL. It is valid until the next call.
    pub get_last_error: Option<unsafe extern "C" fn(stream: *mut ArrowDeviceArrayStream) -> *const c_char>,
    /// Releases the stream, not the arrays that it gave; sets its own `release` to NULL.
    pub release: Option<unsafe extern "C" fn(stream: *mut ArrowDeviceArrayStream)>,
    /// For the producer's own use.
    pub private_data: *mut c_void,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<ArrowDeviceArrayStream>() == 48);
