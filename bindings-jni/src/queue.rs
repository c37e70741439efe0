//! Releases on their way to Java: whoever releases memory of Java's queues a token, on any thread, without calling the
//! JVM; the thread "devexchange-releases" of Java's waits in here and takes the tokens out.

use std::sync::atomic::{Ordering::SeqCst, fence};
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread::{self, Thread};

use devexchange_core::error::Refused;
use devexchange_core::memory::ReleaseQueue;
use devexchange_core::{Error, Owner};
use jni::objects::JClass;
use jni::sys::{jint, jlong};
use jni::{Env, EnvUnowned};

use crate::error::{Result, native};
use crate::handle::take;

static QUEUE: LazyLock<Arc<ReleaseQueue>> = LazyLock::new(|| ReleaseQueue::new(wake));

/// The thread that takes the tokens out, once it is there.
static TAKER: OnceLock<Thread> = OnceLock::new();

/// Called after each push, on the thread that pushed.
fn wake() {
    // Pairs with the fence in `queue_wait`: either the taker is seen here, or what was pushed is seen there.
    fence(SeqCst);
    if let Some(taker) = TAKER.get() {
        taker.unpark();
    }
}

/// An owner whose release sends `token` to Java; for 0 there is nothing to send.
pub(crate) fn owner(token: jlong) -> Owner {
    if token == 0 {
        return Owner::none();
    }
    // SAFETY: an owner of the queue may be released once, by any thread, at any time.
    unsafe { Owner::from_raw(QUEUE.register(token.cast_unsigned())) }
}

/// What a call came to that was given an owner of ours. If it was refused, Java keeps what the token stands for.
pub(crate) fn keep<T>(made: std::result::Result<T, Refused<Owner>>) -> std::result::Result<T, Error> {
    made.map_err(|refused| {
        let owner = refused.returned.into_raw();
        if owner.release.is_some() {
            // SAFETY: made by `owner`, and handed back by the call: its release is not called.
            unsafe { ReleaseQueue::cancel(owner.context) }
        }
        refused.error
    })
}

native! { queue_push(token: jlong) }
/// Queues a token of Java's own: what a Cleaner does, which must not release by itself.
fn queue_push<'l>(_: &mut Env<'l>, _: JClass<'l>, token: jlong) -> Result<()> {
    QUEUE.push(token.cast_unsigned());
    Ok(())
}

// Raw: the thread stays in here for as long as nothing is released, and nothing in here can fail.
const _: jni::NativeMethod = jni::native_method! {
    java_type = "dev.devexchange.Native",
    static raw extern fn queue_wait(tokens: jlong, capacity: jint) -> jint
};
/// Waits until something is released and writes up to `capacity` tokens, oldest first, to the address `tokens`;
/// returns how many. For one thread, always the same.
fn queue_wait<'l>(_: EnvUnowned<'l>, _: JClass<'l>, tokens: jlong, capacity: jint) -> jint {
    TAKER.get_or_init(thread::current);
    fence(SeqCst);
    let capacity = usize::try_from(capacity).unwrap_or(0);
    // SAFETY: Java gives the address of so many longs, which nobody else uses during the call.
    let tokens = unsafe { std::slice::from_raw_parts_mut(take::<u64>(tokens), capacity) };
    loop {
        let taken = QUEUE.drain(tokens);
        if taken > 0 {
            return taken as jint;
        }
        thread::park();
    }
}
