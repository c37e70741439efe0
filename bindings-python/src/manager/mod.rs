//! Memory managers, those of the library and those written in Python; memory and tensors that they allocate; and a PyTorch
//! allocator over a manager.

mod deferred_cleanup;
pub(crate) mod empty;
pub(crate) mod memory;
pub(crate) mod torch;
mod written;

use devexchange_core::manager::{Allocated, Driver, HostFlags, Limited, Manager, Pool, PoolOptions, Request, Shared};
use devexchange_core::order::Ready;
use devexchange_core::runtime::cuda::Hold;
use devexchange_core::{Device, DeviceType, Owner, Stream};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::device;
use crate::manager::deferred_cleanup::DeferredCleanup;
use crate::manager::memory::Memory;
use crate::order::{raw_stream, stream};
use crate::python::address::Address;
use crate::python::class::Class;
use crate::python::error::{Result, wrong_type};
use crate::python::handle::Handle;
use crate::python::{argument, queue, raised};
use crate::tensor::buffer;

static MEMORY_INFO: Class = Class::new("devexchange._types", "MemoryInfo");
static IPC_HANDLE: Class = Class::new("devexchange._types", "IpcHandle");
static STATISTICS: Class = Class::new("devexchange._types", "Statistics");

/// Allocates memory, and decides when memory is really given back.
///
/// The managers of the library come from `driver`, `managed`, `host_only`, `pool` and `limited`. `MemoryManager(object)` is a
/// manager that is written in Python. The object has a method `allocate(request)`, which takes a `MemoryRequest` (its
/// `device` is a pair of numbers, as in DLPack: a `Device`) and returns a `Memory` of another manager, or a pair of an
/// address and a function without arguments that gives the memory back (None if there is nothing to do).
///
/// The object can also have these methods: `initialize(device_id)`; `pin(request, address)`, which returns the function that
/// unpins; `memory_info(device_id)`, which returns a pair of free and total bytes; `ipc_handle(address)`, which returns an
/// `IpcHandle`; `reset(device_id)`; `trim(device_id, keep)`; `defer_cleanup(begin)`; and `close()`, which is called when the
/// manager and all its memory are given up.
///
/// Any thread may call these methods, several at once. An exception becomes the error of the call that led to it, and that
/// error's cause. The function that gives memory back is called by the next Python thread that calls into this package, or by
/// the main thread soon after; if the stream of the request is closed meanwhile, it is destroyed only after that. Python's
/// collector cannot see a cycle between such an object and its manager: close the manager. A manager in a global variable of
/// the module that defines the object's class is such a cycle, too: unless it is closed, nothing in the module ends with the
/// program, and files that are still open there are not flushed.
///
/// Any thread can use a manager. `close`, or a `with` block, gives up this object's part; memory can outlive its manager.
#[pyclass(frozen, module = "devexchange", weakref)]
pub(crate) struct MemoryManager(Handle<Shared>);

impl MemoryManager {
    fn of(manager: impl Manager + 'static) -> Result<Self> {
        Ok(Self(Handle::new("manager", Shared::new(manager)?)))
    }

    pub(crate) fn get(&self) -> Result<Shared> {
        self.0.get()
    }

    /// The manager that an argument is, which is called `what`.
    fn wanted(given: &Bound<'_, PyAny>, what: &str) -> Result<Shared> {
        match given.cast::<Self>() {
            Ok(manager) => manager.get().get(),
            Err(_) => wrong_type!("{what} is {given:?}: a MemoryManager is needed, which MemoryManager(object) makes"),
        }
    }

    /// Calls the manager, detached from the interpreter: it may call Python on its own, or wait for the device, which may
    /// wait for a callback in Python.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&dyn Manager) -> devexchange_core::Result<T> + Send,
    ) -> Result<T> {
        queue::drain();
        let manager = self.get()?;
        raised::calling(py, || act(&*manager))
    }
}

#[pymethods]
impl MemoryManager {
    #[new]
    #[pyo3(signature = (object, /))]
    fn new(object: &Bound<'_, PyAny>) -> Result<Self> {
        Ok(Self(Handle::new("manager", written::manager(object)?)))
    }

    /// Returns a manager that asks the driver for each allocation; it has every kind of memory.
    ///
    /// With a stream, device memory comes from the device's default pool.
    #[staticmethod]
    fn driver() -> Result<Self> {
        Self::of(Driver::new()?)
    }

    /// Returns a manager like `driver`, but with managed memory for every request for device memory.
    #[staticmethod]
    fn managed() -> Result<Self> {
        Self::of(Driver::managed()?)
    }

    /// Returns a manager of plain and pinned host memory only.
    #[staticmethod]
    fn host_only() -> Result<Self> {
        Self::of(Driver::host_only()?)
    }

    /// Returns a manager with its own stream-ordered pool on each device.
    ///
    /// It has device and pinned memory only. It has at most `limit` bytes in use over all devices, and keeps up to `keep`
    /// unused bytes on each; None is no limit. Without a stream, device memory is in the order of the legacy default stream.
    /// When out of memory, it waits for the stream, trims the pool and tries once more. Device memory of a `shareable` pool
    /// can be shared with other processes.
    #[staticmethod]
    #[pyo3(signature = (limit=None, keep=None, shareable=false))]
    fn pool(limit: Option<&Bound<'_, PyAny>>, keep: Option<&Bound<'_, PyAny>>, shareable: bool) -> Result<Self> {
        let keep = keep.map(|keep| argument::size(keep, "keep")).transpose()?;
        let options = PoolOptions { limit: limit_of(limit)?, keep: keep.map_or(u64::MAX, |keep| keep as u64) };
        Self::of(if shareable { Pool::shareable(options) } else { Pool::new(options) }?)
    }

    /// Returns a manager that allocates from another one, with at most `limit` bytes in use and its own statistics.
    ///
    /// At most 64 managers can be stacked.
    #[staticmethod]
    #[pyo3(signature = (inner, limit=None))]
    fn limited(inner: &Bound<'_, PyAny>, limit: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        Self::of(Limited::new(Self::wanted(inner, "inner")?, limit_of(limit)?)?)
    }

    /// Prepares for allocations on a device; can be called any number of times.
    #[pyo3(signature = (device_id=0))]
    fn initialize(&self, py: Python<'_>, #[pyo3(from_py_with = device::number)] device_id: i32) -> Result<()> {
        self.ask(py, |manager| manager.initialize(device_id))
    }

    /// Allocates `bytes` bytes of the kind, and for the device, that `device` says.
    ///
    /// `device` is a name, for example "cuda:0", or a pair of numbers as in DLPack: (2, n) is device memory, (3, n) pinned and
    /// (13, n) managed memory for device n, and (1, 0) plain host memory; by default it is (2, 0). The name of pinned or
    /// managed memory stands for device 0, whatever its number. With a `stream`, device memory is given and taken back in its
    /// order, if the manager can do that; without one, memory of a pool is in the order of the legacy default stream (see
    /// `Memory.wait`). The flags are for pinned memory: `mapped` (devices can use it), `portable` (it can be used in all
    /// contexts) and `write_combined` (fast for the host to write, slow to read).
    ///
    /// Raises OutOfMemory, and Refused for a kind that the manager does not have.
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    #[pyo3(signature = (bytes, device=(2, 0), *, stream=None, mapped=false, portable=false, write_combined=false))]
    fn allocate(
        &self,
        py: Python<'_>,
        bytes: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = device::of_request)] device: (i32, i32),
        stream: Option<&Bound<'_, PyAny>>,
        mapped: bool,
        portable: bool,
        write_combined: bool,
    ) -> Result<Memory> {
        let (bytes, (kind, device_id)) = (argument::size(bytes, "bytes")?, device);
        let request = Request::named(DeviceType(kind), device_id, bytes)?;
        let (stream, _hold) = stream_or_none(Device { kind: DeviceType::CUDA, id: request.ordinal }, stream)?;
        let host = HostFlags { mapped, portable, write_combined };
        let request = Request { stream, host, ..request };
        Ok(Memory::new(self.ask(py, |manager| manager.allocate(&request))?))
    }

    /// Pins existing host memory until the result is closed.
    ///
    /// `memory` is an object with the buffer protocol, which is kept alive, or the address of `bytes` bytes, which the caller
    /// must keep alive. Closing the result unpins the memory at once, also while cleanup is deferred.
    #[pyo3(signature = (memory, bytes=None, *, device_id=0, mapped=false, portable=false))]
    fn pin(
        &self,
        py: Python<'_>,
        memory: &Bound<'_, PyAny>,
        bytes: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = device::number)] device_id: i32,
        mapped: bool,
        portable: bool,
    ) -> Result<Memory> {
        let bytes = bytes.map(|bytes| argument::size(bytes, "bytes")).transpose()?;
        let (address, bytes, keep) = match bytes {
            None => match buffer::bytes_of(memory)? {
                Some(bytes) => bytes,
                None => return wrong_type!("memory is an address: bytes is needed, too"),
            },
            Some(bytes) => {
                (std::ptr::with_exposed_provenance_mut(argument::size(memory, "memory")?), bytes, Owner::none())
            }
        };
        let device = Device { kind: DeviceType::CUDA_HOST, id: 0 };
        let memory = Allocated { address, device, bytes, owner: keep, ready: Ready::Now };
        let flags = HostFlags { mapped, portable, write_combined: false };
        let pinned = self.ask(py, move |manager| pinned(manager, device_id, memory, flags));
        queue::drain();
        Ok(Memory::new(pinned?))
    }

    /// Returns how much memory there is for this manager.
    ///
    /// Raises Refused if the manager cannot tell; one of host memory only never can.
    #[pyo3(signature = (device_id=0))]
    fn memory_info<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = device::number)] device_id: i32,
    ) -> Result<Bound<'py, PyAny>> {
        let info = self.ask(py, |manager| manager.memory_info(device_id))?;
        Ok(MEMORY_INFO.make(py, (info.free, info.total))?)
    }

    /// Returns the driver's handle for the allocation of an address that this manager gave.
    ///
    /// The memory must live until the other process has closed the handle. If the manager is written in Python and has no such
    /// method, the driver is asked.
    ///
    /// Raises Refused for memory without such a handle: memory of pools, pinned, managed and plain host memory.
    fn ipc_handle<'py>(&self, py: Python<'py>, address: Address) -> Result<Bound<'py, PyAny>> {
        let found = self.ask(py, |manager| manager.ipc_handle(address.pointer()))?;
        let handle = PyBytes::new(py, &found.handle);
        Ok(IPC_HANDLE.make(py, (handle, found.offset, found.bytes, found.ordinal))?)
    }

    /// Gives back all memory for a device, including memory still in use.
    ///
    /// Nobody may touch that memory any more, and closing it then does nothing; no other thread may close it during the call.
    /// If cleanup was deferred, no other thread may resume it, trim or allocate during the call either, because that may give
    /// back what was kept. Plain host memory belongs to no device, and stays. A limited manager also resets the manager that it
    /// allocates from, and with it the memory that others have from that one. Call this before a reset of the device itself.
    #[pyo3(signature = (device_id=0))]
    fn reset(&self, py: Python<'_>, #[pyo3(from_py_with = device::number)] device_id: i32) -> Result<()> {
        // SAFETY: as documented, the program sees to it that nobody uses the memory any more.
        let reset = self.ask(py, |manager| unsafe { manager.reset(device_id) });
        queue::drain();
        reset
    }

    /// Gives unused memory of a device back to the driver, except for `keep` bytes.
    #[pyo3(signature = (device_id=0, keep=0))]
    fn trim(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = device::number)] device_id: i32,
        #[pyo3(from_py_with = keep_of)] keep: usize,
    ) -> Result<()> {
        self.ask(py, |manager| manager.trim(device_id, keep))
    }

    /// Returns a context manager within which the expensive part of giving memory back is put off.
    ///
    /// Memory in the order of a stream still goes back to its pool at once, and memory of `pin` is unpinned at once. `trim`
    /// gives back what is held back, and so does a manager of this library that runs out of memory.
    fn defer_cleanup(&self) -> Result<DeferredCleanup> {
        Ok(DeferredCleanup::new(self.get()?))
    }

    /// Returns how much was allocated and given back.
    fn statistics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let now = self.get()?.statistics();
        let (in_use, all) = ((now.bytes, now.peak_bytes, now.allocations), (now.total_allocations, now.total_bytes));
        Ok(STATISTICS.make(py, (in_use.0, in_use.1, in_use.2, all.0, all.1, now.refused))?)
    }

    /// Gives up this object's part of the manager; memory that it gave stays.
    ///
    /// Closing again does nothing.
    fn close(&self) {
        self.0.close();
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        match self.get() {
            Ok(manager) => format!("<devexchange.MemoryManager with {} bytes in use>", manager.statistics().bytes),
            Err(_) => "<devexchange.MemoryManager closed>".to_owned(),
        }
    }
}

fn keep_of(keep: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(argument::size(keep, "keep")?)
}

/// Reads a limit; None is no limit.
fn limit_of(limit: Option<&Bound<'_, PyAny>>) -> Result<usize> {
    limit.map_or(Ok(usize::MAX), |limit| argument::size(limit, "limit"))
}

/// Pins host memory until its owner is gone.
fn pinned(
    manager: &dyn Manager,
    ordinal: i32,
    mut memory: Allocated,
    flags: HostFlags,
) -> devexchange_core::Result<Allocated> {
    // SAFETY: the owner of the memory keeps it until it is unpinned, or, if an address was given, the caller does.
    let unpin = unsafe { manager.pin(ordinal, memory.address, memory.bytes, flags) }?;
    let keep = std::mem::replace(&mut memory.owner, Owner::none());
    memory.owner = Owner::new((unpin, keep));
    Ok(memory)
}

/// Reads a stream of a device to allocate on, and holds it for the call; −1 stands for none, too.
fn stream_or_none(device: Device, value: Option<&Bound<'_, PyAny>>) -> Result<(Option<Stream>, Hold)> {
    let value = stream::wanted(value)?;
    let hold = value.map_or(Ok(Hold::none()), raw_stream::hold)?;
    Ok((value.map(|value| device.stream_with(device, value)).transpose()?, hold))
}
