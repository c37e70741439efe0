//! `devx_batch_*`: creating, copying, importing and exporting record batches and other Arrow arrays.

use devexchange_core::arrow::Batch;
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
    /// A record batch, or any other Arrow array, with its schema: one reference. Valid until it is released or moved.
    BatchHandle = "devx_batch" of Batch
}
handed_over! { BatchHandle of Batch, "batch" }

/// Makes a batch over the caller's memory on `device`.
///
/// `nodes` has a node for each field of the schema, in the same order. The buffers are not copied. `owner` keeps them alive:
/// its release is called once, when the last user of the batch is gone. `owner` is NULL if the buffers outlive everything. On
/// failure, the owner is still the caller's. Data that is not on the CPU counts as queued on the legacy default stream (see
/// `devx_batch_produced_on`).
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

/// Like `devx_batch_create`, for a caller that knows how large the buffers are.
///
/// `sizes` has a number for each buffer of all nodes, in their order: its bytes, or −1 if that is not known. `sizes` is NULL
/// if no size is known. A buffer is refused if it is smaller than the type, length and offset of its array require. A data
/// buffer in host memory is also refused if it is smaller than the last offset says, or than the sizes in an array of views
/// say; the library reads these only if it knows how large their own buffer is. It reads no other offsets, and no views.
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
        let nodes = unsafe { list(nodes.cast(), n_nodes, "nodes") }?;
        // SAFETY: the caller hands over its own owner.
        let owner = owner.map_or(Owner::none(), |owner| unsafe { Owner::from_raw(owner.0) });
        // SAFETY: the caller describes memory that its owner keeps alive.
        let batch = keep(unsafe { Batch::from_records(&schema, device, nodes, sizes, owner) })?;
        out.write(BatchHandle::give(batch));
        Ok(())
    })
}

/// Leaves the owner of a refused call to the caller: it is not released here.
fn keep<T>(made: std::result::Result<T, Refused<Owner>>) -> Result<T> {
    made.map_err(|refused| {
        refused.returned.into_raw();
        refused.error
    })
}

/// Makes a record batch from columns, each of which is a batch (any array), under new names.
///
/// All columns have the same length (else DEVX_INVALID_LENGTH) and are on the same device (else DEVX_MISMATCH). They are
/// shared: nothing is copied. Columns on a GPU are ordered by `stream`, which waits, on the device, for all of them; −1 if all
/// are ready (else DEVX_NOT_READY), as on the CPU (else DEVX_DEVICE). At least one column is needed (DEVX_INVALID_ARGUMENT).
/// The stream must not be destroyed before the batch and everything that was exported from it is released; it may be closed
/// (`devx_stream_close`).
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

/// Makes a batch of `length` rows, from row `offset` on. It shares the memory: nothing is copied.
///
/// It is ready when the whole is, and work that is named for it (`devx_batch_used_on`) is named for the whole.
/// DEVX_OUT_OF_RANGE if there are too few rows.
///
/// An exported slice of a record batch has the offset in its columns, not in the struct itself, because many consumers require
/// that. Only if rows of the record batch itself may be null, the struct has it.
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

/// Copies a batch into one block of host memory that this library allocates.
///
/// Of a slice, the copy has the rows, with their texts and elements of lists; what views, list views, dense unions, run-end
/// encoded columns and indices of dictionaries refer to is copied whole. It has no offsets, except in run-end encoded columns.
///
/// The host must be able to read the batch's memory (else DEVX_DEVICE), and the data must be ready (else DEVX_NOT_READY). To
/// copy from or to a device, use `devx_batch_copy_to`.
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

/// Like `devx_tensor_copy_to`, for a whole batch: one allocation, and one copy for each buffer.
///
/// For text and binary in device memory, the library first reads offsets, or the sizes that belong to views, for which the host
/// waits. Within host memory, `devx_batch_copy` needs no stream.
///
/// A copy in host memory that is not pinned has of a slice what `devx_batch_copy` has. Any other copy also has the texts and
/// elements of lists in front of those of the slice (in device memory, all elements of the lists), and up to seven rows in
/// front of a slice that has bits, with an offset.
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

/// Takes an Arrow array in host memory from its producer.
///
/// On success, it is moved from (its `release` is NULL), and released once, when the last user is gone. On failure, it is
/// untouched. `schema` is shared. No buffer is read.
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

/// Like `devx_batch_import`, for an array that says where it is and when it may be touched.
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
        // SAFETY: the caller gives a valid array and a valid schema, both of which it owns.
        let batch = unsafe { Batch::import_pair(array.cast(), schema.cast()) }?;
        out.write(BatchHandle::give(batch));
        Ok(())
    })
}

/// Like `devx_batch_import_pair`, for an array that says where it is and when it may be touched.
#[ffi_export]
unsafe fn devx_batch_import_pair_device(
    array: *mut ArrowDeviceArray,
    schema: *mut ArrowSchema,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a valid array and a valid schema, both of which it owns.
        let batch = unsafe { Batch::import_pair_device(array.cast(), schema.cast()) }?;
        out.write(BatchHandle::give(batch));
        Ok(())
    })
}

/// Gives another reference to the same batch.
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

/// Hands the batch to a consumer, which releases `out`; the handle is kept. What `out` held is overwritten, not released.
///
/// DEVX_DEVICE if the batch is not on the CPU, because this struct cannot name a device.
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

/// Like `devx_batch_export_share`, with the device and the event to wait for.
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

/// Like `devx_batch_export_share`, but sets the handle to NULL. On failure, the handle is as before.
#[ffi_export]
unsafe fn devx_batch_export_move(
    batch: Option<&mut *mut BatchHandle>,
    out: *mut ArrowArray,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives room for an array.
        let export = |given: Batch| unsafe { given.export(out.cast()) };
        // SAFETY: the caller gives a living handle.
        unsafe { BatchHandle::hand_over(batch, export) }
    })
}

/// Like `devx_batch_export_move`, with the device and the event to wait for.
#[ffi_export]
unsafe fn devx_batch_export_move_device(
    batch: Option<&mut *mut BatchHandle>,
    out: *mut ArrowDeviceArray,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives room for an array.
        let export = |given: Batch| unsafe { given.export_device(out.cast()) };
        // SAFETY: the caller gives a living handle.
        unsafe { BatchHandle::hand_over(batch, export) }
    })
}

/// Tells the size of a batch, and the device that it is on.
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

/// Asks the driver whether the buffers of a batch are where the batch says.
///
/// The check covers all bytes that follow from the lengths and offsets of the arrays. No buffer is read, so it leaves out the
/// data that offsets and views in a buffer point to: only these tell how many bytes that is. Memory of the CPU is not checked.
#[ffi_export]
unsafe fn devx_batch_check_pointers(batch: *const BatchHandle, error: Option<&mut ErrorRecord>) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { BatchHandle::borrow(batch, "batch") }?.check_pointers())
}

/// Gives a reference to the schema of the batch.
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

/// Releases a batch and sets the handle to NULL, on any thread. NULL and a handle that is NULL are fine.
#[ffi_export]
unsafe fn devx_batch_release(batch: Option<&mut *mut BatchHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { BatchHandle::take(batch) }));
}
