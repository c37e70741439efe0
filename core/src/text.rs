//! Texts in records of a fixed size, and texts for C.

use core::ffi::{CStr, c_char};
use std::borrow::Cow;
use std::ffi::CString;
use std::fmt::{self, Write};

/// Writes a text with its final NUL, cut between characters if there is not enough room. A NUL within the text becomes
/// `?`.
pub fn fill(text: &str, to: &mut [c_char]) {
    let Some(room) = to.len().checked_sub(1) else { return };
    let end = text.floor_char_boundary(room);
    for (to, from) in to.iter_mut().zip(text.bytes().take(end).map(visible).chain([0])) {
        *to = c_char::from_ne_bytes([from]);
    }
}

/// A text as a C string; `None` if there is no memory for it. A NUL within the text becomes `?`.
pub fn c_string(text: &str) -> Option<CString> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(text.len() + 1).ok()?;
    bytes.extend(text.bytes().map(visible).chain([0]));
    CString::from_vec_with_nul(bytes).ok()
}

/// A formatted text; `None` if there is no memory for it.
pub fn formatted(text: fmt::Arguments<'_>) -> Option<Cow<'static, str>> {
    struct Growing(String);
    impl Write for Growing {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.try_reserve(text.len()).map_err(|_| fmt::Error)?;
            self.0.push_str(text);
            Ok(())
        }
    }
    if let Some(text) = text.as_str() {
        return Some(text.into());
    }
    let mut grown = Growing(String::new());
    grown.write_fmt(text).ok()?;
    Some(grown.0.into())
}

/// The rest of a text that begins with `start`; `None` if it begins with something else.
pub fn without<'a>(text: &'a [u8], start: fmt::Arguments<'_>) -> Option<&'a [u8]> {
    struct Rest<'a>(&'a [u8]);
    impl Write for Rest<'_> {
        fn write_str(&mut self, start: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(start.as_bytes()).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = Rest(text);
    rest.write_fmt(start).ok()?;
    Some(rest.0)
}

/// The system's text for an `errno` code.
#[derive(Clone, Copy, Debug)]
pub struct OfErrno(pub i32);

impl fmt::Display for OfErrno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = [0; 128];
        // SAFETY: room for that many bytes. The last byte stays NUL, whatever is written.
        unsafe { libc::strerror_r(self.0, words.as_mut_ptr(), words.len() - 1) };
        // SAFETY: the last byte is a NUL.
        let words = unsafe { CStr::from_ptr(words.as_ptr()) };
        write!(f, "{} (os error {})", words.to_str().unwrap_or("?"), self.0)
    }
}

/// The text in a field of a record, up to its NUL or its end.
pub fn read(from: &[c_char]) -> Lossy<'_> {
    let length = from.iter().position(|&c| c == 0).unwrap_or(from.len());
    // SAFETY: a C character is a byte, and the slice has that many.
    Lossy(unsafe { std::slice::from_raw_parts(from.as_ptr().cast(), length) })
}

/// The bytes of a C text before its NUL, at most the first `most`: the bound keeps a missing NUL from running through all of
/// memory.
///
/// # Safety
/// `text` is NUL-terminated or has that many bytes, and outlives the result.
pub(crate) unsafe fn bytes<'a>(text: *const c_char, most: usize) -> &'a [u8] {
    let length = if cfg!(miri) {
        // Miri has no `strnlen`.
        // SAFETY: no byte before this one was the last.
        (0..most).find(|&at| unsafe { text.wrapping_add(at).read() } == 0).unwrap_or(most)
    } else {
        // SAFETY: the caller's contract.
        unsafe { libc::strnlen(text, most) }
    };
    // SAFETY: this many bytes were read above.
    unsafe { std::slice::from_raw_parts(text.cast(), length) }
}

/// Bytes shown as a text, with replacement characters for what is not UTF-8. Allocates nothing.
#[derive(Clone, Copy)]
pub struct Lossy<'a>(pub &'a [u8]);

impl fmt::Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.utf8_chunks().try_for_each(|chunk| {
            f.write_str(chunk.valid())?;
            if chunk.invalid().is_empty() { Ok(()) } else { f.write_char(char::REPLACEMENT_CHARACTER) }
        })
    }
}

impl fmt::Debug for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        self.0.utf8_chunks().try_for_each(|chunk| {
            write!(f, "{}", chunk.valid().escape_debug())?;
            if chunk.invalid().is_empty() { Ok(()) } else { f.write_char(char::REPLACEMENT_CHARACTER) }
        })?;
        f.write_char('"')
    }
}

/// A name as errors show it, cut if it would leave no room for the rest of the text.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a>(pub &'a str);

impl Name<'_> {
    /// The most bytes that are shown.
    const MOST: usize = 128;
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() <= Self::MOST {
            true => write!(f, "{:?}", self.0),
            false => write!(f, "{:?}…", &self.0[..self.0.floor_char_boundary(Self::MOST)]),
        }
    }
}

fn visible(byte: u8) -> u8 {
    if byte == 0 { b'?' } else { byte }
}
