//! The native half of `DevExchange.jl`: a queue that carries releases from any thread to a Julia task.
//!
//! No Julia code may run on a thread that Julia has not started, and a finalizer must neither block nor switch tasks.
//! So both only push a number here, which takes no lock, and wake Julia's event loop (`uv_async_send`); a task of
//! `DevExchange.jl` drains the numbers and does the rest.
//!
//! The functions are private to `DevExchange.jl` of the same version. They may be called from any thread, at any time,
//! during shutdown too; no panic leaves them.

mod gate;

use core::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use devexchange_core::abi::types::{
    DEVX_CLOSED, DEVX_NULL_ARGUMENT, DEVX_OK, DEVX_PANIC, DevxOwner, DevxStatus as Status,
};
use devexchange_core::memory::ReleaseQueue;

use gate::{Gate, Wake};

static GATE: Gate = Gate::new();
static QUEUE: OnceLock<Arc<ReleaseQueue>> = OnceLock::new();

/// Starts the queue, or, if it runs already, makes it wake somebody else: when this returns, the handle of the call
/// before is not touched any more.
///
/// `DEVX_NULL_ARGUMENT` if `wake` or `handle` is NULL.
///
/// # Safety
/// `wake(handle)` may be called from any thread until [`devx_julia_silence`] or the next call of this has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_queue_start(wake: Option<Wake>, handle: *mut c_void) -> Status {
    guard(DEVX_PANIC, || {
        let Some(wake) = wake.filter(|_| !handle.is_null()) else { return DEVX_NULL_ARGUMENT };
        // SAFETY: the caller's contract.
        unsafe { GATE.open(wake, handle) };
        QUEUE.get_or_init(|| ReleaseQueue::new(|| GATE.pass()));
        // What was pushed while nobody could be woken.
        GATE.pass();
        DEVX_OK
    })
}

/// Writes an owner whose release pushes `token`, from whatever thread it is called on. If nobody takes it over, its
/// context goes to [`devx_julia_cancel`].
///
/// `DEVX_NULL_ARGUMENT` if `out` is NULL, `DEVX_CLOSED` if the queue was never started.
///
/// # Safety
/// `out` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_register(token: u64, out: *mut DevxOwner) -> Status {
    guard(DEVX_PANIC, || {
        if out.is_null() {
            return DEVX_NULL_ARGUMENT;
        }
        let Some(queue) = QUEUE.get() else { return DEVX_CLOSED };
        // SAFETY: not NULL, and writable by the caller's contract.
        unsafe { out.write(queue.register(token)) };
        DEVX_OK
    })
}

/// Takes back an owner of [`devx_julia_register`] that nobody took over; its token will not come out. NULL is fine.
///
/// # Safety
/// `context` is NULL, or that of an owner whose release was not and will not be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_cancel(context: *mut c_void) {
    guard((), || {
        if !context.is_null() {
            // SAFETY: the caller's contract.
            unsafe { ReleaseQueue::cancel(context) }
        }
    });
}

/// Pushes a token that was not registered: what a finalizer does. Takes no lock.
///
/// `DEVX_CLOSED` if the queue was never started; then the token does not come out.
#[unsafe(no_mangle)]
pub extern "C" fn devx_julia_push(token: u64) -> Status {
    guard(DEVX_PANIC, || match QUEUE.get() {
        Some(queue) => {
            queue.push(token);
            DEVX_OK
        }
        None => DEVX_CLOSED,
    })
}

/// Moves at most `capacity` tokens into `tokens`, oldest first; returns how many. Each token comes out once, whoever
/// drains.
///
/// # Safety
/// `tokens` is NULL, or has room for `capacity` tokens that were written once (any value will do).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_drain(tokens: *mut u64, capacity: usize) -> usize {
    guard(0, || {
        let Some(queue) = QUEUE.get() else { return 0 };
        if tokens.is_null() {
            return 0;
        }
        // SAFETY: the caller's contract.
        queue.drain(unsafe { std::slice::from_raw_parts_mut(tokens, capacity) })
    })
}

/// Stops waking anybody, for a Julia that is about to close its event loop: when this returns, the handle is not
/// touched any more. Tokens still queue up and can be drained.
#[unsafe(no_mangle)]
pub extern "C" fn devx_julia_silence() {
    guard((), || GATE.close());
}

/// Runs the body of a function; a panic becomes `otherwise`.
fn guard<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // A payload may panic in its own drop; the second payload is leaked rather than dropped.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
        otherwise
    })
}

const _: () = assert!(size_of::<Status>() == size_of::<c_int>());

#[cfg(test)]
mod tests;
