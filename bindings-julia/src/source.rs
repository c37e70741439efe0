//! Sources of batches and wakers that are Julia's, as records of the C API.

use core::ffi::c_void;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use devexchange_core::abi::types::{
    DEVX_ERROR_MESSAGE_BYTES, DEVX_OK, DEVX_PANIC, DevxBatch, DevxBatchSource, DevxError, DevxStatus as Status,
    DevxWake,
};
use devexchange_core::error::Error;
use devexchange_core::memory::ReleaseQueue;
use devexchange_core::{Owner, text};

use crate::request::Desk;
use crate::{address_token, guard};

thread_local!(static IS_JULIA: Cell<bool> = const { Cell::new(false) });

/// Says that the calling thread is one of Julia's: functions of Julia's may be called on it directly.
pub(crate) fn mark_thread() {
    IS_JULIA.set(true);
}

/// A Julia function that gives the next batch of the source with this token, as `DevxBatchSource.next` does.
pub(crate) type Serve = unsafe extern "C" fn(u64, *mut *mut DevxBatch, *mut DevxError) -> Status;

/// What a Julia source is to the C API.
pub(crate) struct Source {
    pub(crate) token: u64,
    pub(crate) serve: Serve,
    /// The tag of the tokens that stand for requests.
    pub(crate) tag: u64,
    pub(crate) patience: Option<Duration>,
    pub(crate) desk: &'static Desk,
    pub(crate) queue: Arc<ReleaseQueue>,
    pub(crate) owner: Owner,
}

impl Source {
    pub(crate) fn into_record(self) -> DevxBatchSource {
        DevxBatchSource {
            context: Box::into_raw(Box::new(self)).cast(),
            next: Some(next),
            release: Some(drop_box::<Self>),
        }
    }

    /// # Safety
    /// `out` and `error` can be written, as `DevxBatchSource.next` says.
    unsafe fn next(&self, out: *mut *mut DevxBatch, error: *mut DevxError) -> Status {
        if IS_JULIA.get() {
            // SAFETY: this is a thread of Julia's, and the outputs are as the caller says.
            return unsafe { (self.serve)(self.token, out, error) };
        }
        let send = |request| self.queue.push(address_token(request, self.tag));
        let (status, said) = match self.desk.ask(self.token, self.patience, send) {
            Ok(answer) => {
                // SAFETY: the caller's contract.
                unsafe { out.write(answer.batch) };
                (answer.status, answer.error)
            }
            Err(refused) => (refused.status(), record(&refused)),
        };
        // SAFETY: the caller's contract.
        unsafe { error.write(said) };
        status
    }
}

/// # Safety
/// As `DevxBatchSource.next`; `context` is that of a source that was not released.
unsafe extern "C" fn next(context: *mut c_void, out: *mut *mut DevxBatch, error: *mut DevxError) -> Status {
    guard(DEVX_PANIC, || {
        // SAFETY: the caller's contract: the source is not released during the call.
        let source = unsafe { &*context.cast::<Source>() };
        // SAFETY: the caller's contract.
        unsafe { source.next(out, error) }
    })
}

fn record(error: &Error) -> DevxError {
    let mut message = [0; DEVX_ERROR_MESSAGE_BYTES];
    text::fill(error.message(), &mut message);
    DevxError { status: error.status(), driver_code: error.driver_code(), message }
}

/// An answer's error record if there is none.
pub(crate) const NO_ERROR: DevxError =
    DevxError { status: DEVX_OK, driver_code: 0, message: [0; DEVX_ERROR_MESSAGE_BYTES] };

/// Pushes its token whenever somebody is to be woken.
pub(crate) struct Waker {
    pub(crate) token: u64,
    pub(crate) queue: Arc<ReleaseQueue>,
    pub(crate) owner: Owner,
}

impl Waker {
    pub(crate) fn into_record(self) -> DevxWake {
        DevxWake { context: Box::into_raw(Box::new(self)).cast(), wake: Some(wake), release: Some(drop_box::<Self>) }
    }
}

/// # Safety
/// `context` is that of a waker that was not released.
unsafe extern "C" fn wake(context: *mut c_void) {
    guard((), || {
        // SAFETY: the caller's contract.
        let waker = unsafe { &*context.cast::<Waker>() };
        waker.queue.push(waker.token);
    });
}

/// # Safety
/// `context` is the address of a box of this type, which nobody uses any more.
unsafe extern "C" fn drop_box<T>(context: *mut c_void) {
    // SAFETY: the caller's contract.
    guard((), || drop(unsafe { Box::from_raw(context.cast::<T>()) }));
}
