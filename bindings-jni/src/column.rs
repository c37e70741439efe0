//! Columns of a batch. Java has one table of them, represents a column as a place in the table and a range of rows, and
//! reads values in host memory by itself. A column owns nothing and is valid as long as its batch.

use devexchange_core::abi::types::DevxColumn;
use devexchange_core::arrow::{Batch, Column};
use devexchange_core::memory::said;
use jni::Env;
use jni::objects::{JClass, JString};
use jni::sys::jlong;

use crate::error::Result;
use crate::handle::{batch, give, take};
use crate::memory::string;
use crate::native::{native, plain};
use crate::stream::stream;

plain! { column_null_count(batch: jlong, column: jlong) -> jlong }
/// Returns the number of nulls; counts them, in host memory, if it is not known.
fn column_null_count(handle: jlong, column: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives the address of a record.
    Ok(unsafe { view(&batch, column) }?.null_count()?)
}

plain! { column_null_count_on(batch: jlong, column: jlong, stream: jlong) -> jlong }
/// Same as `column_null_count`, but also for device memory: a validity that has to be counted is copied on the stream.
fn column_null_count_on(handle: jlong, column: jlong, queue: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: as above.
    let stream = unsafe { stream(queue, |number| batch.stream(number)) }?;
    // SAFETY: Java gives the address of a record.
    Ok(unsafe { view(&batch, column) }?.null_count_on(stream)?)
}

plain! { column_share(batch: jlong, column: jlong) -> jlong }
/// Returns the rows as a batch of their own.
fn column_share(handle: jlong, column: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives the address of a record.
    Ok(give(unsafe { view(&batch, column) }?.share()?.into_raw()))
}

native! { column_text(batch: jlong, column: jlong, row: jlong) -> JString }
/// Returns the value of a row as text from the core.
fn column_text<'l>(env: &mut Env<'l>, _: JClass<'l>, handle: jlong, column: jlong, row: jlong) -> Result<JString<'l>> {
    // SAFETY: Java gives a living handle.
    let batch = unsafe { batch(handle) }?;
    // SAFETY: Java gives the address of a record.
    let value = unsafe { view(&batch, column) }?.value(row)?;
    string(env, &said(format_args!("{value}"))?)
}

/// The column of a record that Java holds.
///
/// # Safety
/// `column` is the address of a record.
pub(crate) unsafe fn view(batch: &Batch, column: jlong) -> Result<Column<'_>> {
    // SAFETY: the caller's contract.
    Ok(Column::from_raw(batch, unsafe { &*take::<DevxColumn>(column) })?)
}
