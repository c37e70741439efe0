//! The native half of `DevExchange.jl`: a queue that carries releases, wakes and requests from any thread to a Julia
//! task.
//!
//! No Julia code may run on a thread that Julia has not started, and a finalizer must neither block nor switch tasks.
//! So both only push a number here, which takes no lock, and wake Julia's event loop (`uv_async_send`); a task of
//! `DevExchange.jl` drains the numbers and does the rest. Only who asks a Julia source for a batch, or a Julia manager for
//! memory, needs an answer: on a thread of Julia's it is called, any other thread pushes a request and waits.
//!
//! The functions are private to `DevExchange.jl` of the same version. They may be called from any thread, at any time,
//! during shutdown too; no panic leaves them.

mod call;
mod callee;
mod gate;
mod guard;
mod manager;
mod request;
mod source;

use core::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use devexchange_core::Owner;
use devexchange_core::abi::types::{
    DEVX_CLOSED, DEVX_NULL_ARGUMENT, DEVX_OK, DEVX_PANIC, DevxBatchSource, DevxManagerTable, DevxOwner,
    DevxStatus as Status, DevxWake,
};
use devexchange_core::memory::{ReleaseQueue, Vacant};
use devexchange_core::trace;

use call::Call;
use callee::{Callee, Serve};
use gate::{Gate, Wake};
use guard::guard;
use request::{Desk, Request};
use source::Waker;

static GATE: Gate = Gate::new();
static QUEUE: OnceLock<Arc<ReleaseQueue>> = OnceLock::new();
static DESK: Desk = Desk::closed();

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
        DESK.open();
        // What was pushed while nobody could be woken.
        GATE.pass();
        DEVX_OK
    })
}

/// Writes an owner whose release pushes `token`, from whatever thread it is called on. If nobody takes it over, its
/// context goes to [`devx_julia_cancel`].
///
/// `DEVX_NULL_ARGUMENT` if `out` is NULL, `DEVX_CLOSED` if the queue was never started, `DEVX_OUT_OF_MEMORY`.
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
        match queue.try_register(token) {
            Ok(owner) => {
                // SAFETY: not NULL, and writable by the caller's contract.
                unsafe { out.write(owner) };
                DEVX_OK
            }
            Err(error) => error.status(),
        }
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

/// Says that the calling thread is one of Julia's. To be called on each of them before a source or a manager is used
/// there.
#[unsafe(no_mangle)]
pub extern "C" fn devx_julia_thread() {
    guard((), callee::mark_thread);
}

/// Writes a source that asks Julia for batches. On a thread of Julia's it calls `serve(token, call)`. On any other thread
/// it pushes the address of a request, shifted to the left by three bits, plus `tag`, and waits for
/// [`devx_julia_answer`]: so many nanoseconds, negative for as long as it takes, until the request is taken
/// ([`devx_julia_take`]), and from then on for as long as it takes.
///
/// The source takes `owner` over: released with it, or given back by [`devx_julia_discard`], to which the context goes if
/// nobody takes the source over.
///
/// `DEVX_NULL_ARGUMENT` if an argument is NULL, `DEVX_CLOSED` if the queue was never started, `DEVX_OUT_OF_MEMORY`; then
/// `owner` is the caller's as before.
///
/// # Safety
/// `owner` and `out` are NULL, or can be read and written. `serve` may be called on any thread that said that it is
/// Julia's, until the source is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_source(
    token: u64,
    tag: u64,
    serve: Option<Serve>,
    patience_ns: i64,
    owner: *const DevxOwner,
    out: *mut DevxBatchSource,
) -> Status {
    // SAFETY: the caller's contract.
    unsafe { make(token, tag, serve, patience_ns, owner, out, source::record) }
}

/// Writes a manager that asks Julia, as [`devx_julia_source`] does a source. `callbacks` has a bit for each callback that
/// may be missing and is there: `1 << operation`.
///
/// # Safety
/// As [`devx_julia_source`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_manager(
    token: u64,
    tag: u64,
    serve: Option<Serve>,
    patience_ns: i64,
    callbacks: u32,
    owner: *const DevxOwner,
    out: *mut DevxManagerTable,
) -> Status {
    // SAFETY: the caller's contract.
    unsafe { make(token, tag, serve, patience_ns, owner, out, |context| manager::table(context, callbacks)) }
}

/// # Safety
/// As [`devx_julia_source`].
unsafe fn make<R>(
    token: u64,
    tag: u64,
    serve: Option<Serve>,
    patience_ns: i64,
    owner: *const DevxOwner,
    out: *mut R,
    record: impl FnOnce(*mut c_void) -> R,
) -> Status {
    guard(DEVX_PANIC, || {
        // SAFETY: NULL, or readable by the caller's contract.
        let owner = unsafe { owner.as_ref() }.filter(|_| !out.is_null());
        let (Some(&owner), Some(serve)) = (owner, serve) else { return DEVX_NULL_ARGUMENT };
        let Some(queue) = QUEUE.get().cloned() else { return DEVX_CLOSED };
        let room = match Vacant::new() {
            Ok(room) => room,
            Err(error) => return error.status(),
        };
        let patience = u64::try_from(patience_ns).ok().map(Duration::from_nanos);
        // SAFETY: handed over by the caller.
        let owner = unsafe { Owner::from_raw(owner) };
        let callee = Callee { token, serve, tag, patience, desk: &DESK, queue, owner };
        // SAFETY: not NULL, and writable by the caller's contract.
        unsafe { out.write(record(callee.into_context(room))) };
        DEVX_OK
    })
}

/// Takes back a source or a manager that nobody took over. Its owner is not released: it is the caller's again. NULL is
/// fine.
///
/// # Safety
/// `context` is NULL, or that of a source or a manager whose release was not and will not be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_discard(context: *mut c_void) {
    guard((), || {
        if !context.is_null() {
            // SAFETY: `make` made it, and by the contract nobody else has it.
            let callee = unsafe { Box::from_raw(context.cast::<Callee>()) };
            callee.owner.into_raw();
        }
    });
}

/// Writes a record whose `wake` pushes `token`, from whatever thread it is called on, unless it is queued already. It
/// takes `owner` over as [`devx_julia_source`] does; the context of a record that nobody took over goes to
/// [`devx_julia_discard_wake`].
///
/// `DEVX_NULL_ARGUMENT` if an argument is NULL, `DEVX_CLOSED` if the queue was never started, `DEVX_OUT_OF_MEMORY`.
///
/// # Safety
/// `owner` and `out` are NULL, or can be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_wake(token: u64, owner: *const DevxOwner, out: *mut DevxWake) -> Status {
    guard(DEVX_PANIC, || {
        // SAFETY: NULL, or readable by the caller's contract.
        let owner = unsafe { owner.as_ref() }.filter(|_| !out.is_null());
        let Some(&owner) = owner else { return DEVX_NULL_ARGUMENT };
        let Some(queue) = QUEUE.get() else { return DEVX_CLOSED };
        let (room, signal) = match Vacant::new().and_then(|room| Ok((room, queue.signal(token)?))) {
            Ok(made) => made,
            Err(error) => return error.status(),
        };
        // SAFETY: handed over by the caller.
        let owner = unsafe { Owner::from_raw(owner) };
        // SAFETY: not NULL, and writable by the caller's contract.
        unsafe { out.write(Waker { signal, owner }.into_record(room)) };
        DEVX_OK
    })
}

/// As [`devx_julia_discard`], for a record of [`devx_julia_wake`].
///
/// # Safety
/// `context` is NULL, or that of a record whose release was not and will not be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_discard_wake(context: *mut c_void) {
    guard((), || {
        if !context.is_null() {
            // SAFETY: `devx_julia_wake` made it, and by the contract nobody else has it.
            let waker = unsafe { Box::from_raw(context.cast::<Waker>()) };
            waker.owner.into_raw();
        }
    });
}

/// Takes on a request that was drained, by its address: writes what is asked, and returns the token of the object that is
/// asked. Then [`devx_julia_answer`] has to be called. 0 if nobody waits for the answer any more: the request is gone.
///
/// # Safety
/// `request` came out of the queue, and this is called once for it. `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_take(request: *mut c_void, out: *mut Call) -> u64 {
    guard(0, || {
        // SAFETY: the caller's contract.
        let Some((token, call)) = (unsafe { Request::take(request) }) else { return 0 };
        // SAFETY: as above.
        unsafe { out.write(call) };
        token
    })
}

/// Answers a request with a status, and with what it wrote to the call.
///
/// `DEVX_CLOSED` if nobody waits for the answer any more: then what is in the call is still the caller's.
///
/// # Safety
/// `request` was taken, and this is called once for it. `call` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_answer(request: *mut c_void, status: Status, call: *const Call) -> Status {
    guard(DEVX_PANIC, || {
        // SAFETY: the caller's contract.
        let call = unsafe { *call };
        // SAFETY: as above.
        match unsafe { Request::answer(request, status, call) } {
            Ok(()) => DEVX_OK,
            Err(refused) => refused.status(),
        }
    })
}

/// Keeps an owner, and another one that is released after it, under one address; either may be empty. The address goes to
/// [`devx_julia_let_go`]. NULL if an argument is NULL, or without memory; then they are the caller's as before.
///
/// # Safety
/// `owner` and `then` are NULL, or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_keep(owner: *const DevxOwner, then: *const DevxOwner) -> *mut c_void {
    guard(std::ptr::null_mut(), || {
        // SAFETY: NULL, or readable by the caller's contract.
        let owner = unsafe { owner.as_ref() };
        // SAFETY: as above.
        let (Some(&owner), Some(&then)) = (owner, unsafe { then.as_ref() }) else { return std::ptr::null_mut() };
        let Ok(room) = Vacant::new() else { return std::ptr::null_mut() };
        // SAFETY: handed over by the caller.
        let owner = unsafe { Owner::from_raw(owner) };
        // SAFETY: as above.
        let kept: Kept = (owner, unsafe { Owner::from_raw(then) });
        Box::into_raw(room.fill(kept)).cast()
    })
}

/// Two owners that are released one after the other: a tuple is dropped from left to right.
type Kept = (Owner, Owner);

/// Releases what [`devx_julia_keep`] keeps, on the calling thread. NULL is fine.
///
/// # Safety
/// `kept` is NULL, or an address of [`devx_julia_keep`], and this is called once for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_let_go(kept: *mut c_void) {
    guard((), || {
        if !kept.is_null() {
            // SAFETY: the caller's contract.
            drop(unsafe { Box::from_raw(kept.cast::<Kept>()) });
        }
    });
}

/// The version of this library, which `DevExchange.jl` compares with its own. Never NULL, never freed.
#[unsafe(no_mangle)]
pub extern "C" fn devx_julia_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Whether the trace is on.
#[unsafe(no_mangle)]
pub extern "C" fn devx_julia_trace() -> bool {
    guard(false, trace::enabled)
}

/// Stops waking anybody, for a Julia that is about to close its event loop: when this returns, the handle is not
/// touched any more. Tokens still queue up and can be drained. Whoever waits for an answer, or asks later, is told
/// that there will be none (`DEVX_CLOSED`).
#[unsafe(no_mangle)]
pub extern "C" fn devx_julia_silence() {
    guard((), || {
        GATE.close();
        DESK.close();
    });
}

const _: () = assert!(size_of::<Status>() == size_of::<c_int>());

#[cfg(test)]
mod tests;
