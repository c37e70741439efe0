//! The library itself: its version, and the names of statuses, element types and devices.

use core::ffi::CStr;
use core::fmt::Display;

use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{Char, DlDataType, DlDevice, ErrorRecord, Status};
use crate::error::{guard, list_mut, required, required_text};
use devexchange_core::abi::types::{DEVX_INVALID_ARGUMENT, DevxStatus};
use devexchange_core::arrow::TypeName;
use devexchange_core::memory::said;
use devexchange_core::{DType, Device, DeviceType, Error, Result, error, text};

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

const fn number(text: &str) -> u32 {
    match u32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

/// Returns the version of the library as major × 65536 + minor × 256 + patch; `DEVEXCHANGE_VERSION` is that of the header.
#[ffi_export]
fn devx_version() -> u32 {
    const {
        number(env!("CARGO_PKG_VERSION_MAJOR")) << 16
            | number(env!("CARGO_PKG_VERSION_MINOR")) << 8
            | number(env!("CARGO_PKG_VERSION_PATCH"))
    }
}

/// Returns the version of the library as text, for example "0.1.0". Never NULL, never freed.
#[ffi_export]
fn devx_version_string() -> *const Char {
    VERSION.as_ptr().cast()
}

/// Returns the name of a status, for example "DEVX_INVALID_SHAPE"; "DEVX_?" for a number without a meaning. Never NULL,
/// never freed.
#[ffi_export]
fn devx_status_name(status: Status) -> *const Char {
    name_of(status.0).as_ptr().cast()
}

fn name_of(status: DevxStatus) -> &'static CStr {
    error::status_name(status).unwrap_or(c"DEVX_?")
}

/// Writes the name of an element type, for example "float32".
///
/// The name and its terminating NUL go into the `capacity` bytes at `out`; 32 bytes are always enough.
/// `DEVX_INVALID_DTYPE` if the type is not one of DLPack's, `DEVX_UNSUPPORTED` for opaque handles, `DEVX_INVALID_ARGUMENT` if
/// there is not enough room.
#[ffi_export]
unsafe fn devx_dtype_name(
    dtype: DlDataType,
    out: *mut Char,
    capacity: usize,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives `capacity` bytes of its own, to be written.
    guard(error, || unsafe { write_name(DType::from_dlpack(dtype.0)?, out, capacity) })
}

/// Writes a readable name of the Arrow type that a format string stands for.
///
/// For example, "int64" for `l`, or "timestamp(microsecond, Europe/Berlin)" for `tsu:Europe/Berlin`. Writes at most `capacity`
/// bytes to `buffer`, including the terminating NUL; a longer name is cut at a character. `buffer` may be NULL if `capacity` is
/// 0. `*length` gets the length of the whole name in bytes, without the NUL. `DEVX_INVALID_FORMAT`, `DEVX_INVALID_TEXT`.
#[ffi_export]
unsafe fn devx_type_name(
    format: *const Char,
    buffer: *mut Char,
    capacity: usize,
    length: Option<Out<'_, usize>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let length = required(length, "length")?;
        // SAFETY: the caller gives NULL or a NUL-terminated text.
        let format = unsafe { required_text(format, "format") }?;
        // SAFETY: the caller gives `capacity` bytes of its own.
        let buffer = unsafe { list_mut(buffer.cast(), capacity, "buffer") }?;
        let name = said(format_args!("{}", TypeName::parse(format)?))?;
        text::fill(&name, buffer);
        length.write(name.len());
        Ok(())
    })
}

/// Writes the name of a device, for example "cuda:0".
///
/// The name and its terminating NUL go into the `capacity` bytes at `out`; 48 bytes are always enough. A device type without a
/// name is shown as its number. `DEVX_INVALID_ARGUMENT` if there is not enough room.
#[ffi_export]
unsafe fn devx_device_name(
    device: DlDevice,
    out: *mut Char,
    capacity: usize,
    error: Option<&mut ErrorRecord>,
) -> Status {
    let device = Device { kind: DeviceType(device.0.device_type), id: device.0.device_id };
    // SAFETY: the caller gives `capacity` bytes of its own, to be written.
    guard(error, || unsafe { write_name(device, out, capacity) })
}

/// # Safety
/// `out` is NULL, or `capacity` bytes that can be written.
unsafe fn write_name(name: impl Display, out: *mut Char, capacity: usize) -> Result<()> {
    let name = said(format_args!("{name}"))?;
    // SAFETY: the caller's contract.
    let out = unsafe { list_mut(out.cast(), capacity, "out") }?;
    if name.len() >= out.len() {
        let text = format_args!("capacity is {capacity}: {name:?} needs {}", name.len() + 1);
        return Err(Error::new(DEVX_INVALID_ARGUMENT, text));
    }
    text::fill(&name, out);
    Ok(())
}
