//! Sources of batches and wakers written in Julia, as records of the C API.

use core::ffi::c_void;

use devexchange_core::Owner;
use devexchange_core::abi::types::{DevxBatch, DevxBatchSource, DevxError, DevxStatus as Status, DevxWake};
use devexchange_core::memory::{Signal, Vacant};

use crate::call::{Call, NEXT};
use crate::callee;
use crate::guard::guard;

/// Makes a source that gets its batches from Julia through a context.
pub(crate) fn record(context: *mut c_void) -> DevxBatchSource {
    DevxBatchSource { context, next: Some(next), release: Some(callee::release) }
}

/// # Safety
/// Those of `DevxBatchSource.next`; `context` belongs to a source that was not released.
unsafe extern "C" fn next(context: *mut c_void, out: *mut *mut DevxBatch, error: *mut DevxError) -> Status {
    // SAFETY: the caller's contract.
    unsafe { callee::ask(context, Call::of(NEXT), error, out, |answer| answer.batch) }
}

/// Pushes a token for each wake.
pub(crate) struct Waker {
    pub(crate) signal: Signal,
    pub(crate) owner: Owner,
}

impl Waker {
    /// Turns the waker into a record, in room that exists already.
    pub(crate) fn into_record(self, room: Vacant<Self>) -> DevxWake {
        DevxWake { context: Box::into_raw(room.fill(self)).cast(), wake: Some(wake), release: Some(release) }
    }
}

/// # Safety
/// `context` belongs to a waker that was not released.
unsafe extern "C" fn wake(context: *mut c_void) {
    // SAFETY: the caller's contract.
    guard((), || unsafe { &*context.cast::<Waker>() }.signal.push());
}

/// # Safety
/// `context` belongs to a waker that nobody uses any more.
unsafe extern "C" fn release(context: *mut c_void) {
    // SAFETY: the caller's contract.
    guard((), || drop(unsafe { Box::from_raw(context.cast::<Waker>()) }));
}
