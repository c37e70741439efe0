//! How Java gives up what it holds: with a token that says what it is.

use core::ffi::c_void;

use devexchange_core::{Batch, BatchStream, Schema, Tensor, trace};
use jni::sys::jlong;

use crate::error::Result;
use crate::handle::{BATCH, BATCH_STREAM, BOXED, SCHEMA, STREAM, TAG_MASK, TENSOR, take};
use crate::native::plain;
use crate::{boxed, cstruct, stream};

plain! { release(token: jlong) }
/// Gives up a handle.
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
/// Same as `release`, for a handle that nobody closed, which the trace reports.
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
