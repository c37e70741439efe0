//! When the data of tensors and batches may be touched, and who still uses it.

use jni::Env;
use jni::objects::JClass;
use jni::sys::jlong;

use crate::error::Result;
use crate::handle::{batch, tensor};
use crate::native::native;
use crate::stream::stream;

/// The calls are the same for a tensor and a batch.
macro_rules! ordered {
    ($what:ident: $produced_on:ident, $wait_on:ident, $used_on:ident) => {
        native! { $produced_on(handle: jlong, stream: jlong) }
        /// Notes that the data is ready when the work already queued on the stream is done. Java ensures that no other
        /// call uses the handle meanwhile.
        fn $produced_on<'l>(_: &mut Env<'l>, _: JClass<'l>, handle: jlong, queue: jlong) -> Result<()> {
            // SAFETY: Java gives a living handle that no other call uses, and no borrow from it outlives its call.
            let mut thing = unsafe { $what(handle) }?;
            // SAFETY: as above.
            let stream = unsafe { stream(queue, |number| thing.stream(number)) }?;
            // SAFETY: the caller guarantees that.
            Ok(unsafe { thing.produced_on(stream) }?)
        }

        native! { $wait_on(handle: jlong, stream: jlong) }
        /// Makes the stream wait until the data may be touched.
        fn $wait_on<'l>(_: &mut Env<'l>, _: JClass<'l>, handle: jlong, queue: jlong) -> Result<()> {
            // SAFETY: Java gives a living handle.
            let thing = unsafe { $what(handle) }?;
            // SAFETY: as above.
            let stream = unsafe { stream(queue, |number| thing.stream(number)) }?;
            Ok(thing.wait(stream)?)
        }

        native! { $used_on(handle: jlong, stream: jlong) }
        /// Notes that work already queued on the stream uses the data.
        fn $used_on<'l>(_: &mut Env<'l>, _: JClass<'l>, handle: jlong, queue: jlong) -> Result<()> {
            // SAFETY: Java gives a living handle.
            let thing = unsafe { $what(handle) }?;
            // SAFETY: as above.
            let stream = unsafe { stream(queue, |number| thing.stream(number)) }?;
            Ok(thing.used_on(stream)?)
        }
    };
}
ordered! { tensor: tensor_produced_on, tensor_wait_on, tensor_used_on }
ordered! { batch: batch_produced_on, batch_wait_on, batch_used_on }
