//! A Julia object that others ask, and how it is reached from any thread.

use core::ffi::c_void;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use devexchange_core::Owner;
use devexchange_core::abi::types::{DEVX_OK, DEVX_PANIC, DevxError, DevxStatus as Status};
use devexchange_core::memory::{ReleaseQueue, Vacant};

use crate::call::Call;
use crate::guard::guard;
use crate::request::Desk;

thread_local!(static IS_JULIA: Cell<bool> = const { Cell::new(false) });

/// Says that the calling thread is one of Julia's: functions of Julia's may be called on it directly.
pub(crate) fn mark_thread() {
    IS_JULIA.set(true);
}

/// A Julia function that answers a question to the object with this token.
pub(crate) type Serve = unsafe extern "C" fn(u64, *mut Call) -> Status;

/// A Julia object that others ask: the context of its callbacks.
pub(crate) struct Callee {
    pub(crate) token: u64,
    pub(crate) serve: Serve,
    /// The tag of the tokens that stand for requests.
    pub(crate) tag: u64,
    pub(crate) patience: Option<Duration>,
    pub(crate) desk: &'static Desk,
    pub(crate) queue: Arc<ReleaseQueue>,
    pub(crate) owner: Owner,
}

impl Callee {
    /// The context for callbacks, for which there is room already, given up by [`release`].
    pub(crate) fn into_context(self, room: Vacant<Self>) -> *mut c_void {
        Box::into_raw(room.fill(self)).cast()
    }

    /// Asks: on a thread of Julia's by a call, on any other one by a request, for whose answer it waits.
    fn ask(&self, call: &mut Call) -> Status {
        if IS_JULIA.get() {
            // SAFETY: this is a thread of Julia's.
            return unsafe { (self.serve)(self.token, call) };
        }
        let send = |request| self.queue.push(address_token(request, self.tag));
        match self.desk.ask(self.token, *call, self.patience, send) {
            Ok((status, answered)) => {
                *call = answered;
                status
            }
            Err(refused) => {
                call.error = refused.to_raw();
                refused.status()
            }
        }
    }
}

/// Asks the object behind a context. Writes what `answer` finds in the call if it was answered, and otherwise why not.
///
/// # Safety
/// `context` is that of a [`Callee`] which is not released during the call. `out` and `error` are NULL or can be written.
pub(crate) unsafe fn ask<T>(
    context: *mut c_void,
    mut call: Call,
    error: *mut DevxError,
    out: *mut T,
    answer: impl FnOnce(&Call) -> T,
) -> Status {
    guard(DEVX_PANIC, || {
        // SAFETY: the caller's contract.
        let callee = unsafe { &*context.cast::<Callee>() };
        let status = callee.ask(&mut call);
        if status != DEVX_OK {
            // SAFETY: NULL, or writable by the caller's contract.
            if let Some(error) = unsafe { error.as_mut() } {
                *error = call.error;
            }
        } else if !out.is_null() {
            // SAFETY: not NULL, and writable by the caller's contract.
            unsafe { out.write(answer(&call)) };
        }
        status
    })
}

/// As [`ask`], for callbacks that only say whether they could.
///
/// # Safety
/// As [`ask`].
pub(crate) unsafe fn tell(context: *mut c_void, call: Call, error: *mut DevxError) -> Status {
    // SAFETY: the caller's contract.
    unsafe { ask(context, call, error, null_mut(), |_| ()) }
}

/// Gives up the context of a callee, and with it its owner.
///
/// # Safety
/// `context` is that of a [`Callee`], which nobody uses any more.
pub(crate) unsafe extern "C" fn release(context: *mut c_void) {
    // SAFETY: the caller's contract.
    guard((), || drop(unsafe { Box::from_raw(context.cast::<Callee>()) }));
}

/// The token that stands for an address, which is aligned to eight bytes and lies below 2^61, with a tag.
fn address_token(address: *mut c_void, tag: u64) -> u64 {
    (address.expose_provenance() as u64) << 3 | tag
}
