//! Texts in records of a fixed size.

use core::ffi::c_char;

/// Writes a text with its NUL, cut at a character if there is not enough room. A NUL within the text becomes a `?`.
pub fn fill(text: &str, to: &mut [c_char]) {
    let Some(room) = to.len().checked_sub(1) else { return };
    let end = text.floor_char_boundary(room);
    let bytes = text.bytes().take(end).map(|byte| if byte == 0 { b'?' } else { byte });
    for (to, from) in to.iter_mut().zip(bytes.chain([0])) {
        *to = c_char::from_ne_bytes([from]);
    }
}
