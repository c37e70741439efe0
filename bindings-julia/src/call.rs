//! The calls that a Julia object can get.

use core::ffi::c_void;
use std::ptr::null_mut;

use devexchange_core::abi::types::{
    DEVX_CALLBACK, DEVX_ERROR_MESSAGE_BYTES, DEVX_OK, DevxBatch, DevxError, DevxIpcHandle, DevxMemory, DevxMemoryInfo,
    DevxMemoryRequest, DevxOwner,
};
use devexchange_core::text;

/// The operations. `DevExchange.jl` knows these numbers; as bits, they name the callbacks that a manager has.
pub(crate) const NEXT: i32 = 0;
pub(crate) const INITIALIZE: i32 = 1;
pub(crate) const ALLOCATE: i32 = 2;
pub(crate) const PIN: i32 = 3;
pub(crate) const MEMORY_INFO: i32 = 4;
pub(crate) const IPC_HANDLE: i32 = 5;
pub(crate) const RESET: i32 = 6;
pub(crate) const TRIM: i32 = 7;
pub(crate) const DEFER_CLEANUP: i32 = 8;

/// One call and its answer. It is copied between threads, so that no thread writes to memory that is gone.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Call {
    /// `NEXT`, ...
    pub(crate) operation: i32,
    /// For `DEFER_CLEANUP`: whether the deferral begins.
    pub(crate) begin: i32,
    /// The token of the object that is called.
    pub(crate) token: u64,
    /// The address to pin, or whose handle is requested.
    pub(crate) address: *mut c_void,
    /// The memory request, or the arguments of other callbacks: a device, bytes, flags.
    pub(crate) request: DevxMemoryRequest,
    /// The answer to `NEXT`.
    pub(crate) batch: *mut DevxBatch,
    /// The answer to `ALLOCATE`; for `PIN` only its owner.
    pub(crate) memory: DevxMemory,
    /// The answer to `MEMORY_INFO`.
    pub(crate) info: DevxMemoryInfo,
    /// The answer to `IPC_HANDLE`.
    pub(crate) handle: DevxIpcHandle,
    /// The status of the call, and why there is no answer. An answer counts once the status is `DEVX_OK`.
    pub(crate) error: DevxError,
}

// SAFETY: what the pointers refer to may be used on any thread.
unsafe impl Send for Call {}

impl Call {
    /// A call without arguments.
    pub(crate) const fn of(operation: i32) -> Self {
        Self {
            operation,
            begin: 0,
            token: 0,
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

    /// The call to the object with this token. It has failed, until someone answers.
    pub(crate) fn to(mut self, token: u64) -> Self {
        self.token = token;
        self.error.status = DEVX_CALLBACK;
        text::fill(
            "the call of Julia was given up: it was interrupted, or waited for what is gone",
            &mut self.error.message,
        );
        self
    }

    /// A call about a device.
    pub(crate) fn on(operation: i32, device_id: i32) -> Self {
        let mut call = Self::of(operation);
        call.request.device_id = device_id;
        call
    }
}
