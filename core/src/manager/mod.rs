//! Managers of device, pinned and managed memory, which can stand in for each other.
//!
//! The interface is that of Numba's external memory management plugin (version 1), with streams added. Its `memalloc`,
//! `memhostalloc` and `mempin` are [`Manager::allocate`] and [`Manager::pin`] here; its finalizers are the [`Owner`]s of the
//! memory. A manager has state for each device. Its methods may be called from any thread, in any order, also before
//! [`Manager::initialize`]. The memory stays valid when the manager itself is gone.

mod books;
mod depth;
mod driver;
mod limited;
mod own;
mod pointers;
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
use std::panic::{RefUnwindSafe, UnwindSafe};

use self::depth::Depth;
use crate::device::{Device, DeviceType};
use crate::dtype::DType;
use crate::error::{Error, Result, refuse};
use crate::layout;
use crate::memory::{Owner, Shielded, Slab, TailSize, Vacant, held_by_bindings};
use crate::order::Ready;
use crate::runtime::cuda::ipc::{self, How};
use crate::runtime::cuda::{Allocation, info};
use crate::stream::{RawStream, Stream};
use crate::tensor::{Flags, Tensor, TensorDesc};
use crate::trace;
use crate::transfer::{self, Memory};

/// A request for memory.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Kind of memory: CUDA device memory, pinned host memory (`CUDA_HOST`), managed memory, or plain host memory.
    pub kind: DeviceType,
    /// The device that the memory is for.
    pub ordinal: i32,
    /// The number of bytes, which may be 0.
    pub bytes: usize,
    /// The stream in whose order device memory is given and taken back, if the manager can do that. Without a stream, the
    /// manager chooses the order ([`Allocated::ready`]).
    pub stream: Option<Stream>,
    /// How pinned memory is pinned.
    pub host: HostFlags,
}

impl Request {
    /// Requests device memory without a stream.
    pub fn device(ordinal: i32, bytes: usize) -> Self {
        Self { kind: DeviceType::CUDA, ordinal, bytes, stream: None, host: HostFlags::default() }
    }

    /// Requests device memory in the order of a stream.
    pub fn on(stream: Stream, bytes: usize) -> Self {
        Self { stream: Some(stream), ..Self::device(stream.ordinal(), bytes) }
    }

    /// Requests memory of any kind, without a stream.
    pub fn of(kind: DeviceType, ordinal: i32, bytes: usize) -> Self {
        Self { kind, ..Self::device(ordinal, bytes) }
    }

    /// Like [`Request::of`], but takes the device id as a caller writes it: 0 for the CPU, or −1 as in Arrow. For any other
    /// kind it is the number of a device; the manager finds out whether that exists.
    ///
    /// # Errors
    /// `DEVX_DEVICE` for any other number of the CPU.
    pub fn named(kind: DeviceType, device_id: i32, bytes: usize) -> Result<Self> {
        let is_cpu = kind == DeviceType::CPU;
        let ordinal = if is_cpu { Device::new(kind, device_id.into())?.id } else { device_id };
        Ok(Self::of(kind, ordinal, bytes))
    }

    /// Checks that a manager gave what was asked for: any host memory will do for host memory, and pinned or managed memory
    /// also for device memory.
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
    /// Devices can use the memory.
    pub mapped: bool,
    /// The memory is pinned for all contexts, not only for the one of its device.
    pub portable: bool,
    /// The memory is fast to write for the host, and slow to read.
    pub write_combined: bool,
}

impl HostFlags {
    /// The flags as the driver takes them (`CU_MEMHOSTALLOC_…`; all but the last are the same in `CU_MEMHOSTREGISTER_…`).
    fn bits(self) -> u32 {
        u32::from(self.portable) | u32::from(self.mapped) << 1 | u32::from(self.write_combined) << 2
    }

    /// Reads the bits of the C records (`DEVX_HOST_…`).
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for other bits.
    pub fn from_bits(bits: u32) -> Result<Self> {
        if bits > 7 {
            return refuse!(DEVX_INVALID_ARGUMENT, "host_flags is {bits:#x}: the flags are 1, 2 and 4");
        }
        Ok(Self { portable: bits & 1 != 0, mapped: bits & 2 != 0, write_combined: bits & 4 != 0 })
    }
}

/// Memory that a manager gave: where it is, its owner, and when it may be touched.
#[derive(Debug)]
pub struct Allocated {
    /// The address of the first byte; NULL if no bytes were asked for.
    pub address: *mut c_void,
    /// The device that the memory is on.
    pub device: Device,
    /// The number of bytes at the address: at least as many as were asked for. What counts and limits memory ([`Statistics`],
    /// [`Limited`]) counts the bytes that were asked for.
    pub bytes: usize,
    /// Gives the memory back once, on the thread that drops the owner. If the drop only makes another thread do so, the
    /// stream of the request is held until then ([`Hold`](crate::runtime::cuda::Hold)).
    pub owner: Owner,
    /// When the memory may be touched.
    pub ready: Ready,
}

// SAFETY: the address is only a number here, and the owner may be dropped on any thread.
unsafe impl Send for Allocated {}
// SAFETY: as above; nothing changes behind a shared reference.
unsafe impl Sync for Allocated {}

impl Allocated {
    /// The stream that `value` names for work with this memory; see [`Tensor::stream`].
    ///
    /// # Errors
    /// Same as [`Tensor::stream`].
    pub fn stream(&self, value: RawStream) -> Result<Stream> {
        let device = self.device.of_stream(value, || self.address.cast_const());
        device.stream_with(device, value)
    }

    /// Blocks the host until the memory may be touched by the host and on any stream.
    ///
    /// # Errors
    /// Same as [`Stream::synchronize`].
    pub fn synchronize(&self) -> Result<()> {
        self.ready.synchronize()
    }
}

/// The amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that can still be allocated.
    pub free: usize,
    /// Bytes in total.
    pub total: usize,
}

/// The handle by which another process opens the allocation that an address lies in (`cuIpcOpenMemHandle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpcHandle {
    /// The driver's handle.
    pub handle: [u8; 64],
    /// The device that the allocation is on.
    pub ordinal: i32,
    /// The offset of the address, in bytes, from the beginning of the allocation that the handle opens.
    pub offset: usize,
    /// The size of the allocation in bytes.
    pub bytes: usize,
}

/// Allocates memory for others, and decides when the memory is really given back. Only [`Manager::allocate`] and
/// [`Manager::statistics`] have to be implemented; the other methods have defaults for a manager that keeps nothing for a
/// device. A panic in a method reaches whoever called it; one in the drop of a manager that is [`Shared`], or of the owner of
/// its memory, is caught and traced.
///
/// An `Arc` or `Box` of a manager is a manager, too: share the one ([`Shared::new`]) and keep the other.
///
/// ```
/// use devexchange_core::manager::{Allocated, Driver, Manager, Request, Statistics};
/// use devexchange_core::{Device, DType, Result, Tensor};
///
/// /// Prints each request and passes it to another manager.
/// #[derive(Debug)]
/// struct Told(Driver);
///
/// // SAFETY: the memory of the other manager is handed on unchanged.
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
/// drop(tensor); // gives the memory back
/// assert_eq!(manager.statistics().bytes, 0);
/// # Ok(())
/// # }
/// ```
///
/// # Safety
/// The memory that [`Manager::allocate`] returns is as described: that many bytes at that address of that device,
/// initialised if the host can read them, used by nobody else, and valid until the owner is dropped.
pub unsafe trait Manager: Send + Sync + fmt::Debug {
    /// Prepares for allocations on a device. May be called any number of times; memory that was allocated before stays.
    ///
    /// # Errors
    /// Whatever keeps the manager from working on that device.
    fn initialize(&self, _ordinal: i32) -> Result<()> {
        Ok(())
    }

    /// Allocates memory with arbitrary content: at least as many bytes as were asked for ([`Allocated::bytes`]), on that
    /// device, or host memory that both the host and the device can reach. Memory that is given up while work noted with
    /// [`Tensor::used_on`] is queued is given back after that work.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, `DEVX_UNSUPPORTED` for a kind that this manager does not have, `DEVX_DEVICE`, `DEVX_DRIVER`;
    /// `DEVX_PANIC` if this manager asks another one, which panics.
    fn allocate(&self, request: &Request) -> Result<Allocated>;

    /// Pins existing host memory for as long as the owner lives. The memory outlives the owner.
    ///
    /// # Errors
    /// Same as [`Manager::allocate`]; `DEVX_UNSUPPORTED` from a manager that does not pin.
    ///
    /// # Safety
    /// `bytes` bytes at `address` are valid until the owner is dropped.
    unsafe fn pin(&self, _ordinal: i32, _address: *mut c_void, _bytes: usize, _flags: HostFlags) -> Result<Owner> {
        lacks("pin")
    }

    /// How much memory there is for this manager.
    ///
    /// # Errors
    /// `DEVX_UNSUPPORTED` if the manager cannot say.
    fn memory_info(&self, _ordinal: i32) -> Result<MemoryInfo> {
        lacks("memory_info")
    }

    /// Returns a handle for the allocation of this manager that an address lies in. The memory must live until the other
    /// process has closed the handle; [`crate::ipc`] takes care of that itself, and can also share memory of pools.
    ///
    /// # Errors
    /// `DEVX_UNSUPPORTED` for memory without such a handle: memory of pools, pinned, managed, and plain host memory.
    fn ipc_handle(&self, address: *const c_void) -> Result<IpcHandle> {
        driver_ipc_handle(address)
    }

    /// Gives back all memory that goes with a device, including memory that is still in use, whose owners then have nothing
    /// left to do. Plain host memory goes with no device and stays. May be called before [`Manager::initialize`].
    ///
    /// Call this before a reset of the device itself (`cudaDeviceReset`), which takes its memory. An owner that is dropped
    /// after such a reset gives back memory that the driver no longer knows, which counts as lost
    /// ([`releases_lost`](crate::runtime::releases_lost)), or that the driver has given to somebody else since. A manager that
    /// does nothing here leaves its memory with the owners; they must be dropped before such a reset.
    ///
    /// # Errors
    /// Even if this returns an error, all memory was given back.
    ///
    /// # Safety
    /// Nobody uses memory for that device from this manager, or from the one that it allocates from, any more: neither the
    /// host nor queued work. No other thread gives up such memory meanwhile, and, if cleanup was deferred, none is in a call
    /// that may give back what was kept ([`Manager::resume_cleanup`], [`Manager::trim`], [`Manager::allocate`]): its release
    /// could reach the driver after this returns.
    unsafe fn reset(&self, _ordinal: i32) -> Result<()> {
        Ok(())
    }

    /// Keeps memory that is given up until [`Manager::resume_cleanup`] has been called as often as this: the expensive part of
    /// giving memory back does not happen meanwhile. Memory in the order of a stream still goes back to its pool at once, and
    /// existing host memory that was pinned is unpinned at once, because it belongs to its user again. [`Manager::trim`] gives
    /// back what is kept, and so does a manager of this library that runs out of memory.
    fn defer_cleanup(&self) {}

    /// Ends a deferral; see [`Manager::defer_cleanup`].
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` from a manager of this library whose cleanup is not deferred.
    fn resume_cleanup(&self) -> Result<()> {
        Ok(())
    }

    /// Gives unused memory back to the driver, except for `keep` bytes.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    fn trim(&self, _ordinal: i32, _keep: usize) -> Result<()> {
        Ok(())
    }

    /// Counts what was allocated and given back.
    fn statistics(&self) -> Statistics;

    /// The number of managers in this stack, each of which asks the next one; 1 for a manager that asks no other.
    fn levels(&self) -> usize {
        1
    }
}

/// A manager that several users share; bindings hold one like this.
#[derive(Clone, Debug)]
pub struct Shared(Slab<Header>);

#[derive(Debug)]
struct Header {
    manager: Shielded<Box<dyn Manager>>,
    /// The deferrals of those who share the manager, without those of the managers that allocate from it.
    deferred: Depth,
}

// Any thread may use a manager at any time, also after another thread has panicked in it.
impl UnwindSafe for Shared {}
impl RefUnwindSafe for Shared {}

impl Shared {
    /// Shares a manager.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn new(manager: impl Manager + 'static) -> Result<Self> {
        Self::with(|| Ok(manager))
    }

    /// Shares a manager; `make` is called last, when nothing else can fail.
    fn with<M: Manager + 'static>(make: impl FnOnce() -> Result<M>) -> Result<Self> {
        let (slab, room) = (Slab::room(TailSize::default())?, Vacant::new()?);
        let manager: Box<dyn Manager> = room.fill(make()?);
        let manager = Shielded::new("a manager", manager);
        Ok(Self(slab.fill(Header { manager, deferred: Depth::default() })))
    }

    /// Same as [`Manager::defer_cleanup`]. All clones of this together count how often they have called it.
    pub fn defer_cleanup(&self) {
        (**self).defer_cleanup();
        self.0.header().deferred.begin();
    }

    /// Ends a deferral of [`Shared::defer_cleanup`], never one of a [`Deferred`] or of a manager that allocates from this one.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` if there is none.
    pub fn resume_cleanup(&self) -> Result<()> {
        self.0.header().deferred.end()?;
        (**self).resume_cleanup()
    }

    /// Like [`Manager::allocate`], but for a caller that gets an address and no order: without a stream in the request, the
    /// memory may be touched at once. The host waits for that if it has to.
    ///
    /// # Errors
    /// Same as [`Manager::allocate`].
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
        &**self.0.header().manager
    }
}

/// Defers the cleanup of a manager as long as it lives.
#[must_use = "cleanup is deferred as long as this lives"]
#[derive(Debug)]
pub struct Deferred<'a>(&'a dyn Manager);

impl<'a> Deferred<'a> {
    /// Begins to defer cleanup.
    pub fn new(manager: &'a dyn Manager) -> Self {
        manager.defer_cleanup();
        Self(manager)
    }
}

impl Drop for Deferred<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.resume_cleanup() {
            trace::say(format_args!("{error}"));
        }
    }
}

impl Tensor {
    /// Like [`Tensor::allocate`], but over memory of a manager. Pinned and managed memory is requested for the device of the
    /// stream.
    ///
    /// # Errors
    /// Same as [`Manager::allocate`]; `DEVX_INVALID_SHAPE`; `DEVX_CALLBACK` if the manager gives less than was asked for, or
    /// memory of another device.
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
        tensor.set_ready(transfer::filled(device, ready));
        Ok(tensor)
    }
}

/// Turns memory of the library's own allocator into memory of a manager.
fn allocated(device: Device, bytes: usize, memory: Memory) -> Allocated {
    let Memory { address, owner, ready } = memory;
    // For no bytes of host memory, the address means nothing.
    let address = if bytes == 0 { std::ptr::null_mut() } else { address };
    Allocated { address, device, bytes, owner, ready }
}

/// Allocates pinned host memory, the same way for every manager.
fn pinned(ordinal: i32, bytes: usize, flags: HostFlags) -> Result<Allocated> {
    let Allocation { address, device, owner } = Allocation::pinned_with(ordinal, bytes, flags.bits())?;
    Ok(Allocated { address, device, bytes, owner, ready: Ready::Now })
}

fn driver_info(ordinal: i32) -> Result<MemoryInfo> {
    let (free, total) = info::memory_info(ordinal)?;
    Ok(MemoryInfo { free, total })
}

/// Asks the driver for the handle of one of its allocations.
///
/// # Errors
/// Same as [`Manager::ipc_handle`].
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

/// The error of a manager that lacks an optional function.
fn lacks<T>(name: &str) -> Result<T> {
    refuse!(DEVX_UNSUPPORTED, "the manager has no {name}")
}

fn no_such_kind<T>(manager: &str, kind: DeviceType) -> Result<T> {
    refuse!(DEVX_UNSUPPORTED, "device_type is {kind}: the {manager} manager does not have it")
}
