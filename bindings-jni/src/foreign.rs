//! Calls that a newer JVM makes without JNI, through its foreign function interface (`src/main/java22`): of the same
//! symbols, with NULL for environment and class. Only what is declared with [`plain!`](crate::native::plain) can be
//! called so. An error cannot be thrown then: it is kept for the thread, and a flag says that Java has to ask for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::error::Error;

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

/// The address of the flag.
pub(crate) fn failed() -> *mut i64 {
    FAILED.as_ptr()
}

/// What the thread's last such call failed with, if it did.
pub(crate) fn take() -> Option<Error> {
    KEPT.try_with(Cell::take).ok().flatten()
}
