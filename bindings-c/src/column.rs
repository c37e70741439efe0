//! `devx_batch_column*`, `devx_column_*`: inspecting the columns of a batch. Columns are borrowed: they own nothing and are
//! valid as long as the batch.

use core::ffi::c_char;
use std::mem::MaybeUninit;

use devexchange_core::abi::types::{DEVX_MISMATCH, DEVX_OUT_OF_RANGE, DevxColumn};
use devexchange_core::arrow::{Batch, Column};
use devexchange_core::memory::said;
use devexchange_core::text::{Name, fill};
use devexchange_core::{Borrowed, Error, RawStream, Result};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::batch::BatchHandle;
use crate::ctypes::{Char, ColumnRecord, DlDataType, ErrorRecord, Status, Void};
use crate::error::{guard, list_mut, required, text};
use devexchange_core::DType;

/// Gives the whole array of the batch as one column; for a record batch, a column of type struct.
#[ffi_export]
unsafe fn devx_batch_root(
    batch: *const BatchHandle,
    out: Option<Out<'_, ColumnRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || write(out, batch?.root()))
}

/// Gives the column at `index`, counted from 0.
#[ffi_export]
unsafe fn devx_batch_column(
    batch: *const BatchHandle,
    index: i64,
    out: Option<Out<'_, ColumnRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let batch = batch?;
        let Some(column) = usize::try_from(index).ok().and_then(|index| batch.column(index)) else {
            return Err(out_of_range(format_args!("index is {index}: the batch has {} columns", batch.n_columns())));
        };
        write(out, column)
    })
}

/// Gives `count` columns in one call, from the column at `first` on.
///
/// `out` has room for `count` records; each is what `devx_batch_column` gives.
#[ffi_export]
unsafe fn devx_batch_columns(
    batch: *const BatchHandle,
    first: i64,
    count: usize,
    out: *mut ColumnRecord,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    // SAFETY: the caller gives room for `count` records.
    let out = unsafe { list_mut(out.cast::<MaybeUninit<DevxColumn>>(), count, "out") };
    guard(error, || {
        let (batch, out) = (batch?, out?);
        let written = usize::try_from(first).ok().and_then(|first| Column::write_raw(&batch, first, out));
        written.ok_or_else(|| {
            let all = batch.n_columns();
            out_of_range(format_args!("first is {first} and count is {count}: the batch has {all} columns"))
        })
    })
}

/// Gives the first column with this name.
#[ffi_export]
unsafe fn devx_batch_column_named(
    batch: *const BatchHandle,
    name: *const Char,
    out: Option<Out<'_, ColumnRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    // SAFETY: the caller gives a NUL-terminated text.
    let name = unsafe { text(name, "name") };
    guard(error, || {
        let (batch, name) = (batch?, required(name?, "name")?);
        let Some(column) = batch.column_named(name) else {
            return Err(out_of_range(format_args!("name is {}: the batch has no such column", Name(name))));
        };
        write(out, column)
    })
}

/// Gives the child of a column at `index`.
///
/// The child of a struct, of a sparse union or of a fixed-size list has only what belongs to the rows that the column sees. The
/// child of any other type has all values (see `devx_column_list`, `devx_column_union`, `devx_column_run`).
#[ffi_export]
unsafe fn devx_column_child(
    batch: *const BatchHandle,
    column: *const ColumnRecord,
    index: i64,
    out: Option<Out<'_, ColumnRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let batch = batch?;
        // SAFETY: the caller gives NULL or a record.
        let column = unsafe { read(&batch, column) }?;
        let Some(child) = usize::try_from(index).ok().and_then(|index| column.child(index)) else {
            let n_children = column.field().n_children();
            let refused = out_of_range(format_args!("index is {index}: the column has {n_children} children"));
            return Err(column.named(refused));
        };
        write(out, child)
    })
}

/// Gives `length` rows of a column, from row `offset` on, as a column of the same batch.
#[ffi_export]
unsafe fn devx_column_slice(
    batch: *const BatchHandle,
    column: *const ColumnRecord,
    offset: i64,
    length: i64,
    out: Option<Out<'_, ColumnRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let batch = batch?;
        // SAFETY: the caller gives NULL or a record.
        let column = unsafe { read(&batch, column) }?;
        write(out, column.slice(offset, length)?)
    })
}

/// Makes a batch of the rows of a column. It shares the memory: nothing is copied.
///
/// The result is a record batch if the column is a struct. Its schema keeps the name and the metadata of the column.
#[ffi_export]
unsafe fn devx_column_share(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        out.write(BatchHandle::give(view(&batch, column)?.share()?));
        Ok(())
    })
}

/// Gives the dictionary of a column whose values are indices into one.
#[ffi_export]
unsafe fn devx_column_dictionary(
    batch: *const BatchHandle,
    column: *const ColumnRecord,
    out: Option<Out<'_, ColumnRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let batch = batch?;
        // SAFETY: the caller gives NULL or a record.
        let column = unsafe { read(&batch, column) }?;
        let none = || column.named(Error::new(DEVX_MISMATCH, "the column has no dictionary"));
        write(out, column.dictionary().ok_or_else(none)?)
    })
}

/// Gives the number of nulls of a column. If it is not known, they are counted, in host memory only (else DEVX_DEVICE) and when
/// the data is ready (else DEVX_NOT_READY).
///
/// Nothing keeps the number: with -1 in `null_count`, every call reads the validity buffer again, of all rows that the column
/// sees. Keep it if you need it more than once.
#[ffi_export]
unsafe fn devx_column_null_count(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    out: Option<Out<'_, i64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let count = view(&batch?, column)?.null_count()?;
        required(out, "out")?.write(count);
        Ok(())
    })
}

/// Like `devx_column_null_count`, for a column in memory of a GPU, or in pinned or managed memory.
///
/// If the number is not known and the host cannot read the data, the validity buffer is copied on `stream`; the host waits for
/// the copy and counts. DEVX_DEVICE if the batch is on the CPU, DEVX_UNSUPPORTED if the stream is being captured.
#[ffi_export]
unsafe fn devx_column_null_count_on(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    stream: i64,
    out: Option<Out<'_, i64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let (out, batch) = (required(out, "out")?, batch?);
        // SAFETY: the caller's stream is alive.
        let stream = batch.stream(unsafe { RawStream::new(stream) })?;
        out.write(view(&batch, column)?.null_count_on(stream)?);
        Ok(())
    })
}

/// Tells whether a row has a value: `*out` gets 1, or 0 if the row is null.
#[ffi_export]
unsafe fn devx_column_is_valid(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    row: i64,
    out: Option<Out<'_, i32>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let valid = view(&batch?, column)?.is_valid(row)?;
        required(out, "out")?.write(valid.into());
        Ok(())
    })
}

/// Gives the address of the value of row 0 in a column of numbers, dates or times in host memory.
///
/// `dtype` is the element type as which the caller reads the values; for dates and times, it is the integer type that they are
/// stored as. For a column with a dictionary, the values are the indices. The values of rows that are null are undefined.
#[ffi_export]
unsafe fn devx_column_values(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    dtype: DlDataType,
    out: Option<Out<'_, *const Void>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let values = view(&batch?, column)?.values_ptr(DType::from_dlpack(dtype.0)?)?;
        required(out, "out")?.write(values.cast());
        Ok(())
    })
}

/// Gives the value of a row of bools: `*out` gets 0 or 1.
#[ffi_export]
unsafe fn devx_column_bool(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    row: i64,
    out: Option<Out<'_, i32>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let value = view(&batch?, column)?.bool(row)?;
        required(out, "out")?.write(value.into());
        Ok(())
    })
}

/// Gives the bytes of a row of text or binary.
///
/// `*out` gets an address in the batch's memory, `*length` the number of bytes. They are not NUL-terminated.
#[ffi_export]
unsafe fn devx_column_bytes(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    row: i64,
    out: Option<Out<'_, *const Char>>,
    length: Option<Out<'_, usize>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let (out, length, batch) = (required(out, "out")?, required(length, "length")?, batch?);
        let bytes = view(&batch, column)?.bytes(row)?;
        out.write(bytes.as_ptr().cast());
        length.write(bytes.len());
        Ok(())
    })
}

/// Gives the bytes of a row, as stored, in a column whose values all have the same size.
///
/// For numbers, dates, decimals, intervals and fixed-size binary. `*out` gets an address in the batch's memory, which need not
/// be aligned, and `*length` the number of bytes.
#[ffi_export]
unsafe fn devx_column_fixed(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    row: i64,
    out: Option<Out<'_, *const Char>>,
    length: Option<Out<'_, usize>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let (out, length, batch) = (required(out, "out")?, required(length, "length")?, batch?);
        let bytes = view(&batch, column)?.fixed(row)?;
        out.write(bytes.as_ptr().cast());
        length.write(bytes.len());
        Ok(())
    })
}

/// Gives the values of a row of lists as a column; for a row of maps, its entries, which are structs of a key and a value.
#[ffi_export]
unsafe fn devx_column_list(
    batch: *const BatchHandle,
    column: *const ColumnRecord,
    row: i64,
    out: Option<Out<'_, ColumnRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let batch = batch?;
        // SAFETY: the caller gives NULL or a record.
        let column = unsafe { read(&batch, column) }?;
        write(out, column.list(row)?)
    })
}

/// Gives the index into the dictionary that a row holds.
#[ffi_export]
unsafe fn devx_column_dictionary_index(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    row: i64,
    out: Option<Out<'_, i64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let index = view(&batch?, column)?.dictionary_index(row)?;
        required(out, "out")?.write(index);
        Ok(())
    })
}

/// Tells which child of a union holds the value of a row: its type id, the child as a column, and the row in that child.
#[ffi_export]
unsafe fn devx_column_union(
    batch: *const BatchHandle,
    column: *const ColumnRecord,
    row: i64,
    type_id: Option<Out<'_, i32>>,
    child: Option<Out<'_, ColumnRecord>>,
    child_row: Option<Out<'_, i64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let (type_id, child_row) = (required(type_id, "type_id")?, required(child_row, "child_row")?);
        let (child, batch) = (required(child, "child")?, batch?);
        // SAFETY: the caller gives NULL or a record.
        let column = unsafe { read(&batch, column) }?;
        let (id, column, row) = column.union_value(row)?;
        type_id.write(id.into());
        child.write(ColumnRecord(column.to_raw()));
        child_row.write(row);
        Ok(())
    })
}

/// Tells which run of a run-end encoded column a row is in: the row of its value in the second child.
#[ffi_export]
unsafe fn devx_column_run(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    row: i64,
    out: Option<Out<'_, i64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let run = view(&batch?, column)?.run(row)?;
        required(out, "out")?.write(run);
        Ok(())
    })
}

/// Finds where the value of a row is stored, behind dictionaries, unions and runs.
///
/// `*stored_in` gets a column of a type other than these, `*stored_row` the row in it, and `*valid` 1. If the value is null
/// there or on the way, `*valid` gets 0 and the others are not written.
#[ffi_export]
unsafe fn devx_column_resolve(
    batch: *const BatchHandle,
    column: *const ColumnRecord,
    row: i64,
    valid: Option<Out<'_, i32>>,
    stored_in: Option<Out<'_, ColumnRecord>>,
    stored_row: Option<Out<'_, i64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    guard(error, || {
        let (valid, stored_row) = (required(valid, "valid")?, required(stored_row, "stored_row")?);
        let (stored_in, batch) = (required(stored_in, "stored_in")?, batch?);
        // SAFETY: the caller gives NULL or a record.
        let stored = unsafe { read(&batch, column) }?.resolve(row)?;
        valid.write(stored.is_some().into());
        if let Some((column, row)) = stored {
            stored_in.write(ColumnRecord(column.to_raw()));
            stored_row.write(row);
        }
        Ok(())
    })
}

/// Writes the value of a row as readable text.
///
/// Numbers are written plainly, with the fewest digits that tell them from others of their type (half precision as single),
/// dates and times as in ISO 8601 (timestamps with a time zone in UTC), durations with their unit, text in quotes as in JSON,
/// bytes as `0x…`, lists as `[…]`, structs as `{"name": …}`, maps as `{key: …}`, and null as `null`.
/// If a value within another one is not valid Arrow, the error takes its place, as `<…>`.
///
/// Writes at most `capacity` bytes to `buffer`, including the terminating NUL; a longer text is cut at a character. `buffer`
/// may be NULL if `capacity` is 0. `*length` gets the length of the whole text in bytes, without the NUL.
#[ffi_export]
unsafe fn devx_column_text(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    row: i64,
    buffer: *mut Char,
    capacity: usize,
    length: Option<Out<'_, usize>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    let batch = unsafe { BatchHandle::borrow(batch, "batch") };
    // SAFETY: the caller gives `capacity` bytes of its own.
    let buffer = unsafe { list_mut(buffer.cast::<c_char>(), capacity, "buffer") };
    guard(error, || {
        let (length, batch, buffer) = (required(length, "length")?, batch?, buffer?);
        let value = said(format_args!("{}", view(&batch, column)?.value(row)?))?;
        fill(&value, buffer);
        length.write(value.len());
        Ok(())
    })
}

/// The column that a record of C describes.
// Inlined, like `write`: if the record were returned in parts and copied in halves, the processor would wait for the stores.
#[inline(always)]
pub(crate) fn view<'a>(batch: &'a Borrowed<'_, Batch>, column: Option<&ColumnRecord>) -> Result<Column<'a>> {
    Column::from_raw(batch, &required(column, "column")?.0)
}

/// Like [`view`], but keeps no reference to the record: it may be the one that the call writes afterwards.
///
/// # Safety
/// `column` is NULL or a record that can be read.
#[inline(always)]
unsafe fn read<'a>(batch: &'a Borrowed<'_, Batch>, column: *const ColumnRecord) -> Result<Column<'a>> {
    // SAFETY: the caller's contract.
    view(batch, unsafe { column.as_ref() })
}

#[inline(always)]
fn write(out: Option<Out<'_, ColumnRecord>>, column: Column<'_>) -> Result<()> {
    required(out, "out")?.write(ColumnRecord(column.to_raw()));
    Ok(())
}

fn out_of_range(what: std::fmt::Arguments<'_>) -> Error {
    Error::new(DEVX_OUT_OF_RANGE, what)
}
