//! A Julia object that is called by others, and how any thread reaches it.

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
use crate::server::Server;

thread_local!(static IS_JULIA: Cell<bool> = const { Cell::new(false) });

/// Marks the calling thread as a Julia thread: Julia functions may be called on it directly.
pub(crate) fn mark_thread() {
    IS_JULIA.set(true);
}

/// A Julia object that is called by others: the context of its callbacks.
pub(crate) struct Callee {
    pub(crate) token: u64,
    pub(crate) server: Server,
    /// The tag of tokens that stand for requests.
    pub(crate) tag: u64,
    pub(crate) patience: Option<Duration>,
    pub(crate) desk: &'static Desk,
    pub(crate) queue: Arc<ReleaseQueue>,
    pub(crate) owner: Owner,
}

impl Callee {
    /// Turns the callee into the context of callbacks, in room that exists already. [`release`] gives it up.
    pub(crate) fn into_context(self, room: Vacant<Self>) -> *mut c_void {
        Box::into_raw(room.fill(self)).cast()
    }

    /// Calls the object: directly on a Julia thread; on any other thread with a request, whose answer it waits for. Returns the
    /// call with its answer.
    fn ask(&self, call: Call) -> Call {
        let mut call = call.to(self.token);
        if IS_JULIA.get() {
            // SAFETY: this is a Julia thread.
            unsafe { self.server.serve(&mut call) };
            return call;
        }
        let send = |request| self.queue.push(address_token(request, self.tag));
        match self.desk.ask(call, self.patience, send) {
            Ok(answered) => answered,
            Err(refused) => Call { error: refused.to_raw(), ..call },
        }
    }
}

/// Calls the object of a context. On success writes what `answer` takes from the call, otherwise the error.
///
/// # Safety
/// `context` belongs to a [`Callee`] that is not released during the call. `out` and `error` are NULL or can be written.
pub(crate) unsafe fn ask<T>(
    context: *mut c_void,
    call: Call,
    error: *mut DevxError,
    out: *mut T,
    answer: impl FnOnce(&Call) -> T,
) -> Status {
    guard(DEVX_PANIC, || {
        // SAFETY: the caller's contract.
        let callee = unsafe { &*context.cast::<Callee>() };
        let call = callee.ask(call);
        let status = call.error.status;
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

/// Like [`ask`], but for callbacks that only return a status.
///
/// # Safety
/// Same as [`ask`].
pub(crate) unsafe fn tell(context: *mut c_void, call: Call, error: *mut DevxError) -> Status {
    // SAFETY: the caller's contract.
    unsafe { ask(context, call, error, null_mut(), |_| ()) }
}

/// Gives up the context of a callee, and with it its owner.
///
/// # Safety
/// `context` belongs to a [`Callee`] that nobody uses any more.
pub(crate) unsafe extern "C" fn release(context: *mut c_void) {
    // SAFETY: the caller's contract.
    guard((), || drop(unsafe { Box::from_raw(context.cast::<Callee>()) }));
}

/// Makes a token from a tag and an address, which is aligned to eight bytes and below 2^61.
fn address_token(address: *mut c_void, tag: u64) -> u64 {
    (address.expose_provenance() as u64) << 3 | tag
}
