//! A manager that a program in another language fills in: a table of callbacks.

use core::ffi::c_void;
use std::fmt;

use super::books::{Books, Statistics};
use super::{Allocated, HostFlags, IpcHandle, Manager, MemoryInfo, Request};
use crate::abi::types::{
    DEVX_MANAGER_VERSION, DEVX_OK, DevxError, DevxIpcHandle, DevxManagerTable, DevxMemory, DevxMemoryInfo,
    DevxMemoryRequest, DevxOwner, DevxStatus,
};
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result, Returned, refuse};
use crate::memory::{InOrder, Owner, Slab, TailSize, Vacant};
use crate::order::{NO_SYNC, Ready};
use crate::runtime::cuda::{HeldStream, Stream};
use crate::text;

/// What the manager gave, the stream of the request, and what keeps the manager's context alive: given up in this order.
type Kept = (Owner, Option<HeldStream>, Slab<Owner>);

/// Allocates through somebody else's callbacks, which may come from any thread.
pub struct Table {
    table: DevxManagerTable,
    books: Books,
    /// Held by all memory, too: it may need the context.
    release: Slab<Owner>,
}

// SAFETY: by the table's contract its callbacks may be called from any thread.
unsafe impl Send for Table {}
// SAFETY: as above, from several at once.
unsafe impl Sync for Table {}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("context", &self.table.context).finish_non_exhaustive()
    }
}

impl Table {
    /// Takes a table over: its `release` is called once, when the manager and all memory of it are given up. On failure it
    /// is the caller's as before.
    ///
    /// # Errors
    /// `DEVX_VERSION`, `DEVX_INVALID_ARGUMENT` if `reserved` is not zero, `DEVX_NULL_ARGUMENT` if `allocate` is missing; all
    /// other callbacks may be.
    ///
    /// # Safety
    /// The callbacks may be called from any thread, several at once, until `release` was. What `allocate` gives is as
    /// [`Manager`] asks for.
    pub unsafe fn new(table: &DevxManagerTable) -> Result<Self> {
        if table.version != DEVX_MANAGER_VERSION {
            return refuse!(DEVX_VERSION, "version is {}: this library reads {DEVX_MANAGER_VERSION}", table.version);
        }
        if table.reserved != 0 {
            return refuse!(DEVX_INVALID_ARGUMENT, "reserved is {}: it must be 0", table.reserved);
        }
        if table.allocate.is_none() {
            return refuse!(DEVX_NULL_ARGUMENT, "allocate is NULL");
        }
        let books = Books::new()?;
        let owner = DevxOwner { context: table.context, release: table.release };
        // SAFETY: the caller's contract.
        let release = Slab::new(unsafe { Owner::from_raw(owner) }, TailSize::default()).map_err(|refused| {
            refused.returned.into_raw();
            refused.error
        })?;
        Ok(Self { table: *table, books, release })
    }

    /// An owner of the manager's, which may give memory back on the stream.
    fn kept(&self, room: Vacant<Kept>, owner: Owner, stream: Option<HeldStream>) -> Owner {
        Owner::in_room(room, (owner, stream, self.release.clone()))
    }

    /// Calls a callback that may be missing, and turns what it says into an error.
    fn call(&self, name: &str, callback: impl FnOnce(*mut c_void, *mut DevxError) -> Option<DevxStatus>) -> Result<()> {
        // SAFETY: an all-zero record has an empty text.
        let mut record = unsafe { std::mem::zeroed::<DevxError>() };
        match callback(self.table.context, &mut record) {
            None => super::lacks(name),
            Some(DEVX_OK) => Ok(()),
            Some(status) => {
                let said = text::read(&record.message);
                Err(if said.0.is_empty() {
                    Error::driver(status, record.driver_code, format_args!("{}", Returned(name, status)))
                } else {
                    Error::driver(status, record.driver_code, format_args!("{name}: {said}"))
                })
            }
        }
    }
}

// SAFETY: by the contract of `new` the memory is what the callback says.
unsafe impl Manager for Table {
    fn initialize(&self, ordinal: i32) -> Result<()> {
        if self.table.initialize.is_none() {
            return Ok(());
        }
        // SAFETY: the contract of `new`.
        self.call("initialize", |context, error| Some(unsafe { self.table.initialize?(context, ordinal, error) }))
    }

    fn allocate(&self, request: &Request) -> Result<Allocated> {
        let Ok(bytes) = i64::try_from(request.bytes) else { return Err(Error::no_memory(request.bytes)) };
        // Other memory is in the order of none, whoever manages it: it is ready at once.
        let stream = request.stream.filter(|_| request.kind == DeviceType::CUDA);
        // The number that the manager is given does not name a device.
        if let Some(stream) = stream.filter(|stream| stream.is_default() && stream.ordinal() != request.ordinal) {
            let (value, of, ordinal) = (stream.value(), stream.ordinal(), request.ordinal);
            return refuse!(DEVX_INVALID_STREAM, "stream is {value:#x}: of cuda:{of}, not of cuda:{ordinal}");
        }
        let asked = DevxMemoryRequest {
            device_type: request.kind.0,
            device_id: request.ordinal,
            bytes,
            // Which the manager may also give the memory back on, on whatever thread that is.
            stream: stream.map_or(NO_SYNC, Stream::value_anywhere),
            host_flags: request.host.bits(),
            reserved: 0,
        };
        self.books.enter(request.ordinal, request.bytes, || {
            let room = Vacant::new()?;
            let held = stream.map(HeldStream::new).transpose()?;
            let ready = stream.map_or(Ok(Ready::Now), Ready::queued)?;
            // SAFETY: an all-zero record has no address and no owner.
            let mut memory = unsafe { std::mem::zeroed::<DevxMemory>() };
            self.call("allocate", |context, error| {
                // SAFETY: the contract of `new`, with room for what it writes.
                Some(unsafe { self.table.allocate?(context, &asked, &mut memory, error) })
            })?;
            // SAFETY: given to us now, to be released once.
            let owner = self.kept(room, unsafe { Owner::from_raw(memory.owner) }, held);
            let owner = owner.given_back(stream.map(InOrder::Of));
            let given = Device { kind: DeviceType(memory.device_type), id: memory.device_id };
            request.check(memory.address, given, request.bytes)?;
            let device = Device::new(given.kind, given.id.into()).map_err(|error| error.within("allocate: "))?;
            Ok(Allocated { address: memory.address, device, bytes: request.bytes, owner, ready })
        })
    }

    unsafe fn pin(&self, ordinal: i32, address: *mut c_void, bytes: usize, flags: HostFlags) -> Result<Owner> {
        let Ok(bytes) = i64::try_from(bytes) else {
            return refuse!(DEVX_OUT_OF_RANGE, "bytes is {bytes}: there is no such memory");
        };
        let room = Vacant::new()?;
        let mut owner = DevxOwner { context: std::ptr::null_mut(), release: None };
        self.call("pin", |context, error| {
            // SAFETY: the contract of `new`, and the caller's.
            Some(unsafe { self.table.pin?(context, ordinal, address, bytes, flags.bits(), &mut owner, error) })
        })?;
        // SAFETY: given to us now, to be released once.
        Ok(self.kept(room, unsafe { Owner::from_raw(owner) }, None))
    }

    fn memory_info(&self, ordinal: i32) -> Result<MemoryInfo> {
        let mut info = DevxMemoryInfo { free_bytes: 0, total_bytes: 0 };
        self.call("memory_info", |context, error| {
            // SAFETY: the contract of `new`, with room for what it writes.
            Some(unsafe { self.table.memory_info?(context, ordinal, &mut info, error) })
        })?;
        match (usize::try_from(info.free_bytes), usize::try_from(info.total_bytes)) {
            (Ok(free), Ok(total)) => Ok(MemoryInfo { free, total }),
            _ => refuse!(
                DEVX_CALLBACK,
                "memory_info: the manager says free_bytes is {} and total_bytes is {}",
                info.free_bytes,
                info.total_bytes
            ),
        }
    }

    #[expect(clippy::not_unsafe_ptr_arg_deref, reason = "the callback is told the address, nobody reads there")]
    fn ipc_handle(&self, address: *const c_void) -> Result<IpcHandle> {
        if self.table.get_ipc_handle.is_none() {
            return super::driver_ipc_handle(address);
        }
        let mut found = DevxIpcHandle { handle: [0; 64], offset: 0, bytes: 0, device_id: 0, reserved: 0 };
        self.call("get_ipc_handle", |context, error| {
            // SAFETY: the contract of `new`, with room for what it writes.
            Some(unsafe { self.table.get_ipc_handle?(context, address, &mut found, error) })
        })?;
        match (usize::try_from(found.offset), usize::try_from(found.bytes)) {
            (Ok(offset), Ok(bytes)) if offset <= bytes => {
                Ok(IpcHandle { handle: found.handle, ordinal: found.device_id, offset, bytes })
            }
            _ => refuse!(
                DEVX_CALLBACK,
                "get_ipc_handle: the manager says offset {} of {} bytes",
                found.offset,
                found.bytes
            ),
        }
    }

    unsafe fn reset(&self, ordinal: i32) -> Result<()> {
        self.books.reset(ordinal);
        if self.table.reset.is_none() {
            return Ok(());
        }
        // SAFETY: the contract of `new`.
        self.call("reset", |context, error| Some(unsafe { self.table.reset?(context, ordinal, error) }))
    }

    fn defer_cleanup(&self) {
        self.books.defer();
        if let Some(defer_cleanup) = self.table.defer_cleanup {
            // SAFETY: the contract of `new`.
            unsafe { defer_cleanup(self.table.context, 1) }
        }
    }

    fn resume_cleanup(&self) {
        self.books.resume();
        if let Some(defer_cleanup) = self.table.defer_cleanup {
            // SAFETY: the contract of `new`.
            unsafe { defer_cleanup(self.table.context, 0) }
        }
    }

    fn trim(&self, ordinal: i32, keep: usize) -> Result<()> {
        self.books.flush();
        if self.table.trim.is_none() {
            return Ok(());
        }
        let keep = i64::try_from(keep).unwrap_or(i64::MAX);
        // SAFETY: the contract of `new`.
        self.call("trim", |context, error| Some(unsafe { self.table.trim?(context, ordinal, keep, error) }))
    }

    fn statistics(&self) -> Statistics {
        self.books.statistics()
    }
}
