//! Memory that is shared between processes through handles of the driver.
//!
//! A process opens an allocation once, however often it is imported: a second opening may fail, and costs about a
//! millisecond. The reaper closes it after the last import, because closing waits for the device.

use core::ffi::{c_char, c_uint, c_void};
use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{CUdeviceptr, CUipcMemHandle, CUmemPoolPtrExportData, CUmemoryPool};
use rustix::io::{FdFlags, fcntl_setfd};

use super::context::{self, Apart, Current};
use super::driver::{Code, Driver};
use super::{info, lost, pointer};
use crate::device::DeviceType;
use crate::error::{Error, Result, refuse};
use crate::memory::{Counted, Sorted, Weak, collected};

/// A handle of the driver, as it is sent to other processes.
pub(crate) type Handle = [u8; 64];

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FILE_DESCRIPTOR: c_uint = 1;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_PEER_ACCESS: c_uint = 1;

/// An allocation that other processes can open.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The address of its first byte.
    pub(crate) base: usize,
    pub(crate) bytes: usize,
    pub(crate) ordinal: i32,
    pub(crate) how: How,
}

/// How other processes open the allocation.
#[derive(Debug)]
pub(crate) enum How {
    Allocation(Handle),
    /// The number identifies the pool in this process; the descriptor opens the pool in the other one.
    Pool {
        pool: u64,
        pointer: Handle,
        fd: OwnedFd,
    },
}

/// Prepares the allocation that an address lies in for other processes. Errors call the address by `name`.
///
/// # Errors
/// `DEVX_UNSUPPORTED`, with the reason, for memory that cannot be shared; `DEVX_DRIVER`.
pub(crate) fn share(address: *const c_void, name: &str) -> Result<Shared> {
    let driver = Driver::get()?;
    let found = pointer::ask(address)?;
    let place = found.place;
    if place.device.kind != DeviceType::CUDA {
        return refuse!(
            DEVX_UNSUPPORTED,
            "{name} {address:p} is memory of {}, which processes cannot share",
            place.device
        );
    }
    let ordinal = place.device.id;
    let _current = Current::enter(driver, context::primary(driver, ordinal)?)?;
    let _apart = Apart::enter(driver)?;
    // The range among the attributes of a pointer may be larger than the allocation: all that its pool has reserved.
    let (mut base, mut bytes): (CUdeviceptr, usize) = (0, 0);
    // SAFETY: a call of the driver with room for its results.
    let code = unsafe { (driver.mem_get_address_range)(&mut base, &mut bytes, address.addr() as CUdeviceptr) };
    driver.check("cuMemGetAddressRange", code)?;
    let how = if found.pool.is_null() {
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: a call of the driver with room for its result.
        let code = unsafe { (driver.ipc_get_mem_handle)(&mut handle, base) };
        prepared(driver, "cuIpcGetMemHandle", code, "it may be another process's")?;
        How::Allocation(handle.reserved.map(|byte| byte as u8))
    } else {
        share_of_pool(driver, found.pool, base)?
    };
    Ok(Shared { base: base as usize, bytes, ordinal, how })
}

/// Checks the result of a call that prepares memory for other processes. `why` is the text for memory that cannot be
/// shared, which a few codes tell; all others are failures of the driver.
fn prepared(driver: &Driver, call: &str, code: Code, why: &str) -> Result<()> {
    let is_refused = matches!(
        code,
        Code::INVALID_VALUE | Code::INVALID_CONTEXT | Code::INVALID_HANDLE | Code::NOT_PERMITTED | Code::NOT_SUPPORTED
    );
    driver.check(call, code).map_err(|error| if is_refused { unshareable(error, why) } else { error })
}

/// Checks the result of a call that opens a handle. The driver refuses handles of this very process; `own` is the text
/// for that.
pub(super) fn opened(driver: &Driver, call: &str, code: Code, own: &str) -> Result<()> {
    let is_own = code == Code::INVALID_CONTEXT;
    driver.check(call, code).map_err(|error| if is_own { unshareable(error, own) } else { error })
}

fn unshareable(error: Error, why: &str) -> Error {
    Error::driver(crate::abi::types::DEVX_UNSUPPORTED, error.driver_code(), format_args!("{}: {why}", error.message()))
}

fn share_of_pool(driver: &Driver, pool: CUmemoryPool, base: CUdeviceptr) -> Result<How> {
    let why = "the memory is of a pool that was not made to be shared (a manager's shareable pool is, a device's \
               default pool never is), or another process's";
    let mut fd = -1_i32;
    // SAFETY: the pool that the driver named, and room for a descriptor.
    let code = unsafe { (driver.mem_pool_export)((&raw mut fd).cast(), pool, FILE_DESCRIPTOR, 0) };
    prepared(driver, "cuMemPoolExportToShareableHandle", code, why)?;
    // SAFETY: a descriptor that the driver made for us.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // Whatever the driver set: programs that this one starts must not get the memory.
    fcntl_setfd(&fd, FdFlags::CLOEXEC).map_err(|errno| Error::system("fcntl", errno))?;
    let mut pointer = CUmemPoolPtrExportData { reserved: [0; 64] };
    // SAFETY: an allocation of that pool, and room for the result.
    let code = unsafe { (driver.mem_pool_export_pointer)(&mut pointer, base) };
    prepared(driver, "cuMemPoolExportPointer", code, why)?;
    Ok(How::Pool { pool: pool.addr() as u64, pointer: pointer.reserved, fd })
}

/// The number of the device with this UUID in this process.
///
/// # Errors
/// `DEVX_DEVICE` if there is no such device, with the UUIDs of all devices; `DEVX_DRIVER`.
pub(crate) fn ordinal_of(uuid: [u8; 16]) -> Result<i32> {
    static UUIDS: OnceLock<Vec<[u8; 16]>> = OnceLock::new();
    let uuids = match UUIDS.get() {
        Some(uuids) => uuids,
        None => {
            let count = info::device_count()? as i32;
            let found = collected((0..count).map(info::uuid))?;
            UUIDS.get_or_init(|| found)
        }
    };
    match uuids.iter().position(|known| *known == uuid) {
        Some(ordinal) => Ok(ordinal as i32),
        None => {
            refuse!(DEVX_DEVICE, "uuid is {}: this process sees no such device, but {}", Uuids(&[uuid]), Uuids(uuids))
        }
    }
}

/// UUIDs as texts show them.
struct Uuids<'a>(&'a [[u8; 16]]);

impl fmt::Display for Uuids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, uuid) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            uuid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

/// Identifies an allocation of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Allocation { ordinal: i32, handle: Handle },
    Pool { peer: u64, pool: u64, pointer: Handle },
}

struct Opened {
    address: usize,
    count: usize,
}

static OPEN: Mutex<Sorted<Key, Opened>> = Mutex::new(Sorted::new());

/// A counted reference to an allocation of another process. The reaper must give it up, after the work that uses the
/// memory.
#[derive(Debug)]
pub(crate) struct Opening {
    key: Key,
    ordinal: i32,
    address: usize,
    _pool: Option<Counted<ImportedPool>>,
}

impl Opening {
    /// Opens an allocation, or adds a reference if it is open already.
    ///
    /// # Errors
    /// `DEVX_DRIVER`; `DEVX_UNSUPPORTED` for an allocation of this very process.
    pub(crate) fn allocation(ordinal: i32, handle: Handle) -> Result<Self> {
        Self::open(Key::Allocation { ordinal, handle }, ordinal, None, |driver, address| {
            let ipc = CUipcMemHandle { reserved: handle.map(|byte| byte as c_char) };
            // SAFETY: a call of the driver with room for its result; the driver judges the handle.
            let code = unsafe { (driver.ipc_open_mem_handle)(address, ipc, LAZY_PEER_ACCESS) };
            opened(driver, "cuIpcOpenMemHandle", code, "the memory is this process's own")
        })
    }

    /// Like [`Opening::allocation`], but for an allocation from a pool of the peer.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub(crate) fn of_pool(ordinal: i32, peer: u64, pool: u64, fd: &OwnedFd, pointer: Handle) -> Result<Self> {
        let imported = ImportedPool::open(ordinal, peer, pool, fd)?;
        let handle = imported.handle;
        Self::open(Key::Pool { peer, pool, pointer }, ordinal, Some(imported), |driver, address| {
            let mut data = CUmemPoolPtrExportData { reserved: pointer };
            // SAFETY: as above, with a pool that is alive.
            let code = unsafe { (driver.mem_pool_import_pointer)(address, handle, &mut data) };
            driver.check("cuMemPoolImportPointer", code)
        })
    }

    fn open(
        key: Key,
        ordinal: i32,
        pool: Option<Counted<ImportedPool>>,
        open: impl FnOnce(&Driver, &mut CUdeviceptr) -> Result<()>,
    ) -> Result<Self> {
        let driver = Driver::get()?;
        let _current = Current::enter(driver, context::primary(driver, ordinal)?)?;
        let _apart = Apart::enter(driver)?;
        // Held while the driver opens and closes, so that it is never asked to open what it is about to close.
        let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get_mut(&key) {
            known.count += 1;
            return Ok(Self { key, ordinal, address: known.address, _pool: pool });
        }
        let room = all.room()?;
        let mut address: CUdeviceptr = 0;
        open(driver, &mut address)?;
        let address = address as usize;
        room.insert(key, Opened { address, count: 1 });
        Ok(Self { key, ordinal, address, _pool: pool })
    }

    /// The first byte of the allocation, in this process.
    pub(crate) fn address(&self) -> usize {
        self.address
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let Some(driver) = Driver::loaded() else { return };
        let _apart = Apart::enter(driver);
        let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = all.get_mut(&self.key) else { return };
        known.count -= 1;
        if known.count > 0 {
            return;
        }
        all.remove(&self.key);
        let current = context::primary(driver, self.ordinal).and_then(|context| Current::enter(driver, context));
        let address = self.address as CUdeviceptr;
        let code = match (current, self.key) {
            (Err(error), _) => Code(error.driver_code() as u32),
            // SAFETY: opened by this library, and closed once.
            (Ok(_current), Key::Allocation { .. }) => unsafe { (driver.ipc_close_mem_handle)(address) },
            // SAFETY: as above.
            (Ok(_current), Key::Pool { .. }) => unsafe { (driver.mem_free)(address) },
        };
        lost::check_returned(format_args!("shared memory {address:#x}"), code);
    }
}

/// A pool of another process.
#[derive(Debug)]
struct ImportedPool {
    handle: CUmemoryPool,
}

// SAFETY: the driver lets every thread use a pool.
unsafe impl Send for ImportedPool {}
// SAFETY: as above.
unsafe impl Sync for ImportedPool {}

/// Pools that are open, by the peer and its number for the pool.
static POOLS: Mutex<Sorted<(u64, u64), Weak<ImportedPool>>> = Mutex::new(Sorted::new());

impl ImportedPool {
    fn open(ordinal: i32, peer: u64, pool: u64, fd: &OwnedFd) -> Result<Counted<Self>> {
        let driver = Driver::get()?;
        let _current = Current::enter(driver, context::primary(driver, ordinal)?)?;
        let _apart = Apart::enter(driver)?;
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|known| !known.is_gone());
        if let Some(known) = pools.get(&(peer, pool)).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let (pools, room) = (pools.room()?, Counted::room()?);
        let mut handle = std::ptr::null_mut();
        let number = std::ptr::without_provenance_mut(fd.as_raw_fd() as usize);
        // SAFETY: a call of the driver with room for its result, and a descriptor that stays open meanwhile.
        let code = unsafe { (driver.mem_pool_import)(&mut handle, number, FILE_DESCRIPTOR, 0) };
        driver.check("cuMemPoolImportFromShareableHandle", code)?;
        let imported = room.fill(Self { handle });
        pools.insert((peer, pool), imported.downgrade());
        Ok(imported)
    }
}

impl Drop for ImportedPool {
    fn drop(&mut self) {
        let Some(driver) = Driver::loaded() else { return };
        let _apart = Apart::enter(driver);
        // SAFETY: the last use of the pool; all memory from it was given back before.
        let code = unsafe { (driver.mem_pool_destroy)(self.handle) };
        lost::check_returned("an imported memory pool", code);
    }
}
