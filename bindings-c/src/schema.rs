//! `devx_schema_*`: creating, importing, exporting and inspecting schemas.

use devexchange_core::abi::types::DEVX_OUT_OF_RANGE;
use devexchange_core::arrow::schema::{FieldDesc, Schema};
use devexchange_core::memory::collected;
use devexchange_core::{Error, Result};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{ArrowSchema, ErrorRecord, FieldInfoRecord, FieldRecord, Status};
use crate::error::{guard, guard_release, handle, list, required};

handle! {
    /// A schema: one reference to a tree of fields, which never changes.
    SchemaHandle = "devx_schema" of Schema
}

/// Makes a schema from a list of fields in depth-first order.
///
/// A field is followed by its children, each with all that is below it, and then by the field of its dictionary's values. All
/// texts are copied. The root of a record batch has the format "+s" and a child for each column.
#[ffi_export]
unsafe fn devx_schema_create(
    fields: *const FieldRecord,
    n_fields: usize,
    out: Option<Out<'_, *mut SchemaHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives `n_fields` fields.
        let fields = unsafe { list(fields, n_fields, "fields") }?;
        // SAFETY: their texts are valid during the call.
        let fields = collected(fields.iter().map(|field| unsafe { FieldDesc::from_raw(&field.0) }))?;
        out.write(SchemaHandle::give(Schema::new(&fields)?));
        Ok(())
    })
}

/// Takes an Arrow schema from its producer.
///
/// On success, it is moved from (its `release` is NULL), and released once, when the last user is gone. On failure, it is
/// untouched.
#[ffi_export]
unsafe fn devx_schema_import(
    source: *mut ArrowSchema,
    out: Option<Out<'_, *mut SchemaHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a valid schema that it owns.
        let schema = unsafe { Schema::import(source.cast()) }?;
        out.write(SchemaHandle::give(schema));
        Ok(())
    })
}

/// Gives another reference to the same schema.
#[ffi_export]
unsafe fn devx_schema_share(
    schema: *const SchemaHandle,
    out: Option<Out<'_, *mut SchemaHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let schema = unsafe { SchemaHandle::borrow(schema, "schema") }?;
        out.write(SchemaHandle::give(schema.clone()));
        Ok(())
    })
}

/// Gives the field of a node of a schema.
///
/// Node 0 is the root: for a record batch, a field of type struct with a child for each column. From there, `first_child` and
/// `n_children` lead to the children, and `dictionary` to the values of a dictionary.
#[ffi_export]
unsafe fn devx_schema_field(
    schema: *const SchemaHandle,
    node: i64,
    out: Option<Out<'_, FieldInfoRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let schema = unsafe { SchemaHandle::borrow(schema, "schema") }?;
        let Some(field) = usize::try_from(node).ok().and_then(|node| schema.field(node)) else {
            let nodes = schema.nodes();
            return Err(Error::new(DEVX_OUT_OF_RANGE, format_args!("node is {node}: the schema has {nodes} fields")));
        };
        out.write(FieldInfoRecord(field.to_raw()));
        Ok(())
    })
}

/// Tells whether two schemas are equal: `*out` gets 1, or 0 if not.
///
/// They are if the names, formats, flags, children and dictionaries of all fields are, and their metadata has the same pairs in
/// the same order.
#[ffi_export]
unsafe fn devx_schema_equal(
    schema: *const SchemaHandle,
    other: *const SchemaHandle,
    out: Option<Out<'_, i32>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || -> Result<()> {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let schema = unsafe { SchemaHandle::borrow(schema, "schema") }?;
        // SAFETY: as above.
        let other = unsafe { SchemaHandle::borrow(other, "other") }?;
        out.write((*schema == *other).into());
        Ok(())
    })
}

/// Hands the schema to a consumer, which releases `out`; the handle is kept. What `out` held is overwritten, not released.
#[ffi_export]
unsafe fn devx_schema_export(
    schema: *const SchemaHandle,
    out: *mut ArrowSchema,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let schema = unsafe { SchemaHandle::borrow(schema, "schema") }?;
        // SAFETY: the caller gives room for a schema.
        unsafe { schema.export(out.cast()) }
    })
}

/// Releases a schema and sets the handle to NULL, on any thread. NULL and a handle that is NULL are fine.
#[ffi_export]
unsafe fn devx_schema_release(schema: Option<&mut *mut SchemaHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { SchemaHandle::take(schema) }));
}
