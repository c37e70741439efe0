//! Schemas: describing them, taking and handing them out, reading them back.

use devexchange_core::abi::types::DevxField;
use devexchange_core::arrow::schema::{FieldDesc, Schema};
use devexchange_core::arrow::{Field, metadata};
use devexchange_core::memory::{collected, vector};
use jni::sys::jlong;

use crate::error::Result;
use crate::handle::{address, give, schema, take};
use crate::native::plain;

plain! { schema_create(fields: jlong, count: jlong) -> jlong }
/// Makes a schema of `count` field records, in depth-first order.
fn schema_create(fields: jlong, count: jlong) -> Result<jlong> {
    // SAFETY: Java gives the address of so many records.
    let fields = unsafe { std::slice::from_raw_parts(take::<DevxField>(fields), count.cast_unsigned() as usize) };
    // SAFETY: their texts are valid for the length of the call.
    let fields = collected(fields.iter().map(|raw| unsafe { FieldDesc::from_raw(raw) }))?;
    Ok(give(Schema::new(&fields)?.into_raw()))
}

plain! { schema_import(source: jlong) -> jlong }
/// Takes an Arrow schema from its producer; if this fails, it is untouched.
fn schema_import(source: jlong) -> Result<jlong> {
    // SAFETY: Java's caller says that there is a schema that it owns.
    let schema = unsafe { Schema::import(address(source, "schema")?) }?;
    Ok(give(schema.into_raw()))
}

plain! { schema_export(handle: jlong, out: jlong) }
/// Hands the schema to a consumer, which releases `out`.
fn schema_export(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let schema = unsafe { schema(handle) }?;
    // SAFETY: Java's caller says that there is room for a schema.
    Ok(unsafe { schema.export(address(out, "out")?) }?)
}

plain! { schema_share(handle: jlong) -> jlong }
/// Another reference to the same schema.
fn schema_share(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let schema = unsafe { schema(handle) }?;
    Ok(give(Schema::clone(&schema).into_raw()))
}

plain! { schema_fields(handle: jlong, out: jlong, room: jlong) -> jlong }
/// Writes all fields, in depth-first order, as far as the `room` of so many bytes goes, and says how many they take.
/// Each is six longs, that is flags, number of children, 1 if there is a dictionary, and how many bytes format, name
/// and metadata have; then those bytes.
fn schema_fields(handle: jlong, out: jlong, room: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let schema = unsafe { schema(handle) }?;
    let mut out = Room { next: take(out), left: room.cast_unsigned() as usize, taken: 0 };
    for field in depth_first(&schema)? {
        let (format, name) = (field.format().as_bytes(), field.name().as_bytes());
        // SAFETY: checked when the schema was made.
        let metadata = unsafe { metadata::block(field.raw().metadata) }?.unwrap_or_default();
        let sizes = [format, name, metadata].map(|bytes| bytes.len() as i64);
        let numbers = [field.flags(), field.n_children() as i64, field.dictionary().is_some().into()];
        for number in numbers.into_iter().chain(sizes) {
            // SAFETY: Java gives the address of so much room.
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
    /// With what there was no room for.
    taken: usize,
}

impl Room {
    /// # Safety
    /// There is room for `left` bytes in all, and `next` is behind those that were put there.
    unsafe fn put(&mut self, bytes: &[u8]) {
        self.taken += bytes.len();
        if self.taken <= self.left {
            // SAFETY: so much of the room was left.
            unsafe { self.next.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            self.next = self.next.wrapping_add(bytes.len());
        }
    }
}

/// All fields: each, then its children with all that is below them, then its dictionary.
fn depth_first(schema: &Schema) -> Result<Vec<Field<'_>>> {
    // Never more than there are nodes.
    let (mut fields, mut waiting) = (vector(schema.nodes())?, vector(schema.nodes())?);
    waiting.push(schema.root());
    while let Some(field) = waiting.pop() {
        fields.push(field);
        waiting.extend(field.dictionary());
        waiting.extend(field.children().rev());
    }
    Ok(fields)
}
