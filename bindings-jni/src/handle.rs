//! Handles: addresses of counted references as Java holds them, and how they are given up.
//!
//! What is given up is a *token*: the address with the kind in its low bits, which the alignment of everything that is
//! handed out leaves free. `Handle.Kind` in Java has the same numbers.

use core::ffi::c_void;

use devexchange_core::{Batch, BatchStream, Borrowed, Schema, Tensor, trace};
use jni::sys::jlong;

use crate::error::{Result, refuse};
use crate::native::plain;
use crate::{boxed, cstruct, stream};

/// Bits of a token that say what it is; 0 is a `Runnable`, which only Java knows.
pub(crate) const TAG_MASK: jlong = 15;
const TENSOR: jlong = 1;
const BATCH: jlong = 2;
const SCHEMA: jlong = 3;
pub(crate) const ARROW_ARRAY: jlong = 4;
pub(crate) const ARROW_SCHEMA: jlong = 5;
pub(crate) const ARROW_DEVICE_ARRAY: jlong = 6;
const STREAM: jlong = 7;
const BATCH_STREAM: jlong = 8;
const BOXED: jlong = 9;
pub(crate) const CUDA_ARRAY: jlong = 10;
pub(crate) const ARROW_STREAM: jlong = 11;
pub(crate) const ARROW_DEVICE_STREAM: jlong = 12;

/// A pointer as Java holds it.
pub(crate) fn give<T>(pointer: *mut T) -> jlong {
    pointer.expose_provenance() as jlong
}

/// A pointer that Java holds.
pub(crate) fn take<T>(address: jlong) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// A pointer that somebody gave to Java, as far as it can be checked; NULL passes.
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
        /// What Java holds.
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

plain! { release(token: jlong) }
/// Gives a handle up.
fn release(token: jlong) -> Result<()> {
    let kind = token & TAG_MASK;
    let raw = take::<c_void>(token - kind);
    // Java gives a handle up once, with the kind that it was made with, when no call uses it.
    match kind {
        // SAFETY: the address of a tensor, given up once.
        TENSOR => drop(unsafe { Tensor::from_raw(raw) }),
        // SAFETY: the address of a batch, given up once.
        BATCH => drop(unsafe { Batch::from_raw(raw) }),
        // SAFETY: the address of a schema, given up once.
        SCHEMA => drop(unsafe { Schema::from_raw(raw) }),
        // SAFETY: the address of a stream of batches, given up once.
        BATCH_STREAM => drop(unsafe { BatchStream::from_raw(raw) }),
        // SAFETY: the address of a box, given up once.
        BOXED => unsafe { boxed::give_up(raw) },
        // SAFETY: the address of a stream, given up once.
        STREAM => return unsafe { stream::close(raw) },
        // SAFETY: the address of a struct of this kind, given up once.
        _ => return unsafe { cstruct::free(kind, raw) },
    }
    Ok(())
}

plain! { give_up(token: jlong) }
/// As `release`, for a handle that nobody closed: says so in the trace.
fn give_up(token: jlong) -> Result<()> {
    let kind = token & TAG_MASK;
    let raw = take::<c_void>(token - kind);
    if kind == STREAM {
        // SAFETY: the address of a stream, given up once.
        unsafe { stream::forget(raw) };
        return Ok(());
    }
    let what = match kind {
        TENSOR => "Tensor",
        BATCH => "Batch",
        SCHEMA => "Schema",
        BATCH_STREAM => "BatchStream",
        // SAFETY: the address of a box.
        BOXED => unsafe { boxed::class(raw) },
        _ => "CStruct",
    };
    let article = if what.starts_with(['A', 'I']) { "an" } else { "a" };
    trace::say(format_args!("{article} {what} was not closed; the garbage collector found it, and it is released now"));
    release(token)
}
