//! Texts in records of a fixed size, and as C has them.

use core::ffi::c_char;
use std::ffi::CString;

/// Writes a text with its NUL, cut at a character if there is not enough room. A NUL within the text becomes a `?`.
pub fn fill(text: &str, to: &mut [c_char]) {
    let Some(room) = to.len().checked_sub(1) else { return };
    let end = text.floor_char_boundary(room);
    for (to, from) in to.iter_mut().zip(text.bytes().take(end).map(visible).chain([0])) {
        *to = c_char::from_ne_bytes([from]);
    }
}

/// A text as C has it. A NUL within it becomes a `?`.
pub fn c_string(text: &str) -> CString {
    // There is no NUL left to refuse.
    CString::new(text.bytes().map(visible).collect::<Vec<_>>()).unwrap_or_default()
}

/// What stands in a field of a record up to its NUL or its end, with replacement characters for what is not UTF-8.
pub fn read(from: &[c_char]) -> String {
    let bytes: Vec<u8> = from.iter().flat_map(|c| c.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn visible(byte: u8) -> u8 {
    if byte == 0 { b'?' } else { byte }
}
