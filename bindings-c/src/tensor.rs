//! `devx_tensor_*`: making tensors, looking at them, copying them, giving them up.

use devexchange_core::{DType, Device, Flags, Owner, RawStream, Tensor, dlpack};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{DlDataType, DlDevice, DlTensor, ErrorRecord, OwnerRecord, Status, Void};
use crate::error::{guard, guard_release, handed_over, handle, list, list_mut, required};
use crate::stream::stream_or_none;

handle! {
    /// A tensor: one reference to memory with a shape and an element type. It stays valid until it is released or moved.
    TensorHandle = "devx_tensor" of Tensor
}
handed_over! { TensorHandle of Tensor, "tensor" }

/// Makes a tensor over memory of the caller's.
///
/// `description` says what and where the memory is; `strides` may be NULL for compact row-major. Shape and strides
/// are copied. `flags` are DLPACK_FLAG_BITMASK_… bits. `owner` keeps the memory alive: its release is called once,
/// when the last user of the tensor is gone; NULL if the memory outlives everything. On failure the owner is the
/// caller's as before.
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
        // SAFETY: the caller hands over an owner of its own.
        let owner = || owner.map_or(Owner::none(), |owner| unsafe { Owner::from_raw(owner.0) });
        // SAFETY: the caller's description is valid for the length of the call, the memory as long as its owner keeps it.
        let tensor = unsafe { dlpack::described(description, Flags(flags), owner) }?;
        out.write(TensorHandle::give(tensor));
        Ok(())
    })
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

/// Another reference to the same tensor.
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

/// So many of the indices along one dimension, from the one at `offset` on, as a tensor of its own with as many dimensions and
/// the same strides, which shares the memory: nothing is copied.
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

/// A view of the tensor: strides are always there, `byte_offset` is 0, and all of it belongs to the tensor and is
/// valid as long as the handle. `flags`, which may be NULL, gets the DLPACK_FLAG_BITMASK_… bits.
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

/// The size of the tensor: `elements` and `bytes` (compact), each may be NULL. `row_major` gets 1 if the elements lie
/// compactly in row-major order, otherwise 0.
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

/// A compact row-major copy in host memory of this library's.
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

/// A copy of the tensor on another device (or the same), queued on `stream`, a stream of either; the tensor is released
/// only after the copy. Copies into host memory that is not pinned are waited for. Within such memory `stream` may be any
/// stream, 1 and 2 are device 0's, and without a driver nothing is queued; `devx_tensor_copy` needs none. Elements in another
/// order than row-major are so in copies from and to host memory that is not pinned; other copies have the same strides.
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

/// Reads all elements of a tensor, wherever it is, into `bytes` bytes of host memory and waits for them. They have to lie
/// compactly in row-major order. For the stream of a tensor in host memory that is not pinned, see `devx_tensor_copy_to`; it
/// is read without one, and without a copy, through `devx_tensor_borrow`.
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
        tensor.read(into, Some(tensor.stream_to(Device::CPU, unsafe { RawStream::new(stream) })?))
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
        let stream = tensor.stream_to(Device::CPU, unsafe { RawStream::new(stream) })?;
        // SAFETY: the caller keeps others away from the elements.
        unsafe { tensor.write(from, Some(stream)) }
    })
}

/// Asks the driver whether the memory of a tensor is where the tensor says, all of it.
#[ffi_export]
unsafe fn devx_tensor_check_pointers(tensor: *const TensorHandle, error: Option<&mut ErrorRecord>) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { TensorHandle::borrow(tensor, "tensor") }?.check_pointers())
}

/// Gives up a tensor and sets the handle to NULL. NULL and a handle that is NULL are fine. From any thread.
#[ffi_export]
unsafe fn devx_tensor_release(tensor: Option<&mut *mut TensorHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { TensorHandle::take(tensor) }));
}
