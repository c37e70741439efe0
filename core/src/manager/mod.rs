//! Who allocates: managers of device, pinned and managed memory that can stand in for each other.
//!
//! The interface is that of Numba's external memory management plugin (version 1), with streams added: what it calls
//! `memalloc`, `memhostalloc` and `mempin` are [`Manager::allocate`] and [`Manager::pin`], its finalizers are the [`Owner`]s
//! of the memory. A manager has state for each device; its methods may be called from any thread, in any order, before
//! [`Manager::initialize`] too. What it gives stays valid when the manager itself is gone.

mod books;
mod driver;
mod limited;
mod own;
mod pool;
mod records;
mod table;

pub use books::Statistics;
pub use driver::Driver;
pub use limited::Limited;
pub use own::Callbacks;
pub use pool::{Pool, PoolOptions};
pub use records::limit_from_raw;

use core::ffi::c_void;
use std::fmt;
use std::ops::Deref;

use crate::device::{Device, DeviceType};
use crate::dtype::DType;
use crate::error::{Error, Result, refuse};
use crate::layout;
use crate::memory::{Owner, Slab, TailSize, Vacant, held_by_bindings};
use crate::order::Ready;
use crate::runtime::cuda::ipc::{self, How};
use crate::runtime::cuda::{Allocation, info};
use crate::stream::{RawStream, Stream};
use crate::tensor::{Flags, Tensor, TensorDesc};
use crate::transfer::{self, Memory};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Kind of memory: CUDA device memory, pinned host memory (`CUDA_HOST`), managed memory, or plain host memory.
    pub kind: DeviceType,
    /// The device that it is for.
    pub ordinal: i32,
    /// How much; none is fine.
    pub bytes: usize,
    /// The stream in whose order device memory is given and taken back, if the manager can do that; without one in an order
    /// of the manager's own ([`Allocated::ready`]).
    pub stream: Option<Stream>,
    /// Of pinned memory.
    pub host: HostFlags,
}

impl Request {
    /// Device memory of no particular stream.
    pub fn device(ordinal: i32, bytes: usize) -> Self {
        Self { kind: DeviceType::CUDA, ordinal, bytes, stream: None, host: HostFlags::default() }
    }

    /// Device memory in the order of a stream.
    pub fn on(stream: Stream, bytes: usize) -> Self {
        Self { stream: Some(stream), ..Self::device(stream.ordinal(), bytes) }
    }

    /// Memory of another kind.
    pub fn of(kind: DeviceType, ordinal: i32, bytes: usize) -> Self {
        Self { kind, ..Self::device(ordinal, bytes) }
    }

    /// As [`Request::of`], by what a caller calls the device: the CPU is 0, or -1 as Arrow writes it. For any other kind it is
    /// the number of a device, which the manager looks for.
    ///
    /// # Errors
    /// `DEVX_DEVICE` for a CPU that there is not.
    pub fn named(kind: DeviceType, device_id: i32, bytes: usize) -> Result<Self> {
        let is_cpu = kind == DeviceType::CPU;
        let ordinal = if is_cpu { Device::new(kind, device_id.into())?.id } else { device_id };
        Ok(Self::of(kind, ordinal, bytes))
    }

    /// Whether a manager gave what was asked for: one kind of host memory does for another, and what both can reach for a
    /// device's.
    ///
    /// # Errors
    /// `DEVX_CALLBACK`.
    fn check(&self, address: *mut c_void, given: Device, bytes: usize) -> Result<()> {
        if address.is_null() && self.bytes > 0 {
            return refuse!(DEVX_CALLBACK, "allocate: the manager gave no address for {} bytes", self.bytes);
        }
        let asked = Device { kind: self.kind, id: self.ordinal };
        let fits = match asked.is_host() {
            true => given.is_host(),
            false => given == asked || (given.is_host() && given.kind != DeviceType::CPU),
        };
        if !fits {
            return refuse!(DEVX_CALLBACK, "allocate: the manager gave memory of {given} for {asked}");
        }
        if bytes < self.bytes {
            return refuse!(DEVX_CALLBACK, "allocate: the manager gave {bytes} bytes for {}", self.bytes);
        }
        Ok(())
    }
}

/// How host memory is pinned (`memhostalloc`, `mempin`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostFlags {
    /// Devices can use it.
    pub mapped: bool,
    /// For all contexts, not only for the one of its device.
    pub portable: bool,
    /// Fast to write for the host and slow to read.
    pub write_combined: bool,
}

impl HostFlags {
    /// As the driver takes them (`CU_MEMHOSTALLOC_…`; those of `CU_MEMHOSTREGISTER_…` are the same but for the last).
    fn bits(self) -> u32 {
        u32::from(self.portable) | u32::from(self.mapped) << 1 | u32::from(self.write_combined) << 2
    }

    /// From the bits of the C records (`DEVX_HOST_…`).
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for others.
    pub fn from_bits(bits: u32) -> Result<Self> {
        if bits > 7 {
            return refuse!(DEVX_INVALID_ARGUMENT, "host_flags is {bits:#x}: the flags are 1, 2 and 4");
        }
        Ok(Self { portable: bits & 1 != 0, mapped: bits & 2 != 0, write_combined: bits & 4 != 0 })
    }
}

/// Memory that a manager gave: where it is, who gives it back, and when it may be touched.
#[derive(Debug)]
pub struct Allocated {
    /// Address of the first byte; NULL if none were asked for.
    pub address: *mut c_void,
    /// Where it is.
    pub device: Device,
    /// How much was asked for.
    pub bytes: usize,
    /// Gives it back, once, on whatever thread it is dropped. If that only has another thread do so, the stream of the request
    /// is held until then ([`Hold`](crate::runtime::cuda::Hold)).
    pub owner: Owner,
    /// When it may be touched.
    pub ready: Ready,
}

// SAFETY: the address is a number here, and the owner may be dropped on any thread.
unsafe impl Send for Allocated {}
// SAFETY: as above; nothing changes behind a shared reference.
unsafe impl Sync for Allocated {}

impl Allocated {
    /// The stream that a number stands for, for work with the memory; see [`Tensor::stream`].
    ///
    /// # Errors
    /// As [`Tensor::stream`].
    pub fn stream(&self, value: RawStream) -> Result<Stream> {
        let device = self.device.of_stream(value, || self.address.cast_const());
        device.stream_with(device, value)
    }

    /// Blocks the host until anybody may touch the memory, on whatever stream.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn synchronize(&self) -> Result<()> {
        self.ready.synchronize()
    }
}

/// How much memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that can still be had.
    pub free: usize,
    /// Bytes in all.
    pub total: usize,
}

/// By what another process opens the allocation that an address lies in (`cuIpcOpenMemHandle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpcHandle {
    /// The driver's handle.
    pub handle: [u8; 64],
    /// The device that the allocation is on.
    pub ordinal: i32,
    /// Where the address is, in bytes from the beginning of the allocation, which is what the handle opens.
    pub offset: usize,
    /// Bytes of the allocation.
    pub bytes: usize,
}

/// Allocates memory for others, and decides when it is really given back. Only [`Manager::allocate`] and
/// [`Manager::statistics`] have to be written: the others are what a manager does that keeps nothing for a device.
///
/// ```
/// use devexchange_core::manager::{Allocated, Driver, Manager, Request, Statistics};
/// use devexchange_core::{Device, DType, Result, Tensor};
///
/// /// Says what it is asked for, and lets another one do it.
/// #[derive(Debug)]
/// struct Told(Driver);
///
/// // SAFETY: what the other manager gives is handed on as it is.
/// unsafe impl Manager for Told {
///     fn allocate(&self, request: &Request) -> Result<Allocated> {
///         println!("{} bytes of {}", request.bytes, request.kind);
///         self.0.allocate(request)
///     }
///
///     fn statistics(&self) -> Statistics {
///         self.0.statistics()
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let manager = Told(Driver::host_only()?);
/// let tensor = Tensor::allocate_with(&manager, Device::CPU, DType::FLOAT32, &[2, 3], None)?;
/// assert_eq!(manager.statistics().bytes, 24);
/// drop(tensor); // which gives it back
/// assert_eq!(manager.statistics().bytes, 0);
/// # Ok(())
/// # }
/// ```
///
/// # Safety
/// What [`Manager::allocate`] gives is what it says: so many bytes at that address of that device, initialised if the host
/// can read them, nobody else's, and valid until the owner is dropped.
pub unsafe trait Manager: Send + Sync + fmt::Debug {
    /// Prepares for allocations on a device. May be called any number of times; what was allocated before stays.
    ///
    /// # Errors
    /// What keeps the manager from working there.
    fn initialize(&self, _ordinal: i32) -> Result<()> {
        Ok(())
    }

    /// Memory of whatever content: as many bytes as were asked for, or more, of that device or of the host's that both can
    /// reach. What is freed while work is queued on it, as [`Tensor::used_on`] says, is given back after that work.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, `DEVX_UNSUPPORTED` for a kind that this manager does not have, `DEVX_DEVICE`, `DEVX_DRIVER`;
    /// `DEVX_PANIC` from one that asks another one, which panicked.
    fn allocate(&self, request: &Request) -> Result<Allocated>;

    /// Pins host memory that is there already, for as long as the owner lives. The memory outlives it.
    ///
    /// # Errors
    /// As [`Manager::allocate`]; `DEVX_UNSUPPORTED` from a manager that pins none.
    ///
    /// # Safety
    /// `bytes` bytes at `address` are valid until the owner is dropped.
    unsafe fn pin(&self, _ordinal: i32, _address: *mut c_void, _bytes: usize, _flags: HostFlags) -> Result<Owner> {
        lacks("pin")
    }

    /// How much memory there is for this manager.
    ///
    /// # Errors
    /// `DEVX_UNSUPPORTED` if it cannot say.
    fn memory_info(&self, _ordinal: i32) -> Result<MemoryInfo> {
        lacks("memory_info")
    }

    /// A handle for the allocation that an address of this manager's lies in. The memory must live until the other process
    /// has closed the handle; [`crate::ipc`] sees to that by itself, and can share memory of pools.
    ///
    /// # Errors
    /// `DEVX_UNSUPPORTED` for memory that has no such handle: of pools, pinned, managed, or plain host memory.
    fn ipc_handle(&self, address: *const c_void) -> Result<IpcHandle> {
        driver_ipc_handle(address)
    }

    /// Gives all memory that goes with a device back, also what is still in use: its owners have nothing to do any more. Plain
    /// host memory goes with none, and stays. May be called before [`Manager::initialize`]. This comes before a reset of the
    /// device itself (`cudaDeviceReset`), which takes its memory: an owner that is dropped after that gives back what the
    /// driver does not know any more, and counts as lost ([`releases_lost`](crate::runtime::releases_lost)), or what
    /// it has given to somebody else since. A manager that does nothing here leaves its memory with the owners, and they are
    /// to be dropped before such a reset.
    ///
    /// # Errors
    /// None that leave anything behind.
    ///
    /// # Safety
    /// Nobody uses memory for that device of this manager, or of the one that it allocates from, any more: neither the host
    /// nor queued work. Nor does another thread give it up meanwhile, or that may reach the driver after this returns.
    unsafe fn reset(&self, _ordinal: i32) -> Result<()> {
        Ok(())
    }

    /// From now on, memory that is given up is kept until [`Manager::resume_cleanup`] was called as often: what is expensive
    /// about giving it back does not happen meanwhile. Memory in the order of a stream is given back to its pool at once,
    /// and host memory that was pinned is unpinned at once: it is its owner's again.
    fn defer_cleanup(&self) {}

    /// See [`Manager::defer_cleanup`].
    fn resume_cleanup(&self) {}

    /// Gives unused memory back to the driver, except for `keep` bytes.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    fn trim(&self, _ordinal: i32, _keep: usize) -> Result<()> {
        Ok(())
    }

    /// What was allocated and given back.
    fn statistics(&self) -> Statistics;

    /// How many managers stand one over the other here, each asking the next: 1 for one that asks no other.
    fn levels(&self) -> usize {
        1
    }
}

/// A manager that several share, as bindings hold one.
#[derive(Clone, Debug)]
pub struct Shared(Slab<Box<dyn Manager>>);

impl Shared {
    /// Shares a manager.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn new(manager: impl Manager + 'static) -> Result<Self> {
        Self::with(|| Ok(manager))
    }

    /// Shares a manager that is made when nothing else can fail.
    fn with<M: Manager + 'static>(make: impl FnOnce() -> Result<M>) -> Result<Self> {
        let (slab, room) = (Slab::room(TailSize::default())?, Vacant::new()?);
        let boxed: Box<dyn Manager> = room.fill(make()?);
        Ok(Self(slab.fill(boxed)))
    }

    /// As [`Manager::allocate`], for whoever is told an address and no order: what no stream was named for may be touched at
    /// once, for which the host waits if it has to.
    ///
    /// # Errors
    /// As [`Manager::allocate`].
    pub fn allocate_ready(&self, request: &Request) -> Result<Allocated> {
        let allocated = self.allocate(request)?;
        if request.stream.is_none() {
            allocated.synchronize()?;
        }
        Ok(allocated)
    }
}

held_by_bindings!(Shared, "manager");

impl Deref for Shared {
    type Target = dyn Manager;

    fn deref(&self) -> &Self::Target {
        &**self.0.header()
    }
}

/// Cleanup is deferred as long as this lives.
#[must_use = "cleanup is deferred as long as this lives"]
#[derive(Debug)]
pub struct Deferred<'a>(&'a dyn Manager);

impl<'a> Deferred<'a> {
    /// Begins.
    pub fn new(manager: &'a dyn Manager) -> Self {
        manager.defer_cleanup();
        Self(manager)
    }
}

impl Drop for Deferred<'_> {
    fn drop(&mut self) {
        self.0.resume_cleanup();
    }
}

impl Tensor {
    /// As [`Tensor::allocate`], over memory of a manager. Pinned and managed memory is asked for the device of the stream.
    ///
    /// # Errors
    /// As [`Manager::allocate`]; `DEVX_INVALID_SHAPE`; `DEVX_CALLBACK` if the manager gives less than was asked for, or memory
    /// of another device.
    pub fn allocate_with(
        manager: &dyn Manager,
        device: Device,
        dtype: DType,
        shape: &[i64],
        stream: Option<Stream>,
    ) -> Result<Self> {
        let bytes = layout::check(dtype, false, shape, None)?.bytes;
        let ordinal = transfer::made_for(device, stream)?;
        let request = Request { stream, ..Request::of(device.kind, ordinal, bytes) };
        let Allocated { address: data, device, bytes, owner, ready } = manager.allocate(&request)?;
        request.check(data, device, bytes)?;
        let desc = TensorDesc { data, device, dtype, shape, strides: None, byte_offset: 0, flags: Flags::default() };
        // SAFETY: the memory has the bytes of the shape, and lives in the owner.
        let mut tensor = unsafe { Self::from_raw_parts(&desc, owner) }
            .map_err(|refused| Error::from(refused).within("the memory of the manager: "))?;
        tensor.set_ready(ready);
        Ok(tensor)
    }
}

/// Memory of the library's own allocator, as a manager gives it.
fn allocated(device: Device, bytes: usize, memory: Memory) -> Allocated {
    let Memory { address, owner, ready } = memory;
    // No bytes of the host have an address that means nothing.
    let address = if bytes == 0 { std::ptr::null_mut() } else { address };
    Allocated { address, device, bytes, owner, ready }
}

/// Pinned host memory, as every manager gives it.
fn pinned(ordinal: i32, bytes: usize, flags: HostFlags) -> Result<Allocated> {
    let Allocation { address, device, owner } = Allocation::pinned_with(ordinal, bytes, flags.bits())?;
    Ok(Allocated { address, device, bytes, owner, ready: Ready::Now })
}

fn driver_info(ordinal: i32) -> Result<MemoryInfo> {
    let (free, total) = info::memory_info(ordinal)?;
    Ok(MemoryInfo { free, total })
}

/// What the driver says of an allocation of its own.
///
/// # Errors
/// As [`Manager::ipc_handle`].
pub fn driver_ipc_handle(address: *const c_void) -> Result<IpcHandle> {
    let shared = ipc::share(address, "address")?;
    match shared.how {
        How::Allocation(handle) => {
            let offset = address.addr() - shared.base;
            Ok(IpcHandle { handle, ordinal: shared.ordinal, offset, bytes: shared.bytes })
        }
        How::Pool { .. } => refuse!(
            DEVX_UNSUPPORTED,
            "address {address:p} is memory of a pool, which has no handle of its own: offer it by a server (ipc)"
        ),
    }
}

/// What a manager says that does not have one of the functions which there need not be.
fn lacks<T>(name: &str) -> Result<T> {
    refuse!(DEVX_UNSUPPORTED, "the manager has no {name}")
}

fn no_such_kind<T>(manager: &str, kind: DeviceType) -> Result<T> {
    refuse!(DEVX_UNSUPPORTED, "device_type is {kind}: the {manager} manager does not have it")
}
