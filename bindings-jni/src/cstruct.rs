//! Memory for the structs of Arrow and of the CUDA Array Interface, for Java callers that have none.

use core::ffi::c_void;

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::arrow_device_stream::ArrowDeviceArrayStream;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::abi::cuda_array::DevxCudaArray;
use devexchange_core::arrow::{release_array, release_device_stream, release_schema, release_stream};
use devexchange_core::cuda_array;
use jni::sys::jlong;

use crate::error::{Result, refuse};
use crate::handle::{
    ARROW_ARRAY, ARROW_DEVICE_ARRAY, ARROW_DEVICE_STREAM, ARROW_SCHEMA, ARROW_STREAM, CUDA_ARRAY, TAG_MASK, address,
    give,
};
use crate::native::plain;

/// Memory for any of the structs, aligned so that the low bits are free for a token. All zeros is a released struct.
#[repr(C, align(16))]
struct Room([u8; size_of::<ArrowDeviceArray>()]);

const _: () = assert!(align_of::<Room>() as jlong > TAG_MASK && size_of::<Room>() >= size_of::<ArrowSchema>());
const _: () = assert!(size_of::<Room>() >= size_of::<DevxCudaArray>());

plain! { struct_create() -> jlong }
fn struct_create() -> Result<jlong> {
    Ok(give(Box::into_raw(Box::new(Room([0; _])))))
}

plain! { struct_release(kind: jlong, source: jlong) }
/// Releases the content of a struct, if there is any; the memory stays. Java's caller can give an address of its own only
/// for a CUDA array; all of the structs are aligned alike.
fn struct_release(kind: jlong, source: jlong) -> Result<()> {
    let source = address::<DevxCudaArray>(source, "array")?;
    // SAFETY: Java gives the address of a struct that it, or its caller, owns.
    unsafe { release(kind, source.cast()) }
}

/// Releases the content of a struct, and then frees its memory.
///
/// # Safety
/// `raw` is from `struct_create`, was filled in only as the struct of `kind`, if at all, and is given up once.
pub(crate) unsafe fn free(kind: jlong, raw: *mut c_void) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { release(kind, raw) }?;
    // SAFETY: the caller's contract.
    drop(unsafe { Box::from_raw(raw.cast::<Room>()) });
    Ok(())
}

/// # Safety
/// `raw` is a valid struct of `kind`, released or not.
unsafe fn release(kind: jlong, raw: *mut c_void) -> Result<()> {
    match kind {
        // SAFETY: the caller's contract; a device array starts with its array.
        ARROW_ARRAY | ARROW_DEVICE_ARRAY => unsafe { release_array(raw.cast::<ArrowArray>()) },
        // SAFETY: the caller's contract.
        ARROW_SCHEMA => unsafe { release_schema(raw.cast::<ArrowSchema>()) },
        // SAFETY: the caller's contract.
        ARROW_STREAM => unsafe { release_stream(raw.cast::<ArrowArrayStream>()) },
        // SAFETY: the caller's contract.
        ARROW_DEVICE_STREAM => unsafe { release_device_stream(raw.cast::<ArrowDeviceArrayStream>()) },
        // SAFETY: the caller's contract.
        CUDA_ARRAY => unsafe { cuda_array::release(raw.cast::<DevxCudaArray>()) },
        other => return refuse!(DEVX_INVALID_ARGUMENT, "{other} is no kind of handle"),
    }
    Ok(())
}
