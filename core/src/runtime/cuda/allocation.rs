//! Memory from the driver, with the owner that gives it back.
//!
//! Freeing waits for the device, except for memory of a pool. So the reaper frees device, pinned and managed memory, not the
//! thread that happens to release it last, unless there is no memory to hand it over.

use core::ffi::c_void;

use cudarc::driver::sys::{CUdevice, CUdeviceptr, CUmemAttach_flags_enum as Attach};

use super::closed::HeldStream;
use super::context::{self, Apart, Context, Current};
use super::driver::{Code, Driver};
use super::lost;
use super::pool::MemoryPool;
use super::reaper::{self, Later};
use crate::abi::types::DEVX_OUT_OF_MEMORY;
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result, refuse};
use crate::memory::{Owner, Vacant};
use crate::stream::Stream;
use crate::trace;

/// Memory: its address, its device, and its owner.
#[derive(Debug)]
pub struct Allocation {
    /// The address of the first byte; NULL if no bytes were asked for.
    pub address: *mut c_void,
    /// The device that the memory is on.
    pub device: Device,
    /// Frees the memory.
    pub owner: Owner,
}

// SAFETY: the address is only a number here, and the owner may be dropped on any thread.
unsafe impl Send for Allocation {}
// SAFETY: as above; nothing changes behind a shared reference.
unsafe impl Sync for Allocation {}

/// How a block is given back.
struct Block {
    driver: &'static Driver,
    context: Context,
    address: usize,
    how: How,
}

enum How {
    Device,
    Host,
    /// Existing host memory that was pinned.
    Registered,
    Pool(HeldStream),
}

impl Allocation {
    /// Allocates device memory.
    ///
    /// # Errors
    /// `DEVX_DEVICE`, `DEVX_OUT_OF_MEMORY`, `DEVX_DRIVER`.
    pub fn device(ordinal: i32, bytes: usize) -> Result<Self> {
        let device = Device { kind: DeviceType::CUDA, id: ordinal };
        Self::make(ordinal, device, bytes, How::Device, |driver, address| {
            // SAFETY: a call of the driver with room for its result.
            driver.check("cuMemAlloc", unsafe { (driver.mem_alloc)(address, bytes) })
        })
    }

    /// Allocates device memory from the device's default pool, ready for work on `stream`, and given back in the order
    /// of `stream`.
    ///
    /// # Errors
    /// Same as [`Allocation::device`]; `DEVX_INVALID_STREAM` for a stream of another device, from whose pool the
    /// memory would come; `DEVX_UNSUPPORTED` if the stream is being captured, because the memory would be the graph's.
    pub fn pool(ordinal: i32, stream: Stream, bytes: usize) -> Result<Self> {
        Self::in_order(ordinal, stream, bytes, |driver, address| {
            // SAFETY: a call of the driver with room for its result.
            driver.check("cuMemAllocAsync", unsafe { (driver.mem_alloc_async)(address, bytes, stream.raw()) })
        })
    }

    /// Like [`Allocation::pool`], but from `pool`.
    ///
    /// # Errors
    /// Same as [`Allocation::pool`].
    pub fn of_pool(pool: &MemoryPool, stream: Stream, bytes: usize) -> Result<Self> {
        Self::in_order(pool.ordinal(), stream, bytes, |driver, address| {
            // SAFETY: as above, with a pool that is alive.
            let code = unsafe { (driver.mem_alloc_from_pool)(address, bytes, pool.raw(), stream.raw()) };
            driver.check("cuMemAllocFromPoolAsync", code)
        })
    }

    fn in_order(
        ordinal: i32,
        stream: Stream,
        bytes: usize,
        allocate: impl Fn(&Driver, &mut CUdeviceptr) -> Result<()>,
    ) -> Result<Self> {
        let device = Device { kind: DeviceType::CUDA, id: ordinal };
        Self::make(ordinal, device, bytes, How::Pool(HeldStream::new(stream)?), |driver, address| {
            let mut of: CUdevice = 0;
            // SAFETY: a call of the driver with room for its result.
            driver.check("cuCtxGetDevice", unsafe { (driver.ctx_get_device)(&mut of) })?;
            if of != ordinal {
                return refuse!(DEVX_INVALID_STREAM, "stream is {:#x}: of cuda:{of}, not of {device}", stream.value());
            }
            stream.require_no_capture()?;
            allocate(driver, address)
        })
    }

    /// Allocates managed memory, which the host and all devices can use.
    ///
    /// # Errors
    /// Same as [`Allocation::device`].
    pub fn managed(ordinal: i32, bytes: usize) -> Result<Self> {
        let device = Device { kind: DeviceType::CUDA_MANAGED, id: 0 };
        Self::make(ordinal, device, bytes, How::Device, |driver, address| {
            let flags = Attach::CU_MEM_ATTACH_GLOBAL as u32;
            // SAFETY: a call of the driver with room for its result.
            driver.check("cuMemAllocManaged", unsafe { (driver.mem_alloc_managed)(address, bytes, flags) })
        })
    }

    /// Allocates pinned host memory, which every device can copy from and to without staging.
    ///
    /// # Errors
    /// Same as [`Allocation::device`].
    pub fn pinned(ordinal: i32, bytes: usize) -> Result<Self> {
        /// `CU_MEMHOSTALLOC_PORTABLE`: pinned for all contexts, not just for the current one.
        const PORTABLE: u32 = 1;
        Self::pinned_with(ordinal, bytes, PORTABLE)
    }

    /// Like [`Allocation::pinned`], but with flags of the driver (`CU_MEMHOSTALLOC_…`).
    ///
    /// # Errors
    /// Same as [`Allocation::device`].
    pub fn pinned_with(ordinal: i32, bytes: usize, flags: u32) -> Result<Self> {
        let device = Device { kind: DeviceType::CUDA_HOST, id: 0 };
        Self::make(ordinal, device, bytes, How::Host, |driver, address| {
            let mut host = std::ptr::null_mut();
            // SAFETY: a call of the driver with room for its result.
            driver.check("cuMemHostAlloc", unsafe { (driver.mem_host_alloc)(&mut host, bytes, flags) })?;
            *address = host.expose_provenance() as CUdeviceptr;
            Ok(())
        })
    }

    fn make(
        ordinal: i32,
        device: Device,
        bytes: usize,
        how: How,
        allocate: impl Fn(&Driver, &mut CUdeviceptr) -> Result<()>,
    ) -> Result<Self> {
        if bytes == 0 {
            context::require_device(ordinal)?;
            return Ok(Self { address: std::ptr::null_mut(), device, owner: Owner::none() });
        }
        let driver = Driver::get()?;
        let room = Vacant::new()?;
        let (context, stream) = match &how {
            How::Pool(held) => (held.stream().context()?, Some(held.stream())),
            _ => (context::primary(driver, ordinal)?, None),
        };
        let _current = Current::enter(driver, context)?;
        let _apart = Apart::enter(driver)?;
        let mut address: CUdeviceptr = 0;
        allocate(driver, &mut address).or_else(|error| {
            if error.status() != DEVX_OUT_OF_MEMORY {
                return Err(error);
            }
            // Memory that was released before may still be on its way to the driver.
            reaper::settle_for_memory();
            let of_them =
                |error: Error| error.within(format_args!("{bytes} bytes on {device} could not be allocated: "));
            allocate(driver, &mut address).map_err(of_them)
        })?;
        let block = Block { driver, context, address: address as usize, how };
        Ok(Self {
            address: std::ptr::with_exposed_provenance_mut(address as usize),
            device,
            owner: Owner::releasing(room, stream, move || block.release()),
        })
    }
}

/// Pins existing host memory until the owner is dropped. Unlike a free, unpinning is not left to the reaper, because the
/// memory may be gone right after the drop.
///
/// # Errors
/// `DEVX_DEVICE`, `DEVX_OUT_OF_MEMORY`, `DEVX_DRIVER` (pinned already, for example).
///
/// # Safety
/// `bytes` bytes at `address` are valid until the owner is dropped.
pub(crate) unsafe fn pin_host(ordinal: i32, address: *mut c_void, bytes: usize, flags: u32) -> Result<Owner> {
    let driver = Driver::get()?;
    let room = Vacant::new()?;
    let context = context::primary(driver, ordinal)?;
    let _current = Current::enter(driver, context)?;
    let _apart = Apart::enter(driver)?;
    // SAFETY: the caller's contract.
    let registered = driver.check("cuMemHostRegister", unsafe { (driver.mem_host_register)(address, bytes, flags) });
    registered.map_err(|error| error.within(format_args!("{bytes} bytes at {address:p} could not be pinned: ")))?;
    let block = Block { driver, context, address: address.expose_provenance(), how: How::Registered };
    Ok(Owner::releasing(room, None, move || block.free_here()))
}

impl Block {
    fn release(self) {
        match &self.how {
            // As part of a graph, the free would never give the memory back.
            How::Pool(held) if Driver::loaded().is_some() && held.stream().takes_no_release() => {
                match Later::new().ok().zip(Vacant::find()) {
                    Some((later, room)) => {
                        later.release_after_capture(held.stream(), Owner::releasing(room, None, move || self.free()));
                    }
                    None => lost::abandon(Owner::none()),
                }
            }
            How::Pool(_) => self.free(),
            // The reaper frees it and waits for no event first; the free itself waits for the device.
            How::Device | How::Host | How::Registered => match Later::new().ok().zip(Vacant::find()) {
                Some((later, room)) => later.release(Owner::releasing(room, None, move || self.free())),
                // Without memory to hand it over, this thread waits.
                None => self.free_here(),
            },
        }
    }

    /// Frees the memory on this thread, which may have to wait.
    fn free_here(self) {
        let _apart = Driver::loaded().map(Apart::enter);
        self.free();
    }

    fn free(self) {
        if Driver::loaded().is_none() {
            trace::say(format_args!("a forked process leaves {:#x} to its parent", self.address));
            return;
        }
        let driver = self.driver;
        let _current = match Current::enter(driver, self.context) {
            Ok(current) => current,
            Err(error) => {
                return lost::check_returned(
                    format_args!("memory {:#x}", self.address),
                    Code(error.driver_code() as u32),
                );
            }
        };
        let code = match &self.how {
            // SAFETY: the block was allocated by the driver and is given back once.
            How::Device => unsafe { (driver.mem_free)(self.address as CUdeviceptr) },
            // SAFETY: as above.
            How::Host => unsafe { (driver.mem_free_host)(std::ptr::with_exposed_provenance_mut(self.address)) },
            // SAFETY: pinned by this library, and unpinned once.
            How::Registered => unsafe {
                (driver.mem_host_unregister)(std::ptr::with_exposed_provenance_mut(self.address))
            },
            // SAFETY: as above; the stream is held. Whoever destroys it all the same must wait for its allocations.
            How::Pool(held) => unsafe { (driver.mem_free_async)(self.address as CUdeviceptr, held.stream().raw()) },
        };
        lost::check_returned(format_args!("memory {:#x}", self.address), code);
    }
}
