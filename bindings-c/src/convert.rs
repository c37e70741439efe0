//! Conversion of columns and batches to tensors and back: for each, first the plan, then the conversion.

use devexchange_core::convert::{self, Plan};
use devexchange_core::dlpack::Copying;
use devexchange_core::{Batch, Result, Tensor};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::batch::BatchHandle;
use crate::column::view;
use crate::ctypes::{Char, ColumnRecord, ErrorRecord, PlanRecord, Status};
use crate::error::{guard, required, text, texts};
use crate::stream::stream_with_batch;
use crate::tensor::TensorHandle;

/// Tells how a column can become a tensor: as a view, with a copy, or not at all, and why. Nothing is taken.
///
/// DEVX_DEVICE or DEVX_NOT_READY if nulls would have to be counted and the host cannot read the data.
#[ffi_export]
unsafe fn devx_column_plan_tensor(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    out: Option<Out<'_, PlanRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        write(out, &convert::plan_tensor(view(&batch, column)?)?)
    })
}

/// Makes a tensor from a column.
///
/// The tensor has one dimension, and one more for each level of fixed-size lists. `copy` is DEVX_COPY_NEVER,
/// DEVX_COPY_IF_NEEDED or DEVX_COPY_ALWAYS. A view is read-only and keeps the batch's memory alive. DEVX_COPY_REQUIRED or
/// DEVX_IMPOSSIBLE, with the reason, if the plan is a copy that `copy` does not allow, or impossible; DEVX_DEVICE or
/// DEVX_NOT_READY if data would have to be read and the host cannot read it.
#[ffi_export]
unsafe fn devx_column_to_tensor(
    batch: *const BatchHandle,
    column: Option<&ColumnRecord>,
    copy: i32,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        let tensor = convert::tensor(view(&batch, column)?, Copying::from_raw(copy)?)?;
        out.write(TensorHandle::give(tensor));
        Ok(())
    })
}

/// Tells how a record batch can become a matrix: as a view, with a copy, or not at all, and why. Nothing is taken.
///
/// All columns have to be of the same number type. DEVX_DEVICE or DEVX_NOT_READY if nulls would have to be counted and the
/// host cannot read the data.
#[ffi_export]
unsafe fn devx_batch_plan_matrix(
    batch: *const BatchHandle,
    out: Option<Out<'_, PlanRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        write(out, &convert::plan_matrix(&batch)?)
    })
}

/// Makes a column-major matrix from a record batch, with the same rows and columns.
///
/// `copy` is as in `devx_column_to_tensor`; a copy of memory that the host cannot read is queued on `stream`, −1 if there is
/// none (DEVX_NOT_READY if one is needed; DEVX_DEVICE for any other stream if the batch is on the CPU). A view is read-only and
/// keeps the batch's memory alive. It needs columns that follow each other at equal distances, with no memory between them,
/// which may belong to somebody else; memory between them is fine in a batch that is known to be one block of memory, as one
/// that was copied as a whole or made of a matrix.
#[ffi_export]
unsafe fn devx_batch_to_matrix(
    batch: *const BatchHandle,
    copy: i32,
    stream: i64,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller's stream is alive.
        let stream = unsafe { stream_with_batch(&batch, stream) }?;
        out.write(TensorHandle::give(convert::matrix(&batch, Copying::from_raw(copy)?, stream)?));
        Ok(())
    })
}

/// Tells how a matrix can become a record batch: as a view, with a copy, or not at all, and why. Nothing is taken.
#[ffi_export]
unsafe fn devx_tensor_plan_batch(
    tensor: *const TensorHandle,
    out: Option<Out<'_, PlanRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        write(out, &convert::plan_batch(&tensor))
    })
}

/// Makes a record batch from a matrix, with the same rows and columns.
///
/// `names` are the names of the columns, one for each (else DEVX_MISMATCH); without names (NULL and 0), they are "0", "1", and
/// so on. `copy` is as in `devx_column_to_tensor`. A view keeps the tensor's memory alive; it needs columns whose values are
/// contiguous.
#[ffi_export]
unsafe fn devx_tensor_to_batch(
    tensor: *const TensorHandle,
    names: *const *const Char,
    n_names: usize,
    copy: i32,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller gives `n_names` NUL-terminated names.
        let names = unsafe { texts(names, n_names, "names") }?;
        out.write(BatchHandle::give(convert::batch(&tensor, &names, Copying::from_raw(copy)?)?));
        Ok(())
    })
}

/// Tells how a tensor can become a column of the extension type `arrow.fixed_shape_tensor`. Nothing is taken.
#[ffi_export]
unsafe fn devx_tensor_plan_fixed_shape_column(
    tensor: *const TensorHandle,
    out: Option<Out<'_, PlanRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        write(out, &convert::plan_fixed_shape_column(&tensor))
    })
}

/// Like `devx_tensor_to_column`, but makes a column of the extension type `arrow.fixed_shape_tensor`.
///
/// Each row is a tensor, whose dimensions may lie in memory in any order.
#[ffi_export]
unsafe fn devx_tensor_to_fixed_shape_column(
    tensor: *const TensorHandle,
    name: *const Char,
    copy: i32,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle, and NULL or a NUL-terminated text.
    guard(error, || unsafe { to_column(tensor, name, copy, out, convert::fixed_shape_column) })
}

/// Tells how a tensor can become a column: as a view, with a copy, or not at all, and why. Nothing is taken.
#[ffi_export]
unsafe fn devx_tensor_plan_column(
    tensor: *const TensorHandle,
    out: Option<Out<'_, PlanRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        write(out, &convert::plan_column(&tensor))
    })
}

/// Makes a column from a tensor: the first dimension becomes the rows, the others become fixed-size lists.
///
/// The result is the column itself, not a record batch. `name` may be NULL; `copy` is as in `devx_column_to_tensor`. A view
/// keeps the tensor's memory alive.
#[ffi_export]
unsafe fn devx_tensor_to_column(
    tensor: *const TensorHandle,
    name: *const Char,
    copy: i32,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle, and NULL or a NUL-terminated text.
    guard(error, || unsafe { to_column(tensor, name, copy, out, convert::column) })
}

/// # Safety
/// `tensor` is NULL or a living handle, `name` NULL or NUL-terminated.
unsafe fn to_column(
    tensor: *const TensorHandle,
    name: *const Char,
    copy: i32,
    out: Option<Out<'_, *mut BatchHandle>>,
    convert: fn(&Tensor, &str, Copying) -> Result<Batch>,
) -> Result<()> {
    let out = required(out, "out")?;
    // SAFETY: the caller's contract.
    let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
    // SAFETY: the caller's contract.
    let name = unsafe { text(name, "name") }?.unwrap_or_default();
    out.write(BatchHandle::give(convert(&tensor, name, Copying::from_raw(copy)?)?));
    Ok(())
}

fn write(out: Option<Out<'_, PlanRecord>>, plan: &Plan) -> Result<()> {
    required(out, "out")?.write(PlanRecord(plan.to_raw()));
    Ok(())
}
