//! Imports of streams from foreign producers: taken only on success, and asked for one batch at a time.

use core::ffi::{c_char, c_int};
use std::fmt;
use std::mem::zeroed;

use super::export::exported_times;
use super::interface::{Chunk, Interface};
use super::{BatchStream, require_device_type, require_runtime};
use crate::abi::arrow_data::ArrowSchema;
use crate::abi::arrow_device_stream::ArrowDeviceArrayStream;
use crate::abi::arrow_stream::ArrowArrayStream;
use crate::arrow::{Batch, Schema};
use crate::error::{Error, Result, refuse};
use crate::ledger::Kind;
use crate::memory::{Foreign, release};
use crate::text::{Lossy, OfErrno, bytes, without};

/// The most streams of this library that can have been exported and imported one after the other. They call each other
/// on one stack: this many fit on a small one, and are more than anybody uses.
const DEEPEST: usize = 64;

/// The most bytes of a producer's error text that are kept.
const MAX_MESSAGE: usize = 4096;

impl BatchStream {
    /// Takes a stream of host arrays from its producer and asks it for its schema, once.
    ///
    /// On success `*stream` is marked as moved from, and this library calls its release once, when the last clone is
    /// gone. On failure it stays with its owner as before.
    ///
    /// # Errors
    /// `DEVX_NULL_ARGUMENT` (also for a missing callback), `DEVX_RELEASED`; `DEVX_CALLBACK` if `get_schema` failed,
    /// with its code and its text; the errors of [`Schema::import`] for the schema; `DEVX_TOO_DEEP` for a stream that
    /// was exported and imported 64 times already.
    ///
    /// # Safety
    /// `stream` is NULL, or points to a valid `ArrowArrayStream` (released or not) that nobody else uses now. Its
    /// callbacks can be called from any thread, one at a time, and each array from `get_next` fits the schema.
    pub unsafe fn import(stream: *mut ArrowArrayStream) -> Result<Self> {
        // SAFETY: the caller's contract.
        unsafe { import(stream) }
    }

    /// Like [`BatchStream::import`], but for a stream of device arrays.
    ///
    /// # Errors
    /// Same as [`BatchStream::import`]; also `DEVX_DEVICE` for a device type that is unknown or that this library has
    /// no runtime for.
    ///
    /// # Safety
    /// Same as [`BatchStream::import`].
    pub unsafe fn import_device(stream: *mut ArrowDeviceArrayStream) -> Result<Self> {
        // SAFETY: the caller's contract.
        unsafe { import(stream) }
    }
}

/// # Safety
/// Same as [`BatchStream::import`].
unsafe fn import<S: Interface>(stream: *mut S) -> Result<BatchStream> {
    // SAFETY: the caller's contract.
    let Some(given) = (unsafe { stream.as_ref() }) else {
        return refuse!(DEVX_NULL_ARGUMENT, "stream is NULL");
    };
    if given.release().is_none() {
        return refuse!(DEVX_RELEASED, "stream.release is NULL: the stream was released or moved from");
    }
    let get_schema = required(given.get_schema(), "get_schema")?;
    required(given.get_next(), "get_next")?;
    required(given.get_last_error(), "get_last_error")?;
    let device_type = given.device_type();
    // Checked before any callback is called.
    require_runtime(device_type)?;
    // SAFETY: the stream is not released.
    let depth = unsafe { exported_times(given) };
    if depth > DEEPEST {
        return refuse!(DEVX_TOO_DEEP, "stream was exported and imported {DEEPEST} times: that is the most");
    }
    let mut described = ArrowSchema::RELEASED;
    // SAFETY: the stream is not released, and there is room for a schema.
    let code = unsafe { get_schema(stream, &mut described) };
    if code != 0 {
        // SAFETY: the last call on the stream failed.
        return Err(unsafe { failed(stream, "get_schema", code) });
    }
    // SAFETY: the schema that the producer returned is valid, and ours.
    let schema = unsafe { Schema::import(&mut described) }.map_err(|error| {
        // SAFETY: it was not taken, so it is still the one that the producer returned.
        unsafe { release(&mut described) };
        error.within("get_schema: ")
    })?;
    BatchStream::above(depth, &schema, device_type, || {
        // SAFETY: the caller gives the stream to us now that nothing can fail any more.
        let foreign = unsafe { Foreign::take(stream, Kind::StreamImport) };
        let schema = schema.clone();
        // SAFETY: the struct stays in place in the box of this closure, and the stream makes one call of it at a time.
        move || unsafe { next(&foreign, &schema) }
    })
}

/// # Safety
/// Nobody else uses the stream now.
unsafe fn next<S: Interface>(foreign: &Foreign<S>, schema: &Schema) -> Result<Option<Batch>> {
    let stream = foreign.as_ptr().cast_mut();
    // SAFETY: the stream was moved to us and is valid.
    let given = unsafe { &*stream };
    let (get_next, device_type) = (required(given.get_next(), "get_next")?, given.device_type());
    if given.release().is_none() {
        return refuse!(DEVX_RELEASED, "stream.release is NULL: the stream was released by somebody else");
    }
    // SAFETY: an all-zero chunk is a released one.
    let mut chunk = unsafe { zeroed::<S::Chunk>() };
    // SAFETY: the stream is not released, and there is room for an array.
    let code = unsafe { get_next(stream, &mut chunk) };
    if code != 0 {
        // SAFETY: the last call on the stream failed.
        return Err(unsafe { failed(stream, "get_next", code) });
    }
    if chunk.array().release.is_none() {
        return Ok(None);
    }
    let batch = require_device_type(chunk.device_type(), device_type).and_then(|()| {
        // SAFETY: the array that the producer returned is valid, and ours.
        unsafe { chunk.import(schema) }
    });
    batch.map(Some).map_err(|error| {
        // SAFETY: it was not taken, so it is still the one that the producer returned.
        unsafe { release(chunk.array()) };
        error.within("get_next: ")
    })
}

fn required<T>(callback: Option<T>, name: &str) -> Result<T> {
    match callback {
        Some(callback) => Ok(callback),
        None => refuse!(DEVX_NULL_ARGUMENT, "stream.{name} is NULL"),
    }
}

/// The error of a callback that returned `code`.
///
/// # Safety
/// `stream` is valid, and the last call on it failed.
unsafe fn failed<S: Interface>(stream: *mut S, callback: &str, code: c_int) -> Error {
    // SAFETY: the caller's contract.
    let get_last_error = unsafe { &*stream }.get_last_error();
    let text = get_last_error.map_or(std::ptr::null(), |get_last_error| {
        // SAFETY: the last call failed, so the callback may be called.
        unsafe { get_last_error(stream) }
    });
    // SAFETY: no other callback has been called since.
    let text = unsafe { said(text) };
    let failed = fmt::from_fn(|f| write!(f, "{callback} failed: {}: ", OfErrno(code)));
    // A producer that pulls from another one, as this library can, may repeat that producer's text, which begins with
    // the same words.
    let text = Lossy(without(text.0, format_args!("{failed}")).unwrap_or(text.0));
    Error::callback(code, format_args!("{failed}{text}"))
}

/// A producer's text, cut if it is long.
///
/// # Safety
/// `text` is NULL or NUL-terminated, and outlives the result.
unsafe fn said<'a>(text: *const c_char) -> Lossy<'a> {
    if text.is_null() {
        return Lossy(b"the producer says no more");
    }
    // SAFETY: the caller's contract.
    Lossy(unsafe { bytes(text, MAX_MESSAGE) })
}
