//! Memory managers written in Julia, as tables of callbacks of the C API.

use core::ffi::c_void;

use devexchange_core::abi::types::{
    DEVX_MANAGER_VERSION, DevxError, DevxIpcHandle, DevxManagerTable, DevxMemory, DevxMemoryInfo, DevxMemoryRequest,
    DevxOwner, DevxStatus as Status,
};

use crate::call::{ALLOCATE, Call, DEFER_CLEANUP, INITIALIZE, IPC_HANDLE, MEMORY_INFO, PIN, RESET, TRIM};
use crate::callee;

/// Makes a table that calls Julia through a context. It has those optional callbacks whose bits are set.
pub(crate) fn table(context: *mut c_void, callbacks: u32) -> DevxManagerTable {
    let has = |operation: i32| callbacks & 1 << operation != 0;
    DevxManagerTable {
        version: DEVX_MANAGER_VERSION,
        reserved: 0,
        initialize: has(INITIALIZE).then_some(initialize as _),
        allocate: Some(allocate),
        pin: has(PIN).then_some(pin as _),
        memory_info: has(MEMORY_INFO).then_some(memory_info as _),
        ipc_handle: has(IPC_HANDLE).then_some(ipc_handle as _),
        reset: has(RESET).then_some(reset as _),
        trim: has(TRIM).then_some(trim as _),
        defer_cleanup: has(DEFER_CLEANUP).then_some(defer_cleanup as _),
        context,
        release: Some(callee::release),
    }
}

// Each is called as the C API documents it, with the context of a table that was not released.

unsafe extern "C" fn initialize(context: *mut c_void, device_id: i32, error: *mut DevxError) -> Status {
    // SAFETY: the table's contract.
    unsafe { callee::tell(context, Call::on(INITIALIZE, device_id), error) }
}

unsafe extern "C" fn allocate(
    context: *mut c_void,
    request: *const DevxMemoryRequest,
    out: *mut DevxMemory,
    error: *mut DevxError,
) -> Status {
    // SAFETY: the table's contract.
    let call = Call { request: unsafe { *request }, ..Call::of(ALLOCATE) };
    // SAFETY: the table's contract.
    unsafe { callee::ask(context, call, error, out, |answer| answer.memory) }
}

unsafe extern "C" fn pin(
    context: *mut c_void,
    device_id: i32,
    address: *mut c_void,
    bytes: i64,
    host_flags: u32,
    out: *mut DevxOwner,
    error: *mut DevxError,
) -> Status {
    let mut call = Call { address, ..Call::on(PIN, device_id) };
    call.request.bytes = bytes;
    call.request.host_flags = host_flags;
    // SAFETY: the table's contract.
    unsafe { callee::ask(context, call, error, out, |answer| answer.memory.owner) }
}

unsafe extern "C" fn memory_info(
    context: *mut c_void,
    device_id: i32,
    out: *mut DevxMemoryInfo,
    error: *mut DevxError,
) -> Status {
    // SAFETY: the table's contract.
    unsafe { callee::ask(context, Call::on(MEMORY_INFO, device_id), error, out, |answer| answer.info) }
}

unsafe extern "C" fn ipc_handle(
    context: *mut c_void,
    address: *const c_void,
    out: *mut DevxIpcHandle,
    error: *mut DevxError,
) -> Status {
    let call = Call { address: address.cast_mut(), ..Call::of(IPC_HANDLE) };
    // SAFETY: the table's contract.
    unsafe { callee::ask(context, call, error, out, |answer| answer.handle) }
}

unsafe extern "C" fn reset(context: *mut c_void, device_id: i32, error: *mut DevxError) -> Status {
    // SAFETY: the table's contract.
    unsafe { callee::tell(context, Call::on(RESET, device_id), error) }
}

unsafe extern "C" fn trim(context: *mut c_void, device_id: i32, keep: i64, error: *mut DevxError) -> Status {
    let mut call = Call::on(TRIM, device_id);
    call.request.bytes = keep;
    // SAFETY: the table's contract.
    unsafe { callee::tell(context, call, error) }
}

/// Has no status: Julia logs what goes wrong.
unsafe extern "C" fn defer_cleanup(context: *mut c_void, begin: i32) {
    let call = Call { begin, ..Call::of(DEFER_CLEANUP) };
    // SAFETY: the table's contract.
    unsafe { callee::tell(context, call, std::ptr::null_mut()) };
}
