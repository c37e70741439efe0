//! `devx_tensor_*`: creating, inspecting, copying and releasing tensors.

use devexchange_core::{DType, Device, Flags, Owner, RawStream, Tensor, dlpack};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{DlDataType, DlDevice, DlTensor, ErrorRecord, OwnerRecord, Status, Void};
use crate::error::{guard, guard_release, handed_over, handle, list, list_mut, required};
use crate::stream::stream_or_none;

handle! {
    /// A tensor: one reference to memory with a shape and an element type. Valid until it is released or moved.
    TensorHandle = "devx_tensor" of Tensor
}
handed_over! { TensorHandle of Tensor, "tensor" }

/// Makes a tensor over the caller's memory.
///
/// `description` says what and where the memory is; its `strides` may be NULL for compact row-major order. Shape and strides
/// are copied. `flags` are DLPACK_FLAG_BITMASK_… bits. `owner` keeps the memory alive: its release is called once, when the
/// last user of the tensor is gone. `owner` is NULL if the memory outlives everything. On failure, the owner is still the
/// caller's. Data that is not on the CPU counts as queued on the legacy default stream (see `devx_tensor_produced_on`).
#[ffi_export]
unsafe fn devx_tensor_create(
    description: Option<&DlTensor>,
    flags: u64,
    owner: Option<&OwnerRecord>,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        let description = &required(description, "description")?.0;
        // SAFETY: the caller hands over its own owner.
        let owner = || owner.map_or(Owner::none(), |owner| unsafe { Owner::from_raw(owner.0) });
        // SAFETY: the caller's description is valid during the call, and the memory as long as its owner keeps it.
        let tensor = unsafe { dlpack::described(description, Flags(flags), owner) }?;
        out.write(TensorHandle::give(tensor));
        Ok(())
    })
}

/// Makes a compact row-major tensor over new, uninitialised memory of a device.
///
/// With a stream of a GPU, the memory comes from the device's pool and is ready for work on that stream. The stream must not be
/// destroyed before the tensor is released; it may be closed (`devx_stream_close`). With −1, the memory can be used at once;
/// that of a GPU counts as filled on the legacy default stream (`devx_tensor_produced_on`). Pinned and managed memory is made
/// for the device of the stream, with −1 for device 0, whatever number `device` has.
/// DEVX_INVALID_STREAM for a stream of another device, DEVX_UNSUPPORTED if the stream is being captured.
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

/// Gives another reference to the same tensor.
#[ffi_export]
unsafe fn devx_tensor_share(
    tensor: *const TensorHandle,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        out.write(TensorHandle::give(tensor.clone()));
        Ok(())
    })
}

/// Makes a tensor of `length` indices along one dimension, from index `offset` on.
///
/// It has as many dimensions and the same strides, and shares the memory: nothing is copied. It is ready when the whole is, and
/// work that is named for it (`devx_tensor_used_on`) is named for the whole. DEVX_OUT_OF_RANGE if there is no such dimension or
/// it has too few indices, DEVX_IMPOSSIBLE if the first element would begin within a byte.
#[ffi_export]
unsafe fn devx_tensor_slice(
    tensor: *const TensorHandle,
    dimension: i64,
    offset: i64,
    length: i64,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        out.write(TensorHandle::give(tensor.slice(dimension, offset, length)?));
        Ok(())
    })
}

/// Gives a view of the tensor, which is valid as long as the handle.
///
/// Everything in the view belongs to the tensor. Its strides are never NULL, and its `byte_offset` is 0. `flags`, which may be
/// NULL, gets the DLPACK_FLAG_BITMASK_… bits.
#[ffi_export]
unsafe fn devx_tensor_borrow(
    tensor: *const TensorHandle,
    out: Option<Out<'_, DlTensor>>,
    flags: Option<Out<'_, u64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        out.write(DlTensor(tensor.as_dltensor()));
        if let Some(flags) = flags {
            flags.write(tensor.flags().0);
        }
        Ok(())
    })
}

/// Tells the size of the tensor.
///
/// `elements` gets the number of elements, `bytes` how many bytes they take when compact, and `row_major` 1 if they are compact
/// and in row-major order, otherwise 0. Each output may be NULL.
#[ffi_export]
unsafe fn devx_tensor_size(
    tensor: *const TensorHandle,
    elements: Option<Out<'_, i64>>,
    bytes: Option<Out<'_, i64>>,
    row_major: Option<Out<'_, i32>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let layout = unsafe { TensorHandle::borrow(tensor, "tensor") }?.layout();
        if let Some(out) = elements {
            out.write(layout.elements as i64);
        }
        if let Some(out) = bytes {
            out.write(layout.bytes as i64);
        }
        if let Some(out) = row_major {
            out.write(layout.row_major.into());
        }
        Ok(())
    })
}

/// Makes a compact row-major copy in host memory that this library allocates.
///
/// The host must be able to read the tensor's memory (else DEVX_DEVICE), and the data must be ready (else DEVX_NOT_READY). To
/// copy from or to a device, use `devx_tensor_copy_to`.
#[ffi_export]
unsafe fn devx_tensor_copy(
    tensor: *const TensorHandle,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        out.write(TensorHandle::give(tensor.copy()?));
        Ok(())
    })
}

/// Copies the tensor to another device, or within the same one.
///
/// The copy is queued on `stream`, a stream of either device; the tensor's memory is released only after the copy. A copy from
/// or into host memory that is not pinned is waited for. Within such memory, `stream` may be any stream but not −1; use 1 (1
/// and 2 are those of device 0). Nothing is queued if there is no driver; `devx_tensor_copy` needs no stream.
///
/// A copy from or to host memory that is not pinned is row-major; any other copy has the strides of the tensor.
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

/// Reads all elements of a tensor on any device into `bytes` bytes of host memory, and waits for them.
///
/// The elements of the tensor have to be compact and in row-major order. For the stream of a tensor in host memory that is not
/// pinned, see `devx_tensor_copy_to`; to read such a tensor without a stream and without a copy, use `devx_tensor_borrow`.
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
        // SAFETY: the caller gives `bytes` bytes of its own, to be written.
        let into = unsafe { list_mut(into.cast::<u8>(), bytes, "into") }?;
        // SAFETY: the caller's stream is alive.
        tensor.read(into, Some(tensor.stream_to(Device::CPU, unsafe { RawStream::new(stream) })?))
    })
}

/// Writes all elements of a tensor from `bytes` bytes of host memory, in the order of `devx_tensor_read`, and waits until they
/// are written.
///
/// `from` is free again when the call returns. Nobody else may use the elements meanwhile.
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
        // SAFETY: the caller gives `bytes` bytes.
        let from = unsafe { list(from.cast::<u8>(), bytes, "from") }?;
        // SAFETY: the caller's stream is alive.
        let stream = tensor.stream_to(Device::CPU, unsafe { RawStream::new(stream) })?;
        // SAFETY: the caller keeps others away from the elements.
        unsafe { tensor.write(from, Some(stream)) }
    })
}

/// Asks the driver whether all memory of a tensor is where the tensor says. Memory of the CPU is not checked.
#[ffi_export]
unsafe fn devx_tensor_check_pointers(tensor: *const TensorHandle, error: Option<&mut ErrorRecord>) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { TensorHandle::borrow(tensor, "tensor") }?.check_pointers())
}

/// Releases a tensor and sets the handle to NULL, on any thread. NULL and a handle that is NULL are fine.
#[ffi_export]
unsafe fn devx_tensor_release(tensor: Option<&mut *mut TensorHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { TensorHandle::take(tensor) }));
}
