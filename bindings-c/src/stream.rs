//! `devx_stream_*`, and tensors and batches in the order of streams. A stream is a number, as in the protocols: 1 is the
//! legacy default stream, 2 the per-thread one, others are handles (`CUstream`, `cudaStream_t`), −1 is none. Or it is one
//! of this library's own, which names the device of a default stream.

use core::ffi::c_void;

use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::abi::types::DevxOwner;
use devexchange_core::device::Device;
use devexchange_core::dlpack::{self, Managed};
use devexchange_core::order::NO_SYNC;
use devexchange_core::runtime::cuda::{Hold, RawStream, Stream};
use devexchange_core::{Batch, DType, Result, Tensor};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::batch::BatchHandle;
use crate::column::view;
use crate::ctypes::{ColumnRecord, DlDataType, DlDevice, ErrorRecord, Legacy, OwnerRecord, Status, Versioned, Void};
use crate::error::{guard, guard_release, list, list_mut, required};
use crate::tensor::TensorHandle;

/// Makes a stream on a device that does not wait for the legacy default stream. It is given up with devx_stream_close, when
/// nothing is queued on it any more, or destroyed (devx_stream_destroy) after all that was allocated, copied, imported or
/// produced on it is released, and what was exported of that. A stream that was only waited on, or named as one that uses
/// something, is needed for that call only.
#[ffi_export]
fn devx_stream_create(device: DlDevice, out: Option<Out<'_, i64>>, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        let device = Device::from_dlpack(device.0)?;
        device.require_streams()?;
        out.write(Stream::create(device.id)?.value());
        Ok(())
    })
}

/// A number for a stream of a device, wherever the data is that it is used with: 1 and 2 by themselves are default streams
/// of the data's device. With the device of pinned or managed memory, and of handles, it is `stream` itself. Every function
/// and record of this library takes it where they take a stream; no other library knows it.
#[ffi_export]
unsafe fn devx_stream_of_device(
    device: DlDevice,
    stream: i64,
    out: Option<Out<'_, i64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller's stream is alive.
        let stream = unsafe { RawStream::new(stream) };
        out.write(Device::from_dlpack(device.0)?.own_stream(stream)?.to_raw());
        Ok(())
    })
}

/// Destroys a stream that nobody uses any more, no release either (see `devx_stream_close`); what is queued on it is still
/// done.
#[ffi_export]
unsafe fn devx_stream_destroy(device: DlDevice, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller's stream is alive.
        let stream = unsafe { stream_of(Device::from_dlpack(device.0)?, stream) }?;
        stream.require_own_device()?;
        // SAFETY: and the caller is done with it.
        unsafe { stream.destroy() }
    })
}

/// Gives up a stream that nobody queues work on any more: it is destroyed when all tensors and batches are released that
/// were allocated, copied, imported or produced on it, and what was handed on of these; when all memory is given back that a
/// manager gave for it; when the releases are done that wait for work now; and when nobody holds it (`devx_stream_hold`).
/// What is queued on it is still done.
#[ffi_export]
unsafe fn devx_stream_close(device: DlDevice, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller's stream is alive.
        let stream = unsafe { stream_of(Device::from_dlpack(device.0)?, stream) }?;
        stream.require_own_device()?;
        // SAFETY: and the caller is done with it.
        unsafe { stream.close() }
    })
}

/// Holds a stream of any device: if it is closed meanwhile (`devx_stream_close`), it is destroyed only after `out` was
/// released, by any thread. For managers that give memory back in the order of a stream some time after the release of its
/// owner, on a thread of their own for example: they hold the stream of the request, and release `out` when that is done. For
/// a default stream and -1 there is nothing to hold, and nothing to release; 0 is refused, as everywhere.
#[ffi_export]
fn devx_stream_hold(stream: i64, out: Option<Out<'_, OwnerRecord>>, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        let raw = Hold::new(stream)?.into_raw();
        let release = (raw != 0).then_some(let_go as _);
        out.write(OwnerRecord(DevxOwner { context: std::ptr::without_provenance_mut(raw as usize), release }));
        Ok(())
    })
}

unsafe extern "C" fn let_go(hold: *mut c_void) {
    // SAFETY: the context of a hold, whose release is called once.
    guard_release(|| drop(unsafe { Hold::from_raw(hold.addr() as i64) }));
}

/// Blocks until all work that is queued on a stream is done. No exchange needs it.
#[ffi_export]
unsafe fn devx_stream_synchronize(device: DlDevice, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    // SAFETY: the caller's stream is alive.
    guard(error, || unsafe { stream_of(Device::from_dlpack(device.0)?, stream) }?.synchronize())
}

/// # Safety
/// As [`RawStream::new`].
unsafe fn stream_of(device: Device, value: i64) -> Result<Stream> {
    // SAFETY: the caller's contract.
    device.stream_with(device, unsafe { RawStream::new(value) })
}

/// A stream that may be missing: −1.
///
/// # Safety
/// As [`RawStream::new`].
pub(crate) unsafe fn stream_or_none(device: Device, value: i64) -> Result<Option<Stream>> {
    // SAFETY: the caller's contract.
    (value != NO_SYNC).then(|| unsafe { stream_of(device, value) }).transpose()
}

/// As [`stream_or_none`], for work with a batch.
///
/// # Safety
/// As [`RawStream::new`].
pub(crate) unsafe fn stream_with_batch(batch: &Batch, value: i64) -> Result<Option<Stream>> {
    // SAFETY: the caller's contract.
    (value != NO_SYNC).then(|| batch.stream(unsafe { RawStream::new(value) })).transpose()
}

/// As `devx_tensor_import`, of a tensor whose producer was asked for it with `stream`: its data is ready for work that is
/// queued there from now on. −1 where the producer was asked for no synchronisation: that says nothing of the data, which
/// counts as queued on the legacy default stream. Until the tensor, and what was handed on of it, is released, the stream is
/// not destroyed; it may be closed (`devx_stream_close`).
#[ffi_export]
unsafe fn devx_tensor_import_on(
    source: *mut Versioned,
    stream: i64,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a valid tensor that it owns.
    guard(error, || unsafe { import_on(source.cast::<DLManagedTensorVersioned>(), stream, out) })
}

/// As `devx_tensor_import_on`, for the struct of DLPack before 1.0.
#[ffi_export]
unsafe fn devx_tensor_import_on_legacy(
    source: *mut Legacy,
    stream: i64,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a valid tensor that it owns.
    guard(error, || unsafe { import_on(source.cast::<DLManagedTensor>(), stream, out) })
}

/// # Safety
/// As [`dlpack::import_on`] and [`RawStream::new`].
unsafe fn import_on<M: Managed>(source: *mut M, stream: i64, out: Option<Out<'_, *mut TensorHandle>>) -> Result<()> {
    let out = required(out, "out")?;
    // SAFETY: the caller's contract.
    let stream = unsafe { RawStream::new(stream) };
    // SAFETY: as above.
    let tensor = unsafe { dlpack::import_on(source, Some(stream)) }?;
    out.write(TensorHandle::give(tensor));
    Ok(())
}

/// Makes a tensor over new memory of a device, compact and row-major, not initialised. On a GPU with a stream the memory
/// comes from the device's pool, ready for work on that stream, which is not destroyed before the tensor is released, but
/// may be closed (`devx_stream_close`); with −1 it is ready at once.
#[ffi_export]
unsafe fn devx_tensor_allocate(
    device: DlDevice,
    dtype: DlDataType,
    shape: *const i64,
    ndim: usize,
    stream: i64,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives `ndim` extents.
        let shape = unsafe { list(shape, ndim, "shape") }?;
        let device = Device::from_dlpack(device.0)?;
        // SAFETY: the caller's stream is alive.
        let stream = unsafe { stream_or_none(device, stream) }?;
        let tensor = Tensor::allocate(device, DType::from_dlpack(dtype.0)?, shape, stream)?;
        out.write(TensorHandle::give(tensor));
        Ok(())
    })
}

/// A copy of the tensor on another device (or the same), queued on `stream`, a stream of either; the tensor is released
/// only after the copy. Copies into host memory that is not pinned are waited for. One of the two has streams, or it is
/// DEVX_DEVICE: within host memory use `devx_tensor_copy`. Elements in another order than row-major are so in copies from and
/// to host memory that is not pinned; other copies have the same strides.
#[ffi_export]
unsafe fn devx_tensor_copy_to(
    tensor: *const TensorHandle,
    device: DlDevice,
    stream: i64,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        let device = Device::from_dlpack(device.0)?;
        // SAFETY: the caller's stream is alive.
        let stream = tensor.stream_to(device, unsafe { RawStream::new(stream) })?;
        let copy = tensor.copy_to(device, stream)?;
        out.write(TensorHandle::give(copy));
        Ok(())
    })
}

/// Reads all elements of a tensor of a GPU (or in pinned or managed memory) into `bytes` bytes of host memory and waits for
/// them. They have to lie compactly in row-major order. Host tensors are read through `devx_tensor_borrow`.
#[ffi_export]
unsafe fn devx_tensor_read(
    tensor: *const TensorHandle,
    into: *mut Void,
    bytes: usize,
    stream: i64,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller gives so many bytes, which are its own to be written.
        let into = unsafe { list_mut(into.cast::<u8>(), bytes, "into") }?;
        // SAFETY: the caller's stream is alive.
        tensor.read(into, tensor.stream(unsafe { RawStream::new(stream) })?)
    })
}

/// Writes all elements from `bytes` bytes of host memory, as `devx_tensor_read` reads them; work that is queued on `stream`
/// afterwards sees them. Nobody else uses the elements meanwhile.
#[ffi_export]
unsafe fn devx_tensor_write(
    tensor: *const TensorHandle,
    from: *const Void,
    bytes: usize,
    stream: i64,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller gives so many bytes.
        let from = unsafe { list(from.cast::<u8>(), bytes, "from") }?;
        // SAFETY: the caller's stream is alive.
        let stream = tensor.stream(unsafe { RawStream::new(stream) })?;
        // SAFETY: the caller keeps others away from the elements.
        unsafe { tensor.write(from, stream) }
    })
}

/// Asks the driver whether the memory of a tensor is where the tensor says, all of it.
#[ffi_export]
unsafe fn devx_tensor_check_pointers(tensor: *const TensorHandle, error: Option<&mut ErrorRecord>) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { TensorHandle::borrow(tensor, "tensor") }?.check_pointers())
}

/// Says that the data is there when what is queued on `stream` is done: for a producer that worked on another stream than
/// the legacy default one. To be called before the tensor is shared. Memory that is given back in the order of another
/// stream is so only after that work, too. The stream is not destroyed before the tensor, and what was exported of it, is
/// released; it may be closed (`devx_stream_close`). No other call uses the handle meanwhile.
#[ffi_export]
unsafe fn devx_tensor_produced_on(tensor: *mut TensorHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle that no other call uses, and no call lends anything of it longer.
        let mut tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller's stream is alive.
        let stream = tensor.stream(unsafe { RawStream::new(stream) })?;
        // SAFETY: that is what the caller says.
        unsafe { tensor.produced_on(stream) }
    })
}

/// Makes `stream` wait, on the device, until the data of the tensor may be touched. The host does not wait.
#[ffi_export]
unsafe fn devx_tensor_wait(tensor: *const TensorHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller's stream is alive.
        tensor.wait(tensor.stream(unsafe { RawStream::new(stream) })?)
    })
}

/// Says that work which is queued on `stream` uses the tensor: its memory is released only when that work is done, however
/// early the tensor is released. From any thread, for as many streams as there are. The stream is needed for this call only.
#[ffi_export]
unsafe fn devx_tensor_used_on(tensor: *const TensorHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller's stream is alive.
        tensor.used_on(tensor.stream(unsafe { RawStream::new(stream) })?)
    })
}

/// What `stream` stands for in work with a tensor: a default stream with its device, as `devx_stream_of_device` gives it.
/// For pinned and managed memory that is the device it was made for, which the driver is asked for.
#[ffi_export]
unsafe fn devx_tensor_stream(
    tensor: *const TensorHandle,
    stream: i64,
    out: Option<Out<'_, i64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the caller's stream is alive.
        let stream = tensor.stream(unsafe { RawStream::new(stream) })?;
        out.write(RawStream::from(stream).to_raw());
        Ok(())
    })
}

/// As `devx_tensor_copy_to`, for a whole batch: one allocation, one copy for each buffer. Of texts and binary in device
/// memory the last offset is read first, which the host waits for. Within host memory use `devx_batch_copy`.
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

/// Asks the driver whether the buffers of a batch are where the batch says, all bytes that its lengths and offsets come to.
/// No buffer is read, so the bytes that offsets and views point into are left out: only those tell how many they are.
#[ffi_export]
unsafe fn devx_batch_check_pointers(batch: *const BatchHandle, error: Option<&mut ErrorRecord>) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { BatchHandle::borrow(batch, "batch") }?.check_pointers())
}

/// As `devx_tensor_produced_on`.
#[ffi_export]
unsafe fn devx_batch_produced_on(batch: *mut BatchHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle that no other call uses, and no call lends anything of it longer.
        let mut batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller's stream is alive.
        let stream = batch.stream(unsafe { RawStream::new(stream) })?;
        // SAFETY: that is what the caller says.
        unsafe { batch.produced_on(stream) }
    })
}

/// As `devx_tensor_wait`.
#[ffi_export]
unsafe fn devx_batch_wait(batch: *const BatchHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller's stream is alive.
        batch.wait(batch.stream(unsafe { RawStream::new(stream) })?)
    })
}

/// As `devx_tensor_used_on`.
#[ffi_export]
unsafe fn devx_batch_used_on(batch: *const BatchHandle, stream: i64, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let batch = unsafe { BatchHandle::borrow(batch, "batch") }?;
        // SAFETY: the caller's stream is alive.
        batch.used_on(batch.stream(unsafe { RawStream::new(stream) })?)
    })
}

/// The number of nulls of a column in memory of any device. If it is not known, the validity buffer is copied on `stream`,
/// for which the host waits, and counted.
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
