//! Memory as Java sees it: addresses of its buffers, buffers over addresses, texts.

use core::ffi::{CStr, c_char};

use devexchange_core::arrow::metadata;
use jni::Env;
use jni::objects::{JByteBuffer, JClass, JString};
use jni::sys::jlong;

use crate::error::{Result, native, plain};
use crate::handle::{give, take};

native! { buffer_address(buffer: java.nio.ByteBuffer) -> jlong }
/// The address of index 0 of a direct buffer.
fn buffer_address<'l>(env: &mut Env<'l>, _: JClass<'l>, buffer: JByteBuffer<'l>) -> Result<jlong> {
    Ok(give(env.get_direct_buffer_address(&buffer)?))
}

native! { view(address: jlong, bytes: jlong) -> java.nio.ByteBuffer }
/// A direct buffer over memory that is there already. Whoever uses it sees to it that the memory stays.
fn view<'l>(env: &mut Env<'l>, _: JClass<'l>, address: jlong, bytes: jlong) -> Result<JByteBuffer<'l>> {
    // SAFETY: Java asks for memory that a handle of its own, or a caller's promise, keeps alive.
    Ok(unsafe { env.new_direct_byte_buffer(take(address), bytes.cast_unsigned() as usize) }?)
}

native! { text(address: jlong) -> JString }
/// A NUL-terminated text of a schema, which the core has checked.
fn text<'l>(env: &mut Env<'l>, _: JClass<'l>, address: jlong) -> Result<JString<'l>> {
    let text = take::<c_char>(address);
    // SAFETY: Java asks for texts of a schema that it holds.
    let text = if text.is_null() { c"" } else { unsafe { CStr::from_ptr(text) } };
    Ok(JString::from_str(env, text.to_string_lossy())?)
}

plain! { metadata_bytes(address: jlong) -> jlong }
/// How many bytes a metadata block of a schema has.
fn metadata_bytes(address: jlong) -> Result<jlong> {
    // SAFETY: Java asks for blocks of a schema that it holds.
    Ok(unsafe { metadata::block(take(address)) }?.map_or(0, <[u8]>::len) as jlong)
}
