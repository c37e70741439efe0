//! `devx_tensor_import*`, `devx_tensor_export_*`, `devx_dlpack_release*`: import and export of both structs of DLPack.

use std::ptr::NonNull;

use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::dlpack::{self, Managed, Owned, Request};
use devexchange_core::{RawStream, Refused, Result, Tensor};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{ErrorRecord, Legacy, RequestRecord, Status, Versioned};
use crate::error::{guard, guard_release, required};
use crate::tensor::TensorHandle;

/// Takes a DLPack tensor from its producer.
///
/// On success, its deleter is called once, when the last user of the tensor is gone. On failure, it is untouched, and still the
/// caller's to delete. Its strides may be NULL. Data that is not on the CPU counts as queued on the legacy default stream.
#[ffi_export]
unsafe fn devx_tensor_import(
    source: *mut Versioned,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a valid tensor that it owns.
    guard(error, || unsafe { import(source.cast::<DLManagedTensorVersioned>(), out) })
}

/// Like `devx_tensor_import`, for the struct of DLPack before 1.0.
#[ffi_export]
unsafe fn devx_tensor_import_legacy(
    source: *mut Legacy,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a valid tensor that it owns.
    guard(error, || unsafe { import(source.cast::<DLManagedTensor>(), out) })
}

/// # Safety
/// Same as [`dlpack::import`].
unsafe fn import<M: Managed>(source: *mut M, out: Option<Out<'_, *mut TensorHandle>>) -> Result<()> {
    let out = required(out, "out")?;
    // SAFETY: the caller's contract.
    let tensor = unsafe { dlpack::import(source) }?;
    out.write(TensorHandle::give(tensor));
    Ok(())
}

/// Like `devx_tensor_import`, for a tensor that its producer exported for `stream`.
///
/// The data is ready for work that is queued on `stream` from now on. −1 is for a producer that was asked for no
/// synchronisation: it says nothing about the data, which counts as queued on the legacy default stream. The stream must not be
/// destroyed before the tensor and everything that was exported from it is released; it may be closed (`devx_stream_close`).
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

/// Like `devx_tensor_import_on`, for the struct of DLPack before 1.0.
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
/// Same as [`dlpack::import_on`] and [`RawStream::new`].
// Apart from `import`: the core's code is inlined in both, which it would not be in one function for the two.
unsafe fn import_on<M: Managed>(source: *mut M, stream: i64, out: Option<Out<'_, *mut TensorHandle>>) -> Result<()> {
    let out = required(out, "out")?;
    // SAFETY: the caller's contract.
    let stream = unsafe { RawStream::new(stream) };
    // SAFETY: as above.
    let tensor = unsafe { dlpack::import_on(source, Some(stream)) }?;
    out.write(TensorHandle::give(tensor));
    Ok(())
}

/// Hands the tensor to a consumer, which calls the deleter once; the handle is kept.
///
/// A NULL `request` asks for the newest version, no synchronisation and no copy. This call copies only host memory, pinned and
/// managed memory included. The copy is in plain host memory; DEVX_NOT_READY if the data is not ready. A copy of device memory
/// is refused (`DEVX_DEVICE`), because it needs a stream: make it with `devx_tensor_copy_to` and export that. The consumer gets
/// the tensor's flags, but DLPACK_FLAG_BITMASK_IS_COPIED only if it is the only user of a copy.
#[ffi_export]
unsafe fn devx_tensor_export_share(
    tensor: *const TensorHandle,
    request: Option<&RequestRecord>,
    out: Option<Out<'_, *mut Versioned>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { share::<DLManagedTensorVersioned, _>(tensor, request, out) })
}

/// Like `devx_tensor_export_share`, but sets the handle to NULL. On failure, the handle is as before.
#[ffi_export]
unsafe fn devx_tensor_export_move(
    tensor: Option<&mut *mut TensorHandle>,
    request: Option<&RequestRecord>,
    out: Option<Out<'_, *mut Versioned>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { hand_over::<DLManagedTensorVersioned, _>(tensor, request, out) })
}

/// Like `devx_tensor_export_share`, but gives the struct of DLPack before 1.0.
///
/// That struct cannot say that a tensor is read-only, so such a tensor is refused (DEVX_READ_ONLY), or copied if the request
/// allows it. Padded sub-byte elements, which it cannot express either, are refused (DEVX_UNSUPPORTED).
#[ffi_export]
unsafe fn devx_tensor_export_share_legacy(
    tensor: *const TensorHandle,
    request: Option<&RequestRecord>,
    out: Option<Out<'_, *mut Legacy>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { share::<DLManagedTensor, _>(tensor, request, out) })
}

/// Like `devx_tensor_export_move`, but gives the struct of DLPack before 1.0, as `devx_tensor_export_share_legacy` does.
#[ffi_export]
unsafe fn devx_tensor_export_move_legacy(
    tensor: Option<&mut *mut TensorHandle>,
    request: Option<&RequestRecord>,
    out: Option<Out<'_, *mut Legacy>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { hand_over::<DLManagedTensor, _>(tensor, request, out) })
}

// Almost no call has a request. Those that do are handled apart, and cost the others no stack space.

/// # Safety
/// Same as [`Request::from_raw`].
#[cold]
#[inline(never)]
unsafe fn share_as<M: Managed>(tensor: &Tensor, request: &RequestRecord) -> Result<Owned<M>> {
    // SAFETY: the caller's contract.
    dlpack::share(tensor, &unsafe { Request::from_raw(&request.0) }?)
}

/// # Safety
/// Same as [`Request::from_raw`].
#[cold]
#[inline(never)]
unsafe fn export_as<M: Managed>(
    tensor: Tensor,
    request: &RequestRecord,
) -> std::result::Result<Owned<M>, Refused<Tensor>> {
    // SAFETY: the caller's contract.
    match unsafe { Request::from_raw(&request.0) } {
        Ok(request) => dlpack::export(tensor, &request),
        Err(error) => Err(Refused { error, returned: tensor }),
    }
}

/// # Safety
/// `tensor` is NULL or a living handle; `C` is the C name of `M`.
unsafe fn share<M: Managed, C>(
    tensor: *const TensorHandle,
    request: Option<&RequestRecord>,
    out: Option<Out<'_, *mut C>>,
) -> Result<()> {
    let out = required(out, "out")?;
    // SAFETY: the caller's contract.
    let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
    let managed = match request {
        None => dlpack::share::<M>(&tensor, &Request::default()),
        // SAFETY: as above.
        Some(request) => unsafe { share_as(&tensor, request) },
    }?;
    out.write(managed.into_raw().cast());
    Ok(())
}

/// # Safety
/// Same as [`share`].
unsafe fn hand_over<M: Managed, C>(
    tensor: Option<&mut *mut TensorHandle>,
    request: Option<&RequestRecord>,
    out: Option<Out<'_, *mut C>>,
) -> Result<()> {
    let out = required(out, "out")?;
    let export = |tensor| match request {
        None => dlpack::export::<M>(tensor, &Request::default()),
        // SAFETY: the caller's contract.
        Some(request) => unsafe { export_as(tensor, request) },
    };
    // SAFETY: as above.
    let managed = unsafe { TensorHandle::hand_over(tensor, export) }?;
    out.write(managed.into_raw().cast());
    Ok(())
}

/// Calls the deleter of a DLPack tensor, if it has one, and sets the pointer to NULL.
///
/// NULL and a pointer that is NULL are fine. Works for every major version.
#[ffi_export]
unsafe fn devx_dlpack_release(tensor: Option<&mut *mut Versioned>) {
    // SAFETY: the caller gives a tensor that it owns, or NULL.
    guard_release(|| unsafe { release::<DLManagedTensorVersioned, _>(tensor) });
}

/// Like `devx_dlpack_release`, for the struct of DLPack before 1.0.
#[ffi_export]
unsafe fn devx_dlpack_release_legacy(tensor: Option<&mut *mut Legacy>) {
    // SAFETY: the caller gives a tensor that it owns, or NULL.
    guard_release(|| unsafe { release::<DLManagedTensor, _>(tensor) });
}

/// # Safety
/// `*tensor` is NULL or a tensor that the caller owns; `C` is the C name of `M`.
unsafe fn release<M: Managed, C>(tensor: Option<&mut *mut C>) {
    let managed = tensor.map(|tensor| std::mem::replace(tensor, std::ptr::null_mut()));
    if let Some(managed) = managed.and_then(NonNull::new) {
        // SAFETY: the caller's contract; its pointer is NULL now.
        drop(unsafe { dlpack::Owned::<M>::from_raw(managed.cast()) });
    }
}
