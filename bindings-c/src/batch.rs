//! `devx_batch_*`: record batches and other arrays, in and out as Arrow.

use devexchange_core::arrow::batch::{Batch, NodeDesc};
use devexchange_core::memory::collected;
use devexchange_core::{Device, Owner, RawStream, Refused, Result};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{
    ArrowArray, ArrowDeviceArray, ArrowSchema, BatchInfoRecord, Char, DlDevice, ErrorRecord, NodeRecord, OwnerRecord,
    Status,
};
use crate::error::{guard, guard_release, handed_over, handle, list, missing, required, texts};
use crate::schema::SchemaHandle;
use crate::stream::stream_with_batch;

handle! {
    /// A record batch, or any other Arrow array, with its schema: one reference. It stays valid until it is released or
    /// moved.
    BatchHandle = "devx_batch" of Batch
}
handed_over! { BatchHandle of Batch, "batch" }

/// Makes a batch over memory of the caller's on `device`: one node for each field of the schema, in the same order.
/// The buffers are not copied; `owner` keeps them alive, and its release is called once, when the last user is gone
/// (NULL if they outlive everything). On failure the owner is the caller's as before.
#[ffi_export]
unsafe fn devx_batch_create(
    schema: *const SchemaHandle,
    device: DlDevice,
    nodes: *const NodeRecord,
    n_nodes: usize,
    owner: Option<&OwnerRecord>,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller's contract.
    unsafe { devx_batch_create_sized(schema, device, nodes, n_nodes, std::ptr::null(), owner, out, error) }
}

/// As `devx_batch_create`, for a caller who knows how large the buffers are: `sizes` has a number for each buffer of all
/// nodes, in their order, that is how many bytes it has, or −1 if that is not known (NULL if none is known). A buffer with
/// fewer bytes than type, length and offset of its array take is refused; so is one of data in host memory that has fewer than
/// the last offset, or the sizes of an array of views, say, which are read if it is known how large their buffer is. The other
/// offsets, and views, are not looked at.
#[ffi_export]
unsafe fn devx_batch_create_sized(
    schema: *const SchemaHandle,
    device: DlDevice,
    nodes: *const NodeRecord,
    n_nodes: usize,
    sizes: *const i64,
    owner: Option<&OwnerRecord>,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let schema = unsafe { SchemaHandle::borrow(schema, "schema") }?;
        let device = Device::from_dlpack(device.0)?;
        // SAFETY: the caller gives `n_nodes` nodes.
        let nodes = unsafe { list(nodes, n_nodes, "nodes") }?;
        let nodes = collected(nodes.iter().enumerate().map(|(index, node)| {
            // SAFETY: the tables of their buffers are valid for the length of the call.
            let node = unsafe { NodeDesc::from_raw(&node.0) };
            node.map_err(|error| error.within(format_args!("nodes[{index}]: ")))
        }))?;
        let n_sizes = if sizes.is_null() { 0 } else { nodes.iter().map(|node| node.buffers.len()).sum() };
        // SAFETY: the caller gives a number for each buffer.
        let sizes = unsafe { list(sizes, n_sizes, "sizes") }?;
        // SAFETY: the caller hands over an owner of its own.
        let owner = owner.map_or(Owner::none(), |owner| unsafe { Owner::from_raw(owner.0) });
        // SAFETY: the caller describes memory that its owner keeps alive.
        let batch = keep(unsafe { Batch::from_sized_parts(&schema, device, &nodes, sizes, owner) })?;
        out.write(BatchHandle::give(batch));
        Ok(())
    })
}

/// The owner of a refused call stays the caller's, so it is not released here.
fn keep<T>(made: std::result::Result<T, Refused<Owner>>) -> Result<T> {
    made.map_err(|refused| {
        refused.returned.into_raw();
        refused.error
    })
}

/// Makes a record batch out of columns that are batches themselves (any arrays), of the same length on the same device,
/// under new names. They are shared, nothing is copied. Columns on a GPU are ordered by `stream`, which waits for all of
/// them on the device; −1 if all are ready.
#[ffi_export]
unsafe fn devx_batch_of_columns(
    names: *const *const Char,
    columns: *const *const BatchHandle,
    n_columns: usize,
    stream: i64,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives `n_columns` NUL-terminated names.
        let names = unsafe { texts(names, n_columns, "names") }?;
        // SAFETY: the caller gives `n_columns` columns.
        let handles = unsafe { list(columns, n_columns, "columns") }?.iter().enumerate();
        let columns = collected(handles.map(|(i, &column)| {
            if column.is_null() {
                return Err(missing(format_args!("columns[{i}]")));
            }
            // SAFETY: the caller gives living handles.
            unsafe { BatchHandle::borrow(column, "columns") }
        }))?;
        // SAFETY: the caller's stream is alive.
        let stream = columns.first().map_or(Ok(None), |first| unsafe { stream_with_batch(first, stream) })?;
        let columns = collected(names.into_iter().zip(columns.iter().map(|column| &**column)).map(Ok))?;
        out.write(BatchHandle::give(Batch::of_columns(&columns, stream)?));
        Ok(())
    })
}

/// So many rows of a batch, from the one at `offset` on, as a batch of their own, which shares the memory: nothing is copied.
/// That of a record batch has itself no offset in the struct that it is exported as, which many consumers ask for: its
/// columns have.
#[ffi_export]
unsafe fn devx_batch_slice(
    batch: *const BatchHandle,
    offset: i64,
    length: i64,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        out.write(BatchHandle::give(batch.slice(offset, length)?));
        Ok(())
    })
}

/// A copy in one block of host memory of this library's, without offsets but in run-end-encoded columns. For memory of a
/// device, and to one, `devx_batch_copy_to`.
#[ffi_export]
unsafe fn devx_batch_copy(
    batch: *const BatchHandle,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        out.write(BatchHandle::give(batch.copy()?));
        Ok(())
    })
}

/// As `devx_tensor_copy_to`, for a whole batch: one allocation, one copy for each buffer. Of texts and binary in device
/// memory the last offset is read first, which the host waits for. Within host memory `devx_batch_copy` needs no stream.
#[ffi_export]
unsafe fn devx_batch_copy_to(
    batch: *const BatchHandle,
    device: DlDevice,
    stream: i64,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        let device = Device::from_dlpack(device.0)?;
        // SAFETY: the caller's stream is alive.
        let stream = batch.stream_to(device, unsafe { RawStream::new(stream) })?;
        let copy = batch.copy_to(device, stream)?;
        out.write(BatchHandle::give(copy));
        Ok(())
    })
}

/// Takes an Arrow array in host memory from its producer. On success it is moved from (its `release` is NULL) and
/// released once, when the last user is gone; on failure it is untouched. `schema` is shared. No buffer is read.
#[ffi_export]
unsafe fn devx_batch_import(
    source: *mut ArrowArray,
    schema: *const SchemaHandle,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let schema = unsafe { SchemaHandle::borrow(schema, "schema") }?;
        // SAFETY: the caller gives a valid array that it owns.
        let batch = unsafe { Batch::import(source.cast(), &schema) }?;
        out.write(BatchHandle::give(batch));
        Ok(())
    })
}

/// As `devx_batch_import`, for an array that says where it is and when it may be touched.
#[ffi_export]
unsafe fn devx_batch_import_device(
    source: *mut ArrowDeviceArray,
    schema: *const SchemaHandle,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let schema = unsafe { SchemaHandle::borrow(schema, "schema") }?;
        // SAFETY: the caller gives a valid array that it owns.
        let batch = unsafe { Batch::import_device(source.cast(), &schema) }?;
        out.write(BatchHandle::give(batch));
        Ok(())
    })
}

/// Takes an Arrow array in host memory together with its schema. Either both are taken, or both are untouched.
#[ffi_export]
unsafe fn devx_batch_import_pair(
    array: *mut ArrowArray,
    schema: *mut ArrowSchema,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a valid array and a valid schema that it owns.
        let batch = unsafe { Batch::import_pair(array.cast(), schema.cast()) }?;
        out.write(BatchHandle::give(batch));
        Ok(())
    })
}

/// As `devx_batch_import_pair`, for an array that says where it is and when it may be touched.
#[ffi_export]
unsafe fn devx_batch_import_pair_device(
    array: *mut ArrowDeviceArray,
    schema: *mut ArrowSchema,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a valid array and a valid schema that it owns.
        let batch = unsafe { Batch::import_pair_device(array.cast(), schema.cast()) }?;
        out.write(BatchHandle::give(batch));
        Ok(())
    })
}

/// Another reference to the same batch.
#[ffi_export]
unsafe fn devx_batch_share(
    batch: *const BatchHandle,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        out.write(BatchHandle::give(batch.clone()));
        Ok(())
    })
}

/// Hands the batch to a consumer, which releases `out`, and keeps it. What `out` held is overwritten, not released.
#[ffi_export]
unsafe fn devx_batch_export_share(
    batch: *const BatchHandle,
    out: *mut ArrowArray,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller gives room for an array.
        Ok(unsafe { Batch::clone(&batch).export(out.cast()) }?)
    })
}

/// As `devx_batch_export_share`, with device and event.
#[ffi_export]
unsafe fn devx_batch_export_share_device(
    batch: *const BatchHandle,
    out: *mut ArrowDeviceArray,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller gives room for an array.
        Ok(unsafe { Batch::clone(&batch).export_device(out.cast()) }?)
    })
}

/// Hands the batch to a consumer, which releases `out`, and sets the handle to NULL. On failure the handle is as before.
#[ffi_export]
unsafe fn devx_batch_export_move(
    batch: Option<&mut *mut BatchHandle>,
    out: *mut ArrowArray,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives room for one.
        let export = |given: Batch| unsafe { given.export(out.cast()) };
        // SAFETY: the caller gives a living handle.
        unsafe { BatchHandle::hand_over(batch, export) }
    })
}

/// As `devx_batch_export_move`, with device and event.
#[ffi_export]
unsafe fn devx_batch_export_move_device(
    batch: Option<&mut *mut BatchHandle>,
    out: *mut ArrowDeviceArray,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives room for one.
        let export = |given: Batch| unsafe { given.export_device(out.cast()) };
        // SAFETY: the caller gives a living handle.
        unsafe { BatchHandle::hand_over(batch, export) }
    })
}

/// What the batch is, at a glance.
#[ffi_export]
unsafe fn devx_batch_get_info(
    batch: *const BatchHandle,
    out: Option<Out<'_, BatchInfoRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        out.write(BatchInfoRecord(batch.info()));
        Ok(())
    })
}

/// Asks the driver whether the buffers of a batch are where the batch says, all bytes that its lengths and offsets come to.
/// No buffer is read, so the bytes that offsets and views point into are left out: only those tell how many they are.
#[ffi_export]
unsafe fn devx_batch_check_pointers(batch: *const BatchHandle, error: Option<&mut ErrorRecord>) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { BatchHandle::borrow(batch, "batch") }?.check_pointers())
}

/// A reference to the schema of the batch.
#[ffi_export]
unsafe fn devx_batch_schema(
    batch: *const BatchHandle,
    out: Option<Out<'_, *mut SchemaHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        out.write(SchemaHandle::give(batch.schema().clone()));
        Ok(())
    })
}

/// Gives up a batch and sets the handle to NULL. NULL and a handle that is NULL are fine. From any thread.
#[ffi_export]
unsafe fn devx_batch_release(batch: Option<&mut *mut BatchHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { BatchHandle::take(batch) }));
}
