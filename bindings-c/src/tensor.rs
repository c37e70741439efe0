//! `devx_tensor_*`: making tensors, looking at them, giving them up.

use devexchange_core::error::Refused;
use devexchange_core::{Flags, Owner, Result, Tensor, dlpack};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{DlTensor, ErrorRecord, OwnerRecord, Status};
use crate::error::{guard, guard_release, handed_over, handle, required};

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

/// The owner of a refused call stays the caller's, so it is not released here.
pub(crate) fn keep<T>(made: std::result::Result<T, Refused<Owner>>) -> Result<T> {
    made.map_err(|refused| {
        refused.returned.into_raw();
        refused.error
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

/// Gives up a tensor and sets the handle to NULL. NULL and a handle that is NULL are fine. From any thread.
#[ffi_export]
unsafe fn devx_tensor_release(tensor: Option<&mut *mut TensorHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { TensorHandle::take(tensor) }));
}
