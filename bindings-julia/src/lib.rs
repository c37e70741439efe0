//! The native half of `DevExchange.jl`: a queue that carries releases, wakes and requests from any thread to a Julia
//! task.
//!
//! No Julia code may run on a thread that Julia did not start, and a finalizer must neither block nor switch tasks. So threads
//! and finalizers only push a number here, which takes no lock, and wake Julia's event loop (`uv_async_send`); a task of
//! `DevExchange.jl` drains the numbers and does the rest. Only a caller that wants a batch from a Julia source, or memory from
//! a Julia manager, needs an answer: on a Julia thread it calls Julia directly, on any other thread it pushes a request and
//! waits.
//!
//! The functions are private to the `DevExchange.jl` of the same version. They may be called from any thread at any time, even
//! during shutdown; no panic leaves them.

mod call;
mod callee;
mod gate;
mod guard;
mod manager;
mod request;
mod server;
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
use callee::Callee;
use gate::{Gate, Wake};
use guard::guard;
use request::{Desk, Request};
use server::Server;
use source::Waker;

static GATE: Gate = Gate::new();
static QUEUE: OnceLock<Arc<ReleaseQueue>> = OnceLock::new();
static DESK: Desk = Desk::closed();

/// Starts the queue. If the queue runs already, it wakes `handle` from now on: when this returns, nothing touches the handle of
/// the call before any more.
///
/// `DEVX_NULL_ARGUMENT` if `wake` or `handle` is NULL.
///
/// # Safety
/// `wake(handle)` can be called from any thread until [`devx_julia_silence`] or the next call of this function has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_queue_start(wake: Option<Wake>, handle: *mut c_void) -> Status {
    guard(DEVX_PANIC, || {
        let Some(wake) = wake.filter(|_| !handle.is_null()) else { return DEVX_NULL_ARGUMENT };
        // SAFETY: the caller's contract.
        unsafe { GATE.open(wake, handle) };
        QUEUE.get_or_init(|| ReleaseQueue::new(|| GATE.pass()));
        DESK.open();
        // For tokens that were pushed while there was no handle to wake.
        GATE.pass();
        DEVX_OK
    })
}

/// Writes an owner whose release pushes `token`, on whatever thread it is called. If no call takes the owner over, pass its
/// context to [`devx_julia_cancel`].
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

/// Takes back an owner of [`devx_julia_register`] that no call took over; its token is never drained. NULL is accepted.
///
/// # Safety
/// `context` is NULL, or belongs to an owner whose release was not and will not be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_cancel(context: *mut c_void) {
    guard((), || {
        if !context.is_null() {
            // SAFETY: the caller's contract.
            unsafe { ReleaseQueue::cancel(context) }
        }
    });
}

/// Pushes a token that was not registered, as a finalizer does. Takes no lock.
///
/// `DEVX_CLOSED` if the queue was never started; the token is then never drained.
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

/// Moves at most `capacity` tokens into `tokens`, oldest first, and returns how many. Each token is drained once, by whichever
/// thread is first.
///
/// # Safety
/// `tokens` is NULL, or has room for `capacity` tokens, all initialised (to any value).
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

/// Marks the calling thread as a Julia thread. Call it on each Julia thread before a source or a manager is used there.
#[unsafe(no_mangle)]
pub extern "C" fn devx_julia_thread() {
    guard((), callee::mark_thread);
}

/// Writes a source that gets its batches from Julia. On a Julia thread `server` answers its calls. On any other thread it
/// pushes the address of a request, shifted to the left by three bits, plus `tag`, and waits for [`devx_julia_answer`]. Until
/// the request is taken ([`devx_julia_take`]) it waits for at most `patience_ns` nanoseconds (negative: as long as it takes),
/// from then on as long as it takes.
///
/// The source takes `owner` over and releases it at its own release. If no call takes the source over, pass its context to
/// [`devx_julia_discard`], which gives `owner` back.
///
/// `DEVX_NULL_ARGUMENT` if an argument is NULL, `DEVX_CLOSED` if the queue was never started, `DEVX_OUT_OF_MEMORY`; then
/// `owner` is still the caller's.
///
/// # Safety
/// `server`, `owner` and `out` are NULL, or can be read and written. This is a Julia thread that runs Julia code. The functions
/// of `server` can be called on any thread that was marked as a Julia thread, until the source is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_source(
    token: u64,
    tag: u64,
    server: *const Server,
    patience_ns: i64,
    owner: *const DevxOwner,
    out: *mut DevxBatchSource,
) -> Status {
    // SAFETY: the caller's contract.
    unsafe { make(token, tag, server, patience_ns, owner, out, source::record) }
}

/// Writes a manager that calls Julia in the way of [`devx_julia_source`]. `callbacks` has one bit, `1 << operation`, for each
/// optional callback that the manager has.
///
/// # Safety
/// Same as [`devx_julia_source`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_manager(
    token: u64,
    tag: u64,
    server: *const Server,
    patience_ns: i64,
    callbacks: u32,
    owner: *const DevxOwner,
    out: *mut DevxManagerTable,
) -> Status {
    // SAFETY: the caller's contract.
    unsafe { make(token, tag, server, patience_ns, owner, out, |context| manager::table(context, callbacks)) }
}

/// # Safety
/// Same as [`devx_julia_source`].
unsafe fn make<R>(
    token: u64,
    tag: u64,
    server: *const Server,
    patience_ns: i64,
    owner: *const DevxOwner,
    out: *mut R,
    record: impl FnOnce(*mut c_void) -> R,
) -> Status {
    guard(DEVX_PANIC, || {
        // SAFETY: NULL, or readable by the caller's contract.
        let owner = unsafe { owner.as_ref() }.filter(|_| !out.is_null());
        // SAFETY: as above.
        let (Some(&owner), Some(&server)) = (owner, unsafe { server.as_ref() }) else { return DEVX_NULL_ARGUMENT };
        let Some(queue) = QUEUE.get().cloned() else { return DEVX_CLOSED };
        // SAFETY: the caller's contract.
        unsafe { server.prepare() };
        let room = match Vacant::new() {
            Ok(room) => room,
            Err(error) => return error.status(),
        };
        let patience = u64::try_from(patience_ns).ok().map(Duration::from_nanos);
        // SAFETY: handed over by the caller.
        let owner = unsafe { Owner::from_raw(owner) };
        let callee = Callee { token, server, tag, patience, desk: &DESK, queue, owner };
        // SAFETY: not NULL, and writable by the caller's contract.
        unsafe { out.write(record(callee.into_context(room))) };
        DEVX_OK
    })
}

/// Takes back a source or a manager that no call took over. Its owner is not released: it belongs to the caller again. NULL is
/// accepted.
///
/// # Safety
/// `context` is NULL, or belongs to a source or a manager whose release was not and will not be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_discard(context: *mut c_void) {
    guard((), || {
        if !context.is_null() {
            // SAFETY: `make` made it, and by the caller's contract nobody else has it.
            let callee = unsafe { Box::from_raw(context.cast::<Callee>()) };
            callee.owner.into_raw();
        }
    });
}

/// Writes a record whose `wake` pushes `token`, on whatever thread it is called, unless the token is queued already. The record
/// takes `owner` over, like [`devx_julia_source`]. If no call takes the record over, pass its context to
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

/// Like [`devx_julia_discard`], but for a record of [`devx_julia_wake`].
///
/// # Safety
/// `context` is NULL, or belongs to a record whose release was not and will not be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_discard_wake(context: *mut c_void) {
    guard((), || {
        if !context.is_null() {
            // SAFETY: `devx_julia_wake` made it, and by the caller's contract nobody else has it.
            let waker = unsafe { Box::from_raw(context.cast::<Waker>()) };
            waker.owner.into_raw();
        }
    });
}

/// Returns the call that the Julia function of a [`Server`] was called for. It has to read this before it does anything else.
#[unsafe(no_mangle)]
pub extern "C" fn devx_julia_called() -> *mut Call {
    guard(std::ptr::null_mut(), server::called)
}

/// Takes a request whose address was drained, and writes its call. Then [`devx_julia_answer`] has to be called. Returns false
/// if nobody waits for the answer any more: the request is gone.
///
/// # Safety
/// `request` was drained from the queue, and this is called once for it. `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_take(request: *mut c_void, out: *mut Call) -> bool {
    guard(false, || {
        // SAFETY: the caller's contract.
        let Some(call) = (unsafe { Request::take(request) }) else { return false };
        // SAFETY: as above.
        unsafe { out.write(call) };
        true
    })
}

/// Answers a request with its call, in which the callee wrote the status and its results.
///
/// `DEVX_CLOSED` if nobody waits for the answer any more; the contents of the call then still belong to the caller.
///
/// # Safety
/// `request` was taken, and this is called once for it. `call` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn devx_julia_answer(request: *mut c_void, call: *const Call) -> Status {
    guard(DEVX_PANIC, || {
        // SAFETY: the caller's contract.
        let call = unsafe { *call };
        // SAFETY: as above.
        match unsafe { Request::answer(request, call) } {
            Ok(()) => DEVX_OK,
            Err(refused) => refused.status(),
        }
    })
}

/// Keeps two owners under one address: `owner`, and `then`, which is released after it. Either may be empty. Pass the address
/// to [`devx_julia_let_go`]. Returns NULL if an argument is NULL or there is no memory; then both still belong to the caller.
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

/// Releases both owners of [`devx_julia_keep`], on the calling thread. NULL is accepted.
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

/// Returns the version of this library, which `DevExchange.jl` compares with its own. Never NULL, never freed.
#[unsafe(no_mangle)]
pub extern "C" fn devx_julia_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Whether the trace is on.
#[unsafe(no_mangle)]
pub extern "C" fn devx_julia_trace() -> bool {
    guard(false, trace::enabled)
}

/// Stops waking Julia, which is about to close its event loop: when this returns, nothing touches the handle any more. Tokens
/// still queue up and can be drained. Threads that wait for an answer, and those that ask later, get `DEVX_CLOSED`.
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
