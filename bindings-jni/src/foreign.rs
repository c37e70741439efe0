//! Calls that a newer JVM makes without JNI, through its foreign function interface (`src/main/java22`): of the same
//! symbols, with NULL for environment and class. Only what is declared with [`plain!`](crate::error::plain) can be
//! called so. An error cannot be thrown then: it is kept for the thread, and a flag says that Java has to ask for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use jni::sys::jlong;

use crate::error::{Error, Result, plain};
use crate::handle::give;

/// Not 0 once any such call has failed, on any thread: this is rare, so it stays.
static FAILED: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static KEPT: Cell<Option<Error>> = const { Cell::new(None) };
}

/// Keeps the error until the thread asks for it.
pub(crate) fn keep(error: Error) {
    // A thread of Java's is not about to end within a call.
    let _ = KEPT.try_with(|kept| kept.set(Some(error)));
    FAILED.store(1, Relaxed);
}

/// Forgets an error that the thread has not asked for, as it ran out of stack before that: it is not one of the call that
/// comes to an end now.
#[inline]
pub(crate) fn forget() {
    if FAILED.load(Relaxed) != 0 {
        drop(KEPT.try_with(Cell::take));
    }
}

plain! { foreign_failed() -> jlong }
/// The address of the flag, a long.
fn foreign_failed() -> Result<jlong> {
    Ok(give(FAILED.as_ptr()))
}

plain! { foreign_throw() }
/// Throws what the thread's last such call failed with, if it did.
fn foreign_throw() -> Result<()> {
    KEPT.try_with(Cell::take).ok().flatten().map_or(Ok(()), Err)
}
