//! What a Julia object can be asked, and how it is reached from any thread.

use core::ffi::c_void;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use devexchange_core::abi::types::{
    DEVX_ERROR_MESSAGE_BYTES, DEVX_OK, DEVX_PANIC, DevxBatch, DevxError, DevxIpcHandle, DevxMemory, DevxMemoryInfo,
    DevxMemoryRequest, DevxOwner, DevxStatus as Status,
};
use devexchange_core::error::Error;
use devexchange_core::memory::{ReleaseQueue, Vacant};
use devexchange_core::{Owner, text};

use crate::request::Desk;
use crate::{address_token, guard};

thread_local!(static IS_JULIA: Cell<bool> = const { Cell::new(false) });

/// Says that the calling thread is one of Julia's: functions of Julia's may be called on it directly.
pub(crate) fn mark_thread() {
    IS_JULIA.set(true);
}

/// What is asked. The numbers are known to `DevExchange.jl`, and name the callbacks that a manager has (bit by bit).
pub(crate) const NEXT: i32 = 0;
pub(crate) const INITIALIZE: i32 = 1;
pub(crate) const ALLOCATE: i32 = 2;
pub(crate) const PIN: i32 = 3;
pub(crate) const MEMORY_INFO: i32 = 4;
pub(crate) const IPC_HANDLE: i32 = 5;
pub(crate) const RESET: i32 = 6;
pub(crate) const TRIM: i32 = 7;
pub(crate) const DEFER_CLEANUP: i32 = 8;

/// One question and its answer. It is copied between threads, so that nobody writes to what is not there any more.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Call {
    /// `NEXT`, ...
    pub(crate) operation: i32,
    /// Of a deferral: whether it begins.
    pub(crate) begin: i32,
    /// The address that is pinned, or whose handle is asked for.
    pub(crate) address: *mut c_void,
    /// What is asked for, or what stands in the arguments of other callbacks: a device, bytes, flags.
    pub(crate) request: DevxMemoryRequest,
    /// The answer to `NEXT`.
    pub(crate) batch: *mut DevxBatch,
    /// The answer to `ALLOCATE`; of `PIN`, its owner.
    pub(crate) memory: DevxMemory,
    /// The answer to `MEMORY_INFO`.
    pub(crate) info: DevxMemoryInfo,
    /// The answer to `IPC_HANDLE`.
    pub(crate) handle: DevxIpcHandle,
    /// Why there is none.
    pub(crate) error: DevxError,
}

// SAFETY: what the pointers stand for may be used on any thread.
unsafe impl Send for Call {}

impl Call {
    /// A question without arguments.
    pub(crate) const fn of(operation: i32) -> Self {
        Self {
            operation,
            begin: 0,
            address: null_mut(),
            request: DevxMemoryRequest {
                device_type: 0,
                device_id: 0,
                bytes: 0,
                stream: 0,
                host_flags: 0,
                reserved: 0,
            },
            batch: null_mut(),
            memory: DevxMemory {
                address: null_mut(),
                device_type: 0,
                device_id: 0,
                owner: DevxOwner { context: null_mut(), release: None },
            },
            info: DevxMemoryInfo { free_bytes: 0, total_bytes: 0 },
            handle: DevxIpcHandle { handle: [0; 64], offset: 0, bytes: 0, device_id: 0, reserved: 0 },
            error: DevxError { status: DEVX_OK, driver_code: 0, message: [0; DEVX_ERROR_MESSAGE_BYTES] },
        }
    }

    /// A question about a device.
    pub(crate) fn on(operation: i32, device_id: i32) -> Self {
        let mut call = Self::of(operation);
        call.request.device_id = device_id;
        call
    }
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
                call.error = record(&refused);
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

fn record(error: &Error) -> DevxError {
    let mut message = [0; DEVX_ERROR_MESSAGE_BYTES];
    text::fill(error.message(), &mut message);
    DevxError { status: error.status(), driver_code: error.driver_code(), message }
}
