//! Conversions between C and the engine: nullable outputs, strings, arrays, and results as numbers.

use simcuda::{Attribute, Code, CuResult, Sim};
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// A place to write a result to, or NULL.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// The place, or the error for NULL. Checked before a call does anything that would be lost.
pub(crate) fn out<T>(place: Out<'_, T>) -> CuResult<&mut MaybeUninit<T>> {
    place.ok_or(Code::INVALID_VALUE)
}

/// Runs the body of an entry point. A panic must not cross into C.
pub(crate) fn guard(body: impl FnOnce(&Sim) -> CuResult<()>) -> u32 {
    let sim = crate::sim();
    match catch_unwind(AssertUnwindSafe(|| body(&sim))) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => Code::UNKNOWN.0,
    }
}

/// An exported function, for look-ups by name.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) at: *const (),
}

// SAFETY: the pointer is the address of a function, which never changes.
unsafe impl Sync for Entry {}

/// Defines exported functions of the driver and a table of them. Each body gets the simulator under the name given
/// first and returns `CuResult<()>`.
macro_rules! entry_points {
    ($table:ident, $sim:ident; $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($($arg: $ty),*) -> u32 {
                $crate::glue::guard(|$sim| $body)
            }
        )*
        pub(crate) static $table: &[$crate::glue::Entry] =
            &[$($crate::glue::Entry { name: stringify!($name), at: $name as *const () }),*];
    };
}
pub(crate) use entry_points;

/// The text of a C string, or `None` for NULL and for invalid UTF-8.
pub(crate) fn text<'a>(at: *const c_char) -> Option<&'a str> {
    if at.is_null() {
        return None;
    }
    // SAFETY: a caller of a C function that takes a string passes NULL or a string that ends in NUL.
    unsafe { CStr::from_ptr(at) }.to_str().ok()
}

/// Writes a string and its NUL into a buffer, cut to its length; returns the length of the whole text.
pub(crate) fn put_text(text: &str, buffer: *mut c_char, len: usize) -> usize {
    let n = text.len().min(len.saturating_sub(1));
    if let (Some(to), true) = (NonNull::new(buffer.cast::<u8>()), len > 0) {
        // SAFETY: the caller's buffer has `len` bytes, more than `n`; the text has at least `n`.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to.as_ptr(), n) };
        // SAFETY: `n` is less than `len`, so the end is inside the buffer.
        let end = unsafe { to.add(n) };
        // SAFETY: as above.
        unsafe { end.write(0) };
    }
    text.len()
}

/// An array given as pointer and length; empty for NULL.
pub(crate) fn array<'a, T>(at: *const T, n: usize) -> &'a [T] {
    if at.is_null() || n == 0 {
        return &[];
    }
    // SAFETY: the caller of a C function that takes an array passes NULL or so many elements.
    unsafe { std::slice::from_raw_parts(at, n) }
}

/// Writes an attribute in its own width.
pub(crate) fn put_attribute(to: NonNull<u8>, value: Attribute) {
    match value {
        // SAFETY: for this attribute, the caller passes a pointer to an `unsigned int`.
        Attribute::Unsigned(v) => unsafe { to.cast::<u32>().write_unaligned(v) },
        // SAFETY: for this attribute, the caller passes a pointer to an `int`.
        Attribute::Signed(v) => unsafe { to.cast::<i32>().write_unaligned(v) },
        // SAFETY: for this attribute, the caller passes a pointer to a pointer, a size or a 64-bit number.
        Attribute::Wide(v) => unsafe { to.cast::<u64>().write_unaligned(v) },
    }
}

/// Reads the 32-bit or 64-bit number to which an attribute is set.
pub(crate) fn get_number(from: Option<NonNull<u8>>, wide: bool) -> CuResult<u64> {
    let from = from.ok_or(Code::INVALID_VALUE)?;
    Ok(match wide {
        // SAFETY: the caller passes a pointer to a number of the attribute's width.
        true => unsafe { from.cast::<u64>().read_unaligned() },
        // SAFETY: as above.
        false => u64::from(unsafe { from.cast::<u32>().read_unaligned() }),
    })
}

/// 64 opaque bytes that C passes by value or by pointer.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Opaque64(pub(crate) [u8; 64]);

/// An address that a C caller vouches for.
pub(crate) fn addr(raw: u64) -> simcuda::Addr {
    // SAFETY: a caller of a copy or a registration passes memory that is valid for it; that is the call's contract.
    unsafe { simcuda::Addr::any(raw) }
}
