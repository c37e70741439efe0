//! The two queues of tokens for Java. A thread that releases Java-owned memory, or needs something from Java, queues a
//! token without calling the JVM. Java has a thread for each queue, which waits in here and takes the tokens out, so
//! that a slow release does not delay an event.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use devexchange_core::arrow::asynchronous::Wake;
use devexchange_core::error::Refused;
use devexchange_core::memory::ReleaseQueue;
use devexchange_core::{Error, Owner};
use jni::EnvUnowned;
use jni::objects::JClass;
use jni::sys::{jint, jlong};

use crate::error::Result;
use crate::handle::take;
use crate::linger::Taker;
use crate::native::plain;

/// How long the thread for releases looks after the last one before it has to be woken. To wake a thread costs more than
/// all else that a release does, and the next release is often not far.
const LINGER: Duration = Duration::from_micros(50);

struct Line {
    queue: LazyLock<Arc<ReleaseQueue>>,
    /// The thread that takes the tokens out, once it has come.
    thread: OnceLock<Thread>,
    taker: Taker,
    /// How long it stays if nothing is left.
    linger: Option<Duration>,
}

static RELEASES: Line = Line::new(|| ReleaseQueue::new(|| RELEASES.wake()), Some(LINGER));
/// Somebody waits for what Java does about an event.
static EVENTS: Line = Line::new(|| ReleaseQueue::new(|| EVENTS.wake()), None);

impl Line {
    const fn new(queue: fn() -> Arc<ReleaseQueue>, linger: Option<Duration>) -> Self {
        let taker = Taker { lingers: AtomicBool::new(false) };
        Self { queue: LazyLock::new(queue), thread: OnceLock::new(), taker, linger }
    }

    /// Called after each push, on the thread that pushed.
    fn wake(&self) {
        if self.taker.has_to_be_woken() {
            self.rouse();
        }
    }

    /// Wakes the taker, even if it would look by itself.
    fn rouse(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Waits for tokens; returns how many there are. Must always be called on the same thread.
    fn wait(&self, tokens: &mut [u64]) -> usize {
        self.thread.get_or_init(thread::current);
        let park = |time: Option<Duration>| time.map_or_else(thread::park, thread::park_timeout);
        self.taker.wait(self.linger, || self.queue.drain(tokens), park)
    }
}

/// An owner whose release sends `token` to Java; for 0 there is nothing to send.
pub(crate) fn owner(token: jlong) -> Owner {
    if token == 0 {
        return Owner::none();
    }
    // SAFETY: an owner of the queue may be released once, by any thread, at any time.
    unsafe { Owner::from_raw(RELEASES.queue.register(token.cast_unsigned())) }
}

/// Same as [`owner`], but fails without memory for it; then Java keeps what the token stands for.
pub(crate) fn try_owner(token: jlong) -> std::result::Result<Owner, Error> {
    if token == 0 {
        return Ok(Owner::none());
    }
    let owner = RELEASES.queue.try_register(token.cast_unsigned())?;
    // SAFETY: as above.
    Ok(unsafe { Owner::from_raw(owner) })
}

/// The result of a call that was given one of these owners. If the call was refused, Java keeps what the token stands
/// for.
pub(crate) fn keep<T>(made: std::result::Result<T, Refused<Owner>>) -> std::result::Result<T, Error> {
    made.map_err(|refused| {
        cancel(refused.returned);
        refused.error
    })
}

/// Takes back an owner that nobody took over: Java keeps what the token stands for.
pub(crate) fn cancel(owner: Owner) {
    let owner = owner.into_raw();
    if owner.release.is_some() {
        // SAFETY: made by `owner`, and its release is not called.
        unsafe { ReleaseQueue::cancel(owner.context) }
    }
}

/// Makes Java run what it registered under `token`, soon, on one of its own threads.
pub(crate) fn ask(token: jlong) {
    EVENTS.queue.push(token.cast_unsigned());
}

/// Makes a wake callback that queues `token`, once for all wakes before Java takes it out. When the callback is given
/// up, `token` is released, too. If this fails for lack of memory, Java keeps what the token stands for, and the token
/// may still come.
pub(crate) fn bell(token: jlong) -> std::result::Result<Wake, Error> {
    let (signal, owner) = (EVENTS.queue.signal(token.cast_unsigned())?, try_owner(token)?);
    Wake::new(move || {
        let _released_with_it = &owner;
        signal.push();
    })
}

plain! { queue_push(token: jlong) }
/// Queues a token of Java's own, for a Java cleaner, which must not release by itself, or for somebody who waits for it.
fn queue_push(token: jlong) -> Result<()> {
    RELEASES.queue.push(token.cast_unsigned());
    RELEASES.rouse();
    Ok(())
}

// Raw, because the thread stays in here as long as nothing is released, and nothing in here can fail.
const _: jni::NativeMethod = jni::native_method! {
    java_type = "dev.devexchange.Native",
    static raw extern fn queue_wait(events: jboolean, tokens: jlong, capacity: jint) -> jint
};
/// Waits for releases, or for events, and writes up to `capacity` tokens, oldest first, to the address `tokens`;
/// returns how many. For each of the two, must always be called on the same thread.
fn queue_wait<'l>(_: EnvUnowned<'l>, _: JClass<'l>, events: bool, tokens: jlong, capacity: jint) -> jint {
    let capacity = usize::try_from(capacity).unwrap_or(0);
    // SAFETY: Java gives the address of `capacity` longs, which nobody else uses during the call.
    let tokens = unsafe { std::slice::from_raw_parts_mut(take::<u64>(tokens), capacity) };
    let line = if events { &EVENTS } else { &RELEASES };
    line.wait(tokens) as jint
}
