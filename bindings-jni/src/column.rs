//! Columns of a batch. Java holds them as records, each followed by the addresses of its first buffers, and reads
//! values in host memory by itself. A column owns nothing and is valid as long as its batch.

use core::ffi::c_void;

use devexchange_core::abi::types::DevxColumn;
use devexchange_core::arrow::{Batch, Column};
use jni::Env;
use jni::objects::{JClass, JString};
use jni::sys::jlong;

use crate::error::{Result, native, plain, refuse};
use crate::handle::{batch, stream, take};

plain! { batch_root(batch: jlong, out: jlong) }
/// The whole array of the batch as one column.
fn batch_root(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives the address of room for the record and the first buffers.
    unsafe { write(out, batch.root()) };
    Ok(())
}

plain! { column_child(batch: jlong, column: jlong, index: jlong) }
/// Replaces the record at `column` by that of a child.
fn column_child(handle: jlong, column: jlong, index: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives the address of a record.
    let parent = unsafe { view(&batch, column) }?;
    let Some(child) = usize::try_from(index).ok().and_then(|index| parent.child(index)) else {
        return refuse!(DEVX_OUT_OF_RANGE, "index is {index}: the column has {} children", parent.field().n_children());
    };
    // SAFETY: Java gives the address of room for the record and the first buffers.
    unsafe { write(column, child) };
    Ok(())
}

plain! { column_dictionary(batch: jlong, column: jlong) }
/// Replaces the record at `column` by that of its dictionary.
fn column_dictionary(handle: jlong, column: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives the address of a record.
    let Some(dictionary) = unsafe { view(&batch, column) }?.dictionary() else {
        return refuse!(DEVX_MISMATCH, "the column has no dictionary");
    };
    // SAFETY: Java gives the address of room for the record and the first buffers.
    unsafe { write(column, dictionary) };
    Ok(())
}

plain! { column_null_count(batch: jlong, column: jlong) -> jlong }
/// The number of nulls; counted, in host memory, if it is not known.
fn column_null_count(handle: jlong, column: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives the address of a record.
    Ok(unsafe { view(&batch, column) }?.null_count()?)
}

plain! { column_null_count_on(batch: jlong, column: jlong, stream: jlong) -> jlong }
/// As `column_null_count`, also in device memory: what has to be counted is copied on the stream.
fn column_null_count_on(handle: jlong, column: jlong, queue: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: as above.
    let stream = unsafe { stream(queue) }?;
    // SAFETY: Java gives the address of a record.
    Ok(unsafe { view(&batch, column) }?.null_count_on(stream)?)
}

native! { column_text(batch: jlong, column: jlong, row: jlong) -> JString }
/// The value of a row as the core shows it.
fn column_text<'l>(env: &mut Env<'l>, _: JClass<'l>, handle: jlong, column: jlong, row: jlong) -> Result<JString<'l>> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives the address of a record.
    let value = unsafe { view(&batch, column) }?.value(row)?;
    Ok(JString::from_str(env, value.to_string())?)
}

/// The column that Java holds the record of.
///
/// # Safety
/// `column` is the address of a record.
pub(crate) unsafe fn view(batch: &Batch, column: jlong) -> Result<Column<'_>> {
    // SAFETY: the caller's contract.
    Ok(Column::from_raw(batch, unsafe { &*take::<DevxColumn>(column) })?)
}

/// So many addresses of buffers follow a record: all of them, except of views, which have any number. Java reads the
/// rest where the record says that they are. `Buffers.FEW` in Java is the same number.
const FIRST_BUFFERS: usize = 3;

/// # Safety
/// `out` is the address of room for a record and the addresses of the first buffers.
unsafe fn write(out: jlong, column: Column<'_>) {
    let out = take::<DevxColumn>(out);
    // SAFETY: the caller's contract.
    unsafe { out.write(column.to_raw()) };
    // SAFETY: the caller's contract.
    let after = unsafe { out.add(1) }.cast::<*const c_void>();
    let buffers = column.buffers();
    // SAFETY: the caller's contract; there are that many.
    unsafe { after.copy_from_nonoverlapping(buffers.as_ptr(), buffers.len().min(FIRST_BUFFERS)) };
}
