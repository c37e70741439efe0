//! Imports and exports of tensors as the C struct of the CUDA Array Interface.

use devexchange_core::Tensor;
use devexchange_core::abi::cuda_array::{DevxCudaArray, DevxCudaArrayRequest};
use devexchange_core::cuda_array::{self, Imported, Request};
use jni::sys::jlong;

use crate::error::Result;
use crate::handle::{address, give, take, tensor};
use crate::native::plain;

/// # Safety
/// `record` is the address of a record, and its stream is alive.
unsafe fn request_of(record: jlong) -> Result<Request> {
    // SAFETY: the caller's contract.
    let record = unsafe { &*take::<DevxCudaArrayRequest>(record) };
    // SAFETY: as above.
    Ok(unsafe { Request::from_raw(record) }?)
}

plain! { cuda_array_import(source: jlong, request: jlong, with_mask: jboolean, out: jlong) }
/// Takes a CUDA array from its producer; if this fails, the struct is untouched. Writes two longs: the tensor, and the
/// mask or 0.
fn cuda_array_import(source: jlong, request: jlong, with_mask: bool, out: jlong) -> Result<()> {
    let source = address::<DevxCudaArray>(source, "array")?;
    // SAFETY: Java gives the address of a record that it filled in.
    let request = unsafe { request_of(request) }?;
    // SAFETY: Java's caller guarantees an array that it owns.
    let Imported { tensor, mask } = unsafe { cuda_array::import(source, &request, with_mask) }?;
    let handles = [give(tensor.into_raw()), mask.map_or(0, |mask| give(mask.into_raw()))];
    // SAFETY: Java gives the address of room for two longs.
    unsafe { take::<[jlong; 2]>(out).write_unaligned(handles) };
    Ok(())
}

plain! { tensor_export_cuda_array(handle: jlong, request: jlong, out: jlong) }
/// Hands the tensor to a consumer and keeps it. The consumer releases `out`.
fn tensor_export_cuda_array(handle: jlong, request: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let tensor = Tensor::clone(&*unsafe { tensor(handle) }?);
    // SAFETY: Java gives the address of a record that it filled in.
    let request = unsafe { request_of(request) }?;
    // SAFETY: Java's caller guarantees memory for the struct.
    Ok(unsafe { cuda_array::export_to(tensor, &request, address(out, "out")?) }?)
}
