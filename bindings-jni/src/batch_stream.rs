//! Imports and exports of streams of batches as Arrow, and streams of batches that Java gives.
//!
//! A thread that pulls from a Java source does not enter the JVM: it queues the source's token and waits until a Java
//! thread answers.

use devexchange_core::abi::types::DEVX_CALLBACK;
use devexchange_core::{Batch, BatchStream, DeviceType, Error, Owner, Result as CoreResult};
use jni::Env;
use jni::objects::{JClass, JString};
use jni::sys::{jint, jlong};

use crate::answers::{Answers, thrown};
use crate::error::Result;
use crate::handle::{address, batch_stream, give, schema, take};
use crate::native::{native, plain};
use crate::queue::{ask, cancel, try_owner};

/// The next batch of a source, or `None` at its end.
type Answer = CoreResult<Option<Batch>>;

/// The threads that wait for a batch, by the token of the source: one for each source, because a stream takes one call
/// at a time.
static ANSWERS: Answers<Answer> = Answers::new();

/// Ends every wait for a source, present and future.
pub(crate) fn close() {
    ANSWERS.close();
}

/// A source that is written in Java.
struct Source {
    token: jlong,
    _owner: Option<Owner>,
}

impl Source {
    fn next(&self) -> Answer {
        let answer = ANSWERS.wait(self.token, || ask(self.token));
        answer.unwrap_or_else(|| Err(Error::new(DEVX_CALLBACK, "the JVM that gives the batches is exiting")))
    }
}

plain! { source_answer(token: jlong, batch: jlong) }
/// Gives a source's next batch, whose reference is taken; 0 is the end.
fn source_answer(token: jlong, batch: jlong) -> Result<()> {
    // SAFETY: Java gives up a reference that it has for this, or none.
    let next = (batch != 0).then(|| unsafe { Batch::from_raw(take(batch)) });
    ANSWERS.give(token, Ok(next));
    Ok(())
}

native! { source_fail(token: jlong, status: jint, driver_code: jint, text: JString) }
/// Gives the error of a source.
fn source_fail<'l>(
    env: &mut Env<'l>,
    _: JClass<'l>,
    token: jlong,
    status: jint,
    driver_code: jint,
    text: JString<'l>,
) -> Result<()> {
    ANSWERS.give(token, Err(thrown(env, status, driver_code, &text)));
    Ok(())
}

plain! { batch_stream_create(schema: jlong, device_type: jint, token: jlong) -> jlong }
/// Makes a stream of the batches of a Java source. If this fails, the token is not released.
fn batch_stream_create(handle: jlong, device_type: jint, token: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let schema = unsafe { schema(handle) }?;
    let mut kept = Some(try_owner(token)?);
    let stream = BatchStream::with(&schema, DeviceType(device_type), || {
        let source = Source { token, _owner: kept.take() };
        move || source.next()
    });
    kept.into_iter().for_each(cancel);
    Ok(give(stream?.into_raw()))
}

plain! { batch_stream_import(source: jlong, device: jboolean) -> jlong }
/// Takes a stream from its producer; if this fails, the struct is untouched.
fn batch_stream_import(source: jlong, device: bool) -> Result<jlong> {
    let stream = if device {
        // SAFETY: Java's caller guarantees a stream that it owns.
        unsafe { BatchStream::import_device(address(source, "stream")?) }?
    } else {
        // SAFETY: as above.
        unsafe { BatchStream::import(address(source, "stream")?) }?
    };
    Ok(give(stream.into_raw()))
}

plain! { batch_stream_schema(handle: jlong) -> jlong }
/// Returns a reference to the schema of the batches.
fn batch_stream_schema(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let stream = unsafe { batch_stream(handle) }?;
    Ok(give(stream.schema().clone().into_raw()))
}

plain! { batch_stream_device_type(handle: jlong) -> jint }
/// The type of the devices that the batches are on.
fn batch_stream_device_type(handle: jlong) -> Result<jint> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { batch_stream(handle) }?.device_type().0)
}

plain! { batch_stream_next(handle: jlong) -> jlong }
/// Returns the next batch, or 0 at the end.
fn batch_stream_next(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let next = unsafe { batch_stream(handle) }?.next()?;
    Ok(next.map_or(0, |batch| give(batch.into_raw())))
}

plain! { batch_stream_export(handle: jlong, out: jlong, device: jboolean) }
/// Hands the stream to a consumer and keeps a reference. The consumer releases `out`.
fn batch_stream_export(handle: jlong, out: jlong, device: bool) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let stream = BatchStream::clone(&*unsafe { batch_stream(handle) }?);
    if device {
        // SAFETY: Java's caller guarantees memory for the struct.
        unsafe { stream.export_device(address(out, "out")?) }?;
    } else {
        // SAFETY: as above.
        unsafe { stream.export(address(out, "out")?) }?;
    }
    Ok(())
}
