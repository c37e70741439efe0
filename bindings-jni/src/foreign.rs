//! Calls that a newer JVM makes without JNI, through its foreign function interface (`src/main/java22`): to the same
//! symbols, with NULL for environment and class. Only functions that are declared with [`plain!`](crate::native::plain)
//! can be called in this way. Such a call cannot throw: its error is kept for the thread, and a number tells Java to ask
//! for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::error::Error;

/// The number of threads that keep an error: as long as it is 0, no thread has to ask. Each thread counts its own error, so
/// it need not see in time what other threads count.
static FAILED: AtomicI64 = AtomicI64::new(0);

/// Counts in [`FAILED`], also if the thread ends without having asked.
struct Counted;

impl Counted {
    fn new() -> Self {
        FAILED.fetch_add(1, Relaxed);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        FAILED.fetch_sub(1, Relaxed);
    }
}

thread_local! {
    static KEPT: Cell<Option<(Error, Counted)>> = const { Cell::new(None) };
}

/// Keeps the error until the thread asks for it.
pub(crate) fn keep(error: Error) {
    // Cannot fail: a Java thread does not end within a call.
    let _ = KEPT.try_with(|kept| kept.set(Some((error, Counted::new()))));
}

/// Forgets an error that the thread has not asked for because it ran out of stack first: the error does not belong to
/// the call that ends now.
#[inline]
pub(crate) fn forget() {
    if FAILED.load(Relaxed) != 0 {
        drop(KEPT.try_with(Cell::take));
    }
}

/// The address of the number.
pub(crate) fn failed() -> *mut i64 {
    FAILED.as_ptr()
}

/// The error of the thread's last such call, if it failed.
pub(crate) fn take() -> Option<Error> {
    KEPT.try_with(Cell::take).ok().flatten().map(|(error, _)| error)
}
