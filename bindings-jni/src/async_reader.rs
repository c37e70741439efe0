//! The consumer of an asynchronous stream. Nothing here waits: Java polls after its token came as an event.

use core::ffi::c_char;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use devexchange_core::arrow::asynchronous::{AsyncReader, MetadataBlock, ReaderOptions};
use jni::sys::{jint, jlong};

use crate::boxed::{Held, held, hold};
use crate::error::Result;
use crate::handle::{give, take};
use crate::native::plain;
use crate::queue::bell;

/// The reader that Java holds.
struct Reader {
    reader: AsyncReader,
    /// The metadata of the last batch: Java reads it before it asks for the next batch.
    metadata: Mutex<Option<MetadataBlock>>,
}

impl Held for Reader {
    const CLASS: &'static str = "AsyncReader";
    const NOUN: &'static str = "reader";
}

impl Reader {
    /// Keeps a block until the next one comes; returns its address.
    fn keep(&self, block: Option<MetadataBlock>) -> jlong {
        let address = address(block.as_ref());
        *self.metadata.lock().unwrap_or_else(PoisonError::into_inner) = block;
        address
    }
}

/// The address of a block, 0 for none.
fn address(block: Option<&MetadataBlock>) -> jlong {
    block.map_or(0, |block| give(block.as_bytes().as_ptr().cast_mut().cast::<c_char>()))
}

/// # Safety
/// `out` is the address of memory for `N` longs.
unsafe fn write<const N: usize>(out: jlong, values: [jlong; N]) {
    // SAFETY: the caller's contract.
    unsafe { take::<[jlong; N]>(out).write_unaligned(values) };
}

plain! { async_reader_create(abi_h_metadata: jboolean, token: jlong) -> jlong }
/// Makes a reader that queues `token` when there is something to poll. The token is released with the reader. If this
/// fails, Java keeps what the token stands for, and the token may still come.
fn async_reader_create(abi_h_metadata: bool, token: jlong) -> Result<jlong> {
    let reader = AsyncReader::new(ReaderOptions { limit: 0, abi_h_metadata }, Some(bell(token)?))?;
    hold(Reader { reader, metadata: Mutex::new(None) })
}

plain! { async_reader_handler(handle: jlong) -> jlong }
/// Returns the handler for a producer, once.
fn async_reader_handler(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    Ok(give(unsafe { held::<Reader>(handle) }?.reader.handler()?))
}

plain! { async_reader_request(handle: jlong, n: jlong) }
/// Asks for more batches.
fn async_reader_request(handle: jlong, n: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { held::<Reader>(handle) }?.reader.request(n)?)
}

plain! { async_reader_cancel(handle: jlong) }
/// Asks the producer to stop.
fn async_reader_cancel(handle: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    unsafe { held::<Reader>(handle) }?.reader.cancel();
    Ok(())
}

plain! { async_reader_schema(handle: jlong, out: jlong) -> jlong }
/// Returns a reference to the schema, or 0 if it has not come. If it has, writes two longs: the device type, and the
/// address of the producer's metadata or 0.
fn async_reader_schema(handle: jlong, out: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let reader = &unsafe { held::<Reader>(handle) }?.reader;
    let Poll::Ready(schema) = reader.try_schema() else { return Ok(0) };
    let schema = schema?;
    let device_type = reader.device_type().map_or(0, |device_type| device_type.0);
    // The reader keeps the block.
    // SAFETY: Java gives the address of room for two longs.
    unsafe { write(out, [device_type.into(), address(reader.metadata().as_ref())]) };
    Ok(give(schema.into_raw()))
}

const PENDING: jint = 0;
const BATCH: jint = 1;
const END: jint = 2;

plain! { async_reader_next(handle: jlong, out: jlong) -> jint }
/// Says what comes next: 0 if nothing has come, 2 for the end, 1 for a batch. For a batch, writes two longs: its
/// handle, and the address of its metadata or 0, valid until the next call.
fn async_reader_next(handle: jlong, out: jlong) -> Result<jint> {
    // SAFETY: Java gives a living handle.
    let reader = unsafe { held::<Reader>(handle) }?;
    let Poll::Ready(next) = reader.reader.try_batch() else { return Ok(PENDING) };
    let Some((batch, block)) = next.transpose()? else { return Ok(END) };
    // SAFETY: Java gives the address of room for two longs.
    unsafe { write(out, [give(batch.into_raw()), reader.keep(block)]) };
    Ok(BATCH)
}

/// No `int`, as every code is.
const NO_ERROR: jlong = jlong::MIN;

plain! { async_reader_error(handle: jlong, out: jlong) }
/// Writes what the producer reported with its error as two longs: the code, or `NO_ERROR` if it reported none, and the address
/// of the metadata or 0.
fn async_reader_error(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let reported = unsafe { held::<Reader>(handle) }?.reader.producer_error();
    let (code, block) = reported.map_or((NO_ERROR, None), |(code, block)| (code.into(), block));
    // The reader keeps the block.
    // SAFETY: Java gives the address of room for two longs.
    unsafe { write(out, [code, address(block.as_ref())]) };
    Ok(())
}
