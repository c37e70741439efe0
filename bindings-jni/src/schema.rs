//! Schemas: making, importing, exporting and reading them.

use devexchange_core::abi::types::DevxField;
use devexchange_core::arrow::metadata;
use devexchange_core::arrow::schema::{FieldDesc, Schema};
use devexchange_core::memory::collected;
use jni::sys::jlong;

use crate::error::Result;
use crate::handle::{address, give, schema, take};
use crate::native::plain;

plain! { schema_create(fields: jlong, count: jlong) -> jlong }
/// Makes a schema from `count` field records, in depth-first order.
fn schema_create(fields: jlong, count: jlong) -> Result<jlong> {
    // SAFETY: Java gives the address of `count` records.
    let fields = unsafe { std::slice::from_raw_parts(take::<DevxField>(fields), count.cast_unsigned() as usize) };
    // SAFETY: their texts are valid during the call.
    let fields = collected(fields.iter().map(|raw| unsafe { FieldDesc::from_raw(raw) }))?;
    Ok(give(Schema::new(&fields)?.into_raw()))
}

plain! { schema_import(source: jlong) -> jlong }
/// Takes an Arrow schema from its producer; if this fails, the struct is untouched.
fn schema_import(source: jlong) -> Result<jlong> {
    // SAFETY: Java's caller guarantees a schema that it owns.
    let schema = unsafe { Schema::import(address(source, "schema")?) }?;
    Ok(give(schema.into_raw()))
}

plain! { schema_export(handle: jlong, out: jlong) }
/// Hands the schema to a consumer. The consumer releases `out`.
fn schema_export(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let schema = unsafe { schema(handle) }?;
    // SAFETY: Java's caller guarantees memory for a schema.
    Ok(unsafe { schema.export(address(out, "out")?) }?)
}

plain! { schema_share(handle: jlong) -> jlong }
/// Returns another reference to the same schema.
fn schema_share(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let schema = unsafe { schema(handle) }?;
    Ok(give(Schema::clone(&schema).into_raw()))
}

plain! { schema_fields(handle: jlong, out: jlong, room: jlong) -> jlong }
/// Writes all fields, in depth-first order, as far as they fit into `room` bytes; returns the bytes that they take in
/// all. Each field is six longs (flags, number of children, 1 if there is a dictionary, and the sizes in bytes of
/// format, name and metadata), followed by those bytes.
fn schema_fields(handle: jlong, out: jlong, room: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let schema = unsafe { schema(handle) }?;
    let mut out = Room { next: take(out), left: room.cast_unsigned() as usize, taken: 0 };
    for field in schema.fields() {
        let (format, name) = (field.format().as_bytes(), field.name().as_bytes());
        // SAFETY: checked when the schema was made.
        let metadata = unsafe { metadata::block(field.raw().metadata) }?.unwrap_or_default();
        let sizes = [format, name, metadata].map(|bytes| bytes.len() as i64);
        let numbers = [field.flags(), field.n_children() as i64, field.dictionary().is_some().into()];
        for number in numbers.into_iter().chain(sizes) {
            // SAFETY: Java gives the address of `room` bytes.
            unsafe { out.put(&number.to_ne_bytes()) };
        }
        for bytes in [format, name, metadata] {
            // SAFETY: as above.
            unsafe { out.put(bytes) };
        }
    }
    Ok(out.taken as jlong)
}

/// Memory that is filled from its beginning.
struct Room {
    next: *mut u8,
    left: usize,
    /// The bytes of everything that was put, including what did not fit.
    taken: usize,
}

impl Room {
    /// # Safety
    /// The memory has `left` bytes in all, and `next` is at the end of those already put there.
    unsafe fn put(&mut self, bytes: &[u8]) {
        self.taken += bytes.len();
        if self.taken <= self.left {
            // SAFETY: the memory had so many bytes left.
            unsafe { self.next.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            self.next = self.next.wrapping_add(bytes.len());
        }
    }
}
