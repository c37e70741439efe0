//! The producer of an asynchronous stream for a consumer's handler, which is called only within these functions.

use devexchange_core::arrow::asynchronous::AsyncWriter;
use devexchange_core::arrow::metadata;
use devexchange_core::memory::collected;
use devexchange_core::{Batch, DeviceType};
use jni::Env;
use jni::objects::{JClass, JString};
use jni::sys::{jint, jlong};

use crate::boxed::{Held, Room, held};
use crate::error::Result;
use crate::handle::{address, batch, schema, take};
use crate::native::{native, plain};
use crate::queue::bell;

impl Held for AsyncWriter {
    const CLASS: &'static str = "AsyncWriter";
    const NOUN: &'static str = "writer";
}

plain! { async_writer_create(handler: jlong, device_type: jint, block: jlong, token: jlong) -> jlong }
/// Takes a handler from its consumer; if this fails, the handler is untouched. `block` is the address of a metadata
/// block, or 0. The token is queued when the consumer requested or cancelled, and released with the writer. If this
/// fails, Java keeps what the token stands for, and the token may still come.
fn async_writer_create(handler: jlong, device_type: jint, block: jlong, token: jlong) -> Result<jlong> {
    let (room, wake) = (Room::new()?, bell(token)?);
    let handler = address(handler, "handler")?;
    // SAFETY: Java gives 0 or a block.
    let metadata = unsafe { metadata::block(take(block)) }?;
    // SAFETY: Java's caller guarantees a handler that no other producer has.
    let writer = unsafe { AsyncWriter::new(handler, DeviceType(device_type), metadata, Some(wake)) }?;
    Ok(room.hold(writer))
}

plain! { async_writer_start(handle: jlong, schema: jlong) }
/// Tells the consumer the schema.
fn async_writer_start(handle: jlong, schema_handle: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let writer = unsafe { held::<AsyncWriter>(handle) }?;
    // SAFETY: as above.
    Ok(writer.start(&*unsafe { schema(schema_handle) }?)?)
}

plain! { async_writer_demand(handle: jlong) -> jlong }
/// The number of batches that may be sent. If no more can be sent, throws the reason, and the handler is released.
fn async_writer_demand(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let writer = unsafe { held::<AsyncWriter>(handle) }?;
    match writer.try_ready() {
        std::task::Poll::Ready(Err(error)) => Err(error.into()),
        _ => Ok(writer.demand()),
    }
}

plain! { async_writer_is_cancelled(handle: jlong) -> jboolean }
/// Whether the consumer cancelled.
fn async_writer_is_cancelled(handle: jlong) -> Result<bool> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { held::<AsyncWriter>(handle) }?.is_cancelled())
}

plain! { async_writer_send(handle: jlong, batch: jlong, block: jlong) }
/// Gives the consumer a batch, which is shared, with a metadata block or 0.
fn async_writer_send(handle: jlong, batch_handle: jlong, block: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let writer = unsafe { held::<AsyncWriter>(handle) }?;
    // SAFETY: as above.
    let batch = Batch::clone(&*unsafe { batch(batch_handle) }?);
    // SAFETY: Java gives 0 or a block.
    let metadata = unsafe { metadata::block(take(block)) }?;
    // A copy: the consumer may call Java, whose next call on this thread uses the memory of the block.
    let metadata = metadata.map(|block| collected(block.iter().map(|byte| Ok(*byte)))).transpose()?;
    Ok(writer.try_send(batch, metadata.as_deref())?)
}

plain! { async_writer_finish(handle: jlong) }
/// Ends the stream and releases the handler.
fn async_writer_finish(handle: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { held::<AsyncWriter>(handle) }?.finish()?)
}

native! { async_writer_fail(handle: jlong, code: jint, text: JString) }
/// Tells the consumer of an error and releases the handler.
fn async_writer_fail<'l>(env: &mut Env<'l>, _: JClass<'l>, handle: jlong, code: jint, text: JString<'l>) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let writer = unsafe { held::<AsyncWriter>(handle) }?;
    Ok(writer.fail(code, &text.try_to_string(env)?, None)?)
}
