//! Schemas: describing them, taking and handing them out, reading them back.

use devexchange_core::abi::types::DevxField;
use devexchange_core::arrow::Field;
use devexchange_core::arrow::schema::{FieldDesc, Schema};
use jni::sys::jlong;

use crate::error::{Result, plain};
use crate::handle::{address, give, schema, take};

plain! { schema_create(fields: jlong, count: jlong) -> jlong }
/// Makes a schema of `count` field records, in depth-first order.
fn schema_create(fields: jlong, count: jlong) -> Result<jlong> {
    // SAFETY: Java gives the address of so many records.
    let fields = unsafe { std::slice::from_raw_parts(take::<DevxField>(fields), count.cast_unsigned() as usize) };
    // SAFETY: their texts are valid for the length of the call.
    let fields: devexchange_core::Result<Vec<_>> =
        fields.iter().map(|raw| unsafe { FieldDesc::from_raw(raw) }).collect();
    Ok(give(Schema::new(&fields?)?.into_raw()))
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

plain! { schema_nodes(handle: jlong) -> jlong }
/// How many fields there are in the whole tree.
fn schema_nodes(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { schema(handle) }?.nodes() as jlong)
}

plain! { schema_fields(handle: jlong, out: jlong) }
/// Writes the records of all fields, in depth-first order; their texts are the schema's.
fn schema_fields(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let schema = unsafe { schema(handle) }?;
    let mut next = take::<DevxField>(out);
    for field in depth_first(&schema) {
        // SAFETY: Java gives the address of room for as many records as there are nodes.
        unsafe { next.write(record(field)) };
        next = next.wrapping_add(1);
    }
    Ok(())
}

fn record(field: Field<'_>) -> DevxField {
    let raw = field.raw();
    DevxField {
        format: raw.format,
        name: raw.name,
        metadata: raw.metadata,
        flags: raw.flags,
        n_children: raw.n_children,
        has_dictionary: field.dictionary().is_some().into(),
    }
}

/// All fields: each, then its children with all that is below them, then its dictionary.
pub(crate) fn depth_first(schema: &Schema) -> Vec<Field<'_>> {
    let mut fields = Vec::with_capacity(schema.nodes());
    let mut waiting = vec![schema.root()];
    while let Some(field) = waiting.pop() {
        fields.push(field);
        waiting.extend(field.dictionary());
        waiting.extend((0..field.n_children()).rev().filter_map(|index| field.child(index)));
    }
    fields
}
