//! `devx_cuda_array_*`: import and export of the CUDA Array Interface as a C struct.

use devexchange_core::cuda_array::{self, Imported, Request, export_to};
use devexchange_core::{Result, Tensor};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{CudaArray, CudaArrayRequestRecord, ErrorRecord, Status};
use crate::error::{guard, guard_release, required};
use crate::tensor::TensorHandle;

/// Takes a CUDA array from its producer.
///
/// On success, it is moved from (its `release` is NULL), and released once, when the last user is gone. On failure, it is
/// untouched. Users of the tensor wait, on the device, for what the producer has queued on its stream so far; `request->stream`
/// is made to wait for it at once. When the tensor is given up, the producer's stream is made to wait for the work that was
/// named with `devx_tensor_used_on`; it must stay alive until the array is released. `request` may be NULL.
///
/// `*mask` gets a tensor of the same shape that says which elements are valid, or NULL if all are. If `mask` is NULL, an array
/// that has a mask is refused (DEVX_UNSUPPORTED).
#[ffi_export]
unsafe fn devx_cuda_array_import(
    source: *mut CudaArray,
    request: Option<&CudaArrayRequestRecord>,
    out: Option<Out<'_, *mut TensorHandle>>,
    mask: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the stream that the caller names is alive.
        let request = unsafe { request_of(request) }?;
        // SAFETY: the caller gives a valid array that it owns.
        let imported = unsafe { cuda_array::import(source.cast(), &request, mask.is_some()) }?;
        let Imported { tensor, mask: valid } = imported;
        out.write(TensorHandle::give(tensor));
        if let Some(mask) = mask {
            mask.write(valid.map_or(std::ptr::null_mut(), TensorHandle::give));
        }
        Ok(())
    })
}

/// Hands a tensor to a consumer as a CUDA array, which the consumer releases; the handle is kept.
///
/// What `out` held is overwritten, not released. Work that is queued on its `stream` comes after the data is ready, and after
/// the work that was named with `devx_tensor_used_on`. The release of the array gives the tensor up after the work that is then
/// queued on this stream. `request` may be NULL.
#[ffi_export]
unsafe fn devx_tensor_export_share_cuda_array(
    tensor: *const TensorHandle,
    request: Option<&CudaArrayRequestRecord>,
    out: *mut CudaArray,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let tensor = unsafe { TensorHandle::borrow(tensor, "tensor") }?;
        // SAFETY: the stream that the caller names is alive.
        let request = unsafe { request_of(request) }?;
        // SAFETY: the caller gives room for an array.
        Ok(unsafe { export_to(Tensor::clone(&tensor), &request, out.cast()) }?)
    })
}

/// Like `devx_tensor_export_share_cuda_array`, but sets the handle to NULL. On failure, the handle is as before.
#[ffi_export]
unsafe fn devx_tensor_export_move_cuda_array(
    tensor: Option<&mut *mut TensorHandle>,
    request: Option<&CudaArrayRequestRecord>,
    out: *mut CudaArray,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the stream that the caller names is alive.
        let request = unsafe { request_of(request) }?;
        // SAFETY: the caller gives room for an array.
        let export = |tensor| unsafe { export_to(tensor, &request, out.cast()) };
        // SAFETY: the caller gives a living handle.
        unsafe { TensorHandle::hand_over(tensor, export) }
    })
}

/// Releases a CUDA array that nobody imported, unless it is already released or moved from. NULL is fine.
#[ffi_export]
unsafe fn devx_cuda_array_release(array: *mut CudaArray) {
    // SAFETY: the caller gives NULL, or a valid array that it owns.
    guard_release(|| unsafe { cuda_array::release(array.cast()) });
}

/// # Safety
/// Same as [`Request::from_raw`].
unsafe fn request_of(request: Option<&CudaArrayRequestRecord>) -> Result<Request> {
    // SAFETY: the caller's contract.
    request.map_or(Ok(Request::default()), |request| unsafe { Request::from_raw(&request.0) })
}
