//! Imports and exports of tensors as DLPack, with both structs.

use core::ffi::c_void;
use std::ptr::NonNull;

use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::abi::types::DevxDlpackRequest;
use devexchange_core::dlpack::{self, Managed, Owned, Request};
use devexchange_core::{RawStream, Refused, Tensor};
use jni::sys::jlong;

use crate::error::Result;
use crate::handle::{address, give, take, tensor};
use crate::native::plain;
use crate::stream::number;

plain! { tensor_import_on(source: jlong, stream: jlong, legacy: jboolean) -> jlong }
/// Same as `tensor_import`, for a tensor whose producer was given a stream, or none (0) for no synchronisation.
fn tensor_import_on(source: jlong, stream: jlong, legacy: bool) -> Result<jlong> {
    // SAFETY: Java gives a living handle, or none.
    let stream = Some(unsafe { number(stream) }?);
    // SAFETY: Java's caller guarantees a tensor that it owns.
    unsafe { import(source, stream, legacy) }
}

plain! { tensor_import(source: jlong, legacy: jboolean) -> jlong }
/// Takes a DLPack tensor from its producer; if this fails, the struct is untouched.
fn tensor_import(source: jlong, legacy: bool) -> Result<jlong> {
    // SAFETY: Java's caller guarantees a tensor that it owns.
    unsafe { import(source, None, legacy) }
}

/// # Safety
/// As [`dlpack::import_on`], of one struct or the other.
unsafe fn import(source: jlong, stream: Option<RawStream>, legacy: bool) -> Result<jlong> {
    let tensor = if legacy {
        // SAFETY: the caller's contract.
        unsafe { dlpack::import_on(address::<DLManagedTensor>(source, "tensor")?, stream) }
    } else {
        // SAFETY: the caller's contract.
        unsafe { dlpack::import_on(address::<DLManagedTensorVersioned>(source, "tensor")?, stream) }
    };
    Ok(give(tensor?.into_raw()))
}

plain! { tensor_export(handle: jlong, request: jlong, legacy: jboolean) -> jlong }
/// Hands the tensor to a consumer and keeps it. The consumer calls the deleter. `request` is the address of a record.
fn tensor_export(handle: jlong, request: jlong, legacy: bool) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let tensor = unsafe { tensor(handle) }?;
    // SAFETY: Java gives the address of a record that it filled in.
    let request = unsafe { &*take::<DevxDlpackRequest>(request) };
    // SAFETY: and the stream in it is alive.
    let request = unsafe { Request::from_raw(request) }?;
    Ok(if legacy {
        give(dlpack::share::<DLManagedTensor>(&tensor, &request)?.into_raw())
    } else {
        give(dlpack::share::<DLManagedTensorVersioned>(&tensor, &request)?.into_raw())
    })
}

plain! { tensor_move(handle: jlong, asked: jlong, legacy: jboolean) -> jlong }
/// Hands the tensor to a consumer with the reference that Java has. The consumer calls the deleter. If this is refused,
/// Java keeps the reference; a panic takes it. `asked` is the address of a [`Move`], which tells whether the reference
/// was taken, because an exception may not.
fn tensor_move(handle: jlong, asked: jlong, legacy: bool) -> Result<jlong> {
    // SAFETY: Java gives the address of a record that it filled in, which nobody else uses during the call.
    let Move { request, taken } = unsafe { &mut *take::<Move>(asked) };
    // SAFETY: and the stream in it is alive.
    let request = unsafe { Request::from_raw(request) }?;
    *taken = 1;
    // SAFETY: Java gives a living handle that no other call uses.
    let tensor = unsafe { Tensor::from_raw(take::<c_void>(handle)) };
    let handed = if legacy {
        hand_over::<DLManagedTensor>(tensor, &request)
    } else {
        hand_over::<DLManagedTensorVersioned>(tensor, &request)
    };
    handed.map_err(|Refused { error, returned }| {
        // Java keeps the reference.
        returned.into_raw();
        *taken = 0;
        error.into()
    })
}

/// What Java asks for, and whether its reference was taken.
#[repr(C)]
struct Move {
    request: DevxDlpackRequest,
    taken: i64,
}

fn hand_over<M: Managed>(tensor: Tensor, request: &Request) -> std::result::Result<jlong, Refused<Tensor>> {
    dlpack::export::<M>(tensor, request).map(|managed| give(managed.into_raw()))
}

plain! { dlpack_release(source: jlong, legacy: jboolean) }
/// Calls the deleter of a DLPack tensor, if it has one. Works for every major version.
fn dlpack_release(source: jlong, legacy: bool) -> Result<()> {
    if legacy {
        // SAFETY: Java's caller guarantees a tensor that it owns.
        unsafe { delete::<DLManagedTensor>(source) }
    } else {
        // SAFETY: as above.
        unsafe { delete::<DLManagedTensorVersioned>(source) }
    }
}

/// # Safety
/// As [`Owned::from_raw`]; NULL is fine.
unsafe fn delete<M: Managed>(source: jlong) -> Result<()> {
    if let Some(managed) = NonNull::new(address::<M>(source, "tensor")?) {
        // SAFETY: the caller's contract.
        drop(unsafe { Owned::from_raw(managed) });
    }
    Ok(())
}
