//! Calls that a newer JVM makes without JNI, through its foreign function interface (`src/main/java22`): to the same
//! symbols, with NULL for environment and class. Only functions that are declared with [`plain!`](crate::native::plain)
//! can be called in this way. Such a call cannot throw: its error is kept for the thread, and a flag tells Java to ask
//! for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::error::Error;

/// Not 0 once any such call has failed on any thread. It is never reset, because failures are rare.
static FAILED: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static KEPT: Cell<Option<Error>> = const { Cell::new(None) };
}

/// Keeps the error until the thread asks for it.
pub(crate) fn keep(error: Error) {
    // Cannot fail: a Java thread does not end within a call.
    let _ = KEPT.try_with(|kept| kept.set(Some(error)));
    FAILED.store(1, Relaxed);
}

/// Forgets an error that the thread has not asked for because it ran out of stack first: the error does not belong to
/// the call that ends now.
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

/// The error of the thread's last such call, if it failed.
pub(crate) fn take() -> Option<Error> {
    KEPT.try_with(Cell::take).ok().flatten()
}
