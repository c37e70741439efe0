//! Managers whose callbacks a program has put into a table of the C API.

use core::ffi::c_void;

use super::{Callbacks, IpcHandle, MemoryInfo, Request, Shared, lacks};
use crate::abi::types::{
    DEVX_MANAGER_VERSION, DEVX_OK, DevxError, DevxIpcHandle, DevxManagerTable, DevxMemory, DevxMemoryInfo,
    DevxMemoryRequest, DevxOwner, DevxStatus,
};
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result, refuse};
use crate::memory::Owner;
use crate::runtime::cuda::Allocation;
use crate::text;

#[derive(Debug)]
struct Table {
    callbacks: DevxManagerTable,
    _release: Owner,
}

// SAFETY: by the table's contract its callbacks may be called from any thread.
unsafe impl Send for Table {}
// SAFETY: as above, also from several threads at once.
unsafe impl Sync for Table {}

impl Shared {
    /// Shares a manager whose callbacks a program has put into a table. Its `release` is called once, when the manager and all
    /// of its memory are given up. On failure the table stays the caller's.
    ///
    /// # Errors
    /// `DEVX_VERSION`, `DEVX_INVALID_ARGUMENT` if `reserved` is not zero, `DEVX_NULL_ARGUMENT` if `allocate` is missing (all
    /// other callbacks are optional), `DEVX_OUT_OF_MEMORY`.
    ///
    /// # Safety
    /// The callbacks may be called from any thread, several at once, until `release` has been called. The memory that
    /// `allocate` returns is as [`Manager`](super::Manager) requires.
    pub unsafe fn of_table(table: &DevxManagerTable) -> Result<Self> {
        if table.version != DEVX_MANAGER_VERSION {
            return refuse!(DEVX_VERSION, "version is {}: this library reads {DEVX_MANAGER_VERSION}", table.version);
        }
        if table.reserved != 0 {
            return refuse!(DEVX_INVALID_ARGUMENT, "reserved is {}: it must be 0", table.reserved);
        }
        if table.allocate.is_none() {
            return refuse!(DEVX_NULL_ARGUMENT, "allocate is NULL");
        }
        let owner = DevxOwner { context: table.context, release: table.release };
        Self::of_callbacks(|| {
            // SAFETY: the caller's contract.
            Ok(Table { callbacks: *table, _release: unsafe { Owner::from_raw(owner) } })
        })
    }
}

impl Table {
    /// Calls a callback. The text of an error may be empty.
    fn call(&self, callback: impl FnOnce(*mut c_void, *mut DevxError) -> DevxStatus) -> Result<()> {
        // SAFETY: an all-zero record has an empty text.
        let mut record = unsafe { std::mem::zeroed::<DevxError>() };
        match callback(self.callbacks.context, &mut record) {
            DEVX_OK => Ok(()),
            status => Err(Error::driver(status, record.driver_code, format_args!("{}", text::read(&record.message)))),
        }
    }
}

// SAFETY: by the contract of `of_table`, the memory is as the callback describes it.
unsafe impl Callbacks for Table {
    fn initialize(&self, ordinal: i32) -> Result<()> {
        let Some(initialize) = self.callbacks.initialize else { return Ok(()) };
        // SAFETY: the contract of `of_table`.
        self.call(|context, error| unsafe { initialize(context, ordinal, error) })
    }

    fn allocate(&self, request: &Request) -> Result<Allocation> {
        let Some(allocate) = self.callbacks.allocate else { return lacks("allocate") };
        let request = request.to_raw();
        // SAFETY: an all-zero record has no address and no owner.
        let mut memory = unsafe { std::mem::zeroed::<DevxMemory>() };
        // SAFETY: the contract of `of_table`, with room for what it writes.
        self.call(|context, error| unsafe { allocate(context, &request, &mut memory, error) })?;
        let device = Device { kind: DeviceType(memory.device_type), id: memory.device_id };
        // SAFETY: given to us now, to be released once.
        Ok(Allocation { address: memory.address, device, owner: unsafe { Owner::from_raw(memory.owner) } })
    }

    unsafe fn pin(&self, address: *mut c_void, request: &Request) -> Result<Option<Owner>> {
        let Some(pin) = self.callbacks.pin else { return Ok(None) };
        let DevxMemoryRequest { device_id, bytes, host_flags, .. } = request.to_raw();
        let mut owner = DevxOwner { context: std::ptr::null_mut(), release: None };
        // SAFETY: the contract of `of_table`, and the caller's.
        self.call(|context, error| unsafe { pin(context, device_id, address, bytes, host_flags, &mut owner, error) })?;
        // SAFETY: given to us now, to be released once.
        Ok(Some(unsafe { Owner::from_raw(owner) }))
    }

    fn memory_info(&self, ordinal: i32) -> Result<Option<MemoryInfo>> {
        let Some(memory_info) = self.callbacks.memory_info else { return Ok(None) };
        let mut info = DevxMemoryInfo { free_bytes: 0, total_bytes: 0 };
        // SAFETY: the contract of `of_table`, with room for what it writes.
        self.call(|context, error| unsafe { memory_info(context, ordinal, &mut info, error) })?;
        MemoryInfo::from_raw(info).map(Some)
    }

    fn ipc_handle(&self, address: *const c_void) -> Result<Option<IpcHandle>> {
        let Some(ipc_handle) = self.callbacks.ipc_handle else { return Ok(None) };
        let mut found = DevxIpcHandle { handle: [0; 64], offset: 0, bytes: 0, device_id: 0, reserved: 0 };
        // SAFETY: the contract of `of_table`, with room for what it writes.
        self.call(|context, error| unsafe { ipc_handle(context, address, &mut found, error) })?;
        IpcHandle::from_raw(&found).map(Some)
    }

    fn reset(&self, ordinal: i32) -> Result<()> {
        let Some(reset) = self.callbacks.reset else { return Ok(()) };
        // SAFETY: the contract of `of_table`.
        self.call(|context, error| unsafe { reset(context, ordinal, error) })
    }

    fn trim(&self, ordinal: i32, keep: usize) -> Result<()> {
        let Some(trim) = self.callbacks.trim else { return Ok(()) };
        // SAFETY: the contract of `of_table`.
        self.call(|context, error| unsafe { trim(context, ordinal, keep as i64, error) })
    }

    fn defer_cleanup(&self, begin: bool) -> Result<()> {
        let Some(defer_cleanup) = self.callbacks.defer_cleanup else { return Ok(()) };
        // SAFETY: the contract of `of_table`.
        unsafe { defer_cleanup(self.callbacks.context, begin.into()) }
        Ok(())
    }
}
