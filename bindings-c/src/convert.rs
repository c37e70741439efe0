//! Tensors as columns, columns as tensors: the plan first, then the thing.

use devexchange_core::Result;
use devexchange_core::convert::{self, Plan};
use devexchange_core::dlpack::Copying;
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::batch::BatchHandle;
use crate::column::view;
use crate::ctypes::{Char, ColumnRecord, ErrorRecord, PlanRecord, Status};
use crate::error::{guard, required, text};
use crate::tensor::TensorHandle;

/// How a column can be had as a tensor: as a view, with a copy, or not at all, and why. Nothing is taken.
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

/// The column as a tensor: one dimension, and one more for each level of fixed-size lists. `copy` is DEVX_COPY_NEVER,
/// DEVX_COPY_IF_NEEDED or DEVX_COPY_ALWAYS. A view is read-only and keeps the batch's memory alive.
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

/// How a tensor can be had as a column: as a view, with a copy, or not at all, and why. Nothing is taken.
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

/// The tensor as a column: its first dimension are the rows, the others fixed-size lists. The result is the column
/// itself, not a record batch. `name` may be NULL; `copy` as in `devx_column_to_tensor`. A view keeps the tensor's memory
/// alive.
#[ffi_export]
unsafe fn devx_tensor_to_column(
    tensor: *const TensorHandle,
    name: *const Char,
    copy: i32,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller gives NULL or a NUL-terminated text.
        let name = unsafe { text(name, "name") }?.unwrap_or_default().to_string_lossy();
        let batch = convert::column(&tensor, &name, Copying::from_raw(copy)?)?;
        out.write(BatchHandle::give(batch));
        Ok(())
    })
}

fn write(out: Option<Out<'_, PlanRecord>>, plan: &Plan) -> Result<()> {
    required(out, "out")?.write(PlanRecord(plan.to_raw()));
    Ok(())
}
