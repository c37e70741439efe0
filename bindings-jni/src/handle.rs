//! Handles: the addresses of counted references that Java holds.
//!
//! To give up a handle, Java passes a *token*: the address with the kind in its low bits, which are free because
//! everything that Java holds is aligned accordingly. `Handle.Kind` in Java has the same numbers.

use core::ffi::c_void;

use devexchange_core::{Batch, BatchStream, Borrowed, Schema, Tensor};
use jni::sys::jlong;

use crate::error::{Result, refuse};

/// The bits of a token that say what it is; 0 is a `Runnable`, which only Java knows.
pub(crate) const TAG_MASK: jlong = 15;
pub(crate) const TENSOR: jlong = 1;
pub(crate) const BATCH: jlong = 2;
pub(crate) const SCHEMA: jlong = 3;
pub(crate) const ARROW_ARRAY: jlong = 4;
pub(crate) const ARROW_SCHEMA: jlong = 5;
pub(crate) const ARROW_DEVICE_ARRAY: jlong = 6;
pub(crate) const STREAM: jlong = 7;
pub(crate) const BATCH_STREAM: jlong = 8;
pub(crate) const BOXED: jlong = 9;
pub(crate) const CUDA_ARRAY: jlong = 10;
pub(crate) const ARROW_STREAM: jlong = 11;
pub(crate) const ARROW_DEVICE_STREAM: jlong = 12;

/// The number that Java holds for a pointer.
pub(crate) fn give<T>(pointer: *mut T) -> jlong {
    pointer.expose_provenance() as jlong
}

/// The pointer of a number that Java holds.
pub(crate) fn take<T>(address: jlong) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// The pointer of an address that Java's caller passed, checked for its alignment; NULL passes.
pub(crate) fn address<T>(address: jlong, what: &str) -> Result<*mut T> {
    let pointer = take::<T>(address);
    if pointer.is_aligned() {
        Ok(pointer)
    } else {
        refuse!(DEVX_INVALID_ARGUMENT, "{what} is {pointer:p}: not aligned to {} bytes", align_of::<T>())
    }
}

macro_rules! borrow {
    ($name:ident: $Core:ty) => {
        /// Borrows what Java holds.
        ///
        /// # Safety
        /// `handle` is 0 or a living handle, which is not given up while the result is used, nor used otherwise while
        /// `produced_on` of the result is called.
        pub(crate) unsafe fn $name<'a>(handle: jlong) -> Result<Borrowed<'a, $Core>> {
            if handle == 0 {
                return refuse!(DEVX_CLOSED, concat!("the ", stringify!($name), " is closed"));
            }
            // SAFETY: the caller's contract.
            Ok(unsafe { <$Core>::borrow_raw(take::<c_void>(handle)) })
        }
    };
}
borrow! { tensor: Tensor }
borrow! { batch: Batch }
borrow! { schema: Schema }
borrow! { batch_stream: BatchStream }
