//! Memory as Java sees it: addresses of byte buffers, byte buffers over addresses, texts.

use core::ffi::{CStr, c_char};
use std::ptr::NonNull;

use devexchange_core::arrow::metadata;
use jni::Env;
use jni::errors::Error as JniError;
use jni::objects::{JByteBuffer, JClass, JString};
use jni::sys::jlong;

use crate::error::{Result, refuse};
use crate::handle::{give, take};
use crate::native::{native, plain};

native! { buffer_address(buffer: java.nio.ByteBuffer) -> jlong }
/// The address of index 0 of a direct buffer.
fn buffer_address<'l>(env: &mut Env<'l>, _: JClass<'l>, buffer: JByteBuffer<'l>) -> Result<jlong> {
    match env.get_direct_buffer_address(&buffer) {
        // Java has checked that the buffer is direct. So it has no bytes, and native code may have made it at NULL.
        Err(JniError::NullPtr(_)) => Ok(0),
        address => Ok(give(address?)),
    }
}

/// Where a slice over Java's memory begins. Java may have 0 bytes at NULL, but no slice can begin there.
pub(crate) fn beginning(address: jlong, bytes: jlong) -> *mut u8 {
    if bytes == 0 { NonNull::dangling().as_ptr() } else { take(address) }
}

native! { view(address: jlong, bytes: jlong) -> java.nio.ByteBuffer }
/// Makes a direct buffer over existing memory. The caller must keep the memory alive.
fn view<'l>(env: &mut Env<'l>, _: JClass<'l>, address: jlong, bytes: jlong) -> Result<JByteBuffer<'l>> {
    // SAFETY: Java asks for memory that one of its handles, or a promise of its caller, keeps alive.
    Ok(unsafe { env.new_direct_byte_buffer(take(address), bytes.cast_unsigned() as usize) }?)
}

native! { text(address: jlong) -> JString }
/// Returns a NUL-terminated text of a schema, which the core has checked.
fn text<'l>(env: &mut Env<'l>, _: JClass<'l>, address: jlong) -> Result<JString<'l>> {
    let text = take::<c_char>(address);
    // SAFETY: Java asks for texts of a schema that it holds.
    let text = if text.is_null() { c"" } else { unsafe { CStr::from_ptr(text) } };
    string(env, &text.to_string_lossy())
}

/// Makes a Java string. JNI passes no length; the JVM counts the bytes in an `int`, which must not overflow.
pub(crate) fn string<'l>(env: &mut Env<'l>, text: &str) -> Result<JString<'l>> {
    countable(encoded_bytes(text))?;
    Ok(JString::from_str(env, text)?)
}

fn countable(bytes: usize) -> Result<()> {
    if i32::try_from(bytes).is_ok() {
        Ok(())
    } else {
        refuse!(DEVX_UNSUPPORTED, "the text has {bytes} bytes: a Java String can be made of at most {}", i32::MAX)
    }
}

/// The number of bytes of a text in JNI's encoding ("Modified UTF-8"): two for a NUL, six for a character that has four
/// in UTF-8.
fn encoded_bytes(text: &str) -> usize {
    let more = |byte| match byte {
        0 => 1,
        0xF0.. => 2,
        _ => 0,
    };
    text.len() + text.bytes().map(more).sum::<usize>()
}

plain! { metadata_bytes(address: jlong) -> jlong }
/// The number of bytes of a metadata block of a schema.
fn metadata_bytes(address: jlong) -> Result<jlong> {
    // SAFETY: Java asks for blocks of a schema that it holds.
    Ok(unsafe { metadata::block(take(address)) }?.map_or(0, <[u8]>::len) as jlong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_as_long_as_the_jvm_encodes_them() {
        for text in ["", "plain", "a\0b", "Köln", "東京", "\u{10FFFF}\0𝄞"] {
            let encoded: usize = text
                .chars()
                .map(|c| match c {
                    '\0' => 2,
                    // Two surrogates of three bytes each.
                    _ if c.len_utf16() == 2 => 6,
                    _ => c.len_utf8(),
                })
                .sum();
            assert_eq!(encoded_bytes(text), encoded, "{text:?}");
        }
    }

    #[test]
    fn texts_that_the_jvm_cannot_count_are_refused() {
        let most = i32::MAX as usize;
        countable(0).unwrap();
        countable(most).unwrap();
        for bytes in [most + 1, u32::MAX as usize, u32::MAX as usize + 1, usize::MAX] {
            let refusal = countable(bytes).unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("the text has {bytes} bytes")), "{refusal}");
        }
    }
}
