//! Who allocates: memory managers, those of the library and those that are written in Python; memory and tensors of them,
//! and PyTorch's allocator over one.

mod deferred_cleanup;
pub(crate) mod empty;
pub(crate) mod memory;
pub(crate) mod torch;
mod written;

use devexchange_core::manager::{Allocated, Driver, HostFlags, Limited, Manager, Pool, PoolOptions, Request, Shared};
use devexchange_core::order::Ready;
use devexchange_core::{Device, DeviceType, Owner, RawStream, Stream};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyTuple};

use crate::device;
use crate::manager::deferred_cleanup::DeferredCleanup;
use crate::manager::memory::Memory;
use crate::order::stream;
use crate::python::address::Address;
use crate::python::class::Class;
use crate::python::error::{Result, wrong_type};
use crate::python::handle::Handle;
use crate::python::{argument, queue, raised};
use crate::tensor::buffer;

static MEMORY_INFO: Class = Class::new("devexchange._types", "MemoryInfo");
static IPC_HANDLE: Class = Class::new("devexchange._types", "IpcHandle");
static STATISTICS: Class = Class::new("devexchange._types", "Statistics");

/// Allocates memory, and decides when it is really given back. Those of the library come from `driver`, `managed`,
/// `host_only`, `pool` and `limited`.
///
/// `MemoryManager(object)` is one that is written in Python. The object has a method `allocate(request)`, which is
/// given a `MemoryRequest` (its `device` is a pair of numbers, as in DLPack: a `Device`) and gives a `Memory` of
/// another manager, or a pair of an address and a function without arguments that gives the memory back (None if
/// there is nothing to do). It may have `initialize(device_id)`, `pin(request, address)`, which gives the function
/// that unpins, `memory_info(device_id)`, which gives a pair of free and all bytes, `ipc_handle(address)`, which
/// gives an `IpcHandle`, `reset(device_id)`, `trim(device_id, keep)`, `defer_cleanup(begin)` and `close()`, which
/// is called when the manager and all memory of it are given up. Any thread may call them, several at once; an
/// exception becomes the error of the call that was made, and its cause. What gives memory back is called by
/// whichever thread of Python's is the next one to call into this package; the stream of the request, if it is closed
/// meanwhile, is destroyed only after that. A cycle between such an object and its manager is not seen by Python's
/// collector: close the manager.
///
/// Any thread may use a manager. `close`, or a `with` block, gives up this object's part; memory outlives its manager.
#[pyclass(frozen, module = "devexchange", weakref)]
pub(crate) struct MemoryManager(Handle<Shared>);

impl MemoryManager {
    fn of(manager: impl Manager + 'static) -> Result<Self> {
        Ok(Self(Handle::new("manager", Shared::new(manager)?)))
    }

    pub(crate) fn get(&self) -> Result<Shared> {
        self.0.get()
    }

    /// A manager may ask Python, or wait for the device, which may wait for a callback in Python.
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

    /// One that asks the driver for each allocation: every kind of memory. With a stream, device memory comes from the
    /// device's default pool.
    #[staticmethod]
    fn driver() -> Result<Self> {
        Self::of(Driver::new()?)
    }

    /// As `driver`, with managed memory for every request of device memory.
    #[staticmethod]
    fn managed() -> Result<Self> {
        Self::of(Driver::managed()?)
    }

    /// One of plain and pinned host memory only.
    #[staticmethod]
    fn host_only() -> Result<Self> {
        Self::of(Driver::host_only()?)
    }

    /// One with a stream-ordered pool of its own on each device: at most `limit` bytes in use over all devices, and up
    /// to `keep` unused bytes kept on each; None for no limit. Without a stream, memory is in the order of the legacy
    /// default stream. Out of memory, it trims, waits for the stream and tries once more. Memory of a pool that is
    /// `shareable` can be shared with other processes.
    #[staticmethod]
    #[pyo3(signature = (limit=None, keep=None, shareable=false))]
    fn pool(limit: Option<&Bound<'_, PyAny>>, keep: Option<&Bound<'_, PyAny>>, shareable: bool) -> Result<Self> {
        let keep = keep.map(|keep| argument::size(keep, "keep")).transpose()?;
        let options = PoolOptions { limit: limit_of(limit)?, keep: keep.map_or(u64::MAX, |keep| keep as u64) };
        Self::of(if shareable { Pool::shareable(options) } else { Pool::new(options) }?)
    }

    /// One that lets another one have at most `limit` bytes in use, and counts for itself. No more than 64
    /// stand one over the other.
    #[staticmethod]
    #[pyo3(signature = (inner, limit=None))]
    fn limited(inner: &Self, limit: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        Self::of(Limited::new(inner.get()?, limit_of(limit)?)?)
    }

    /// Prepares for allocations on a device. May be called any number of times.
    #[pyo3(signature = (device_id=0))]
    fn initialize(&self, py: Python<'_>, #[pyo3(from_py_with = device::number)] device_id: i32) -> Result<()> {
        self.ask(py, |manager| manager.initialize(device_id))
    }

    /// Memory of a kind, and for a device, as `device` says. It is a pair of numbers, as in DLPack, and not a name, because
    /// pinned and managed memory is for a device, too: (2, n) device memory, (3, n) pinned, (13, n) managed, (1, 0) plain
    /// host memory; by default it is (2, 0). With a `stream`, device memory is given and taken back in its order, if the
    /// manager can do that. `mapped`, `portable` and `write_combined` are of pinned memory: devices can use it; in all
    /// contexts; fast to write for the host and slow to read.
    ///
    /// Raises OutOfMemory, and Refused for a kind that the manager does not have.
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    #[pyo3(signature = (bytes, device=(2, 0), *, stream=None, mapped=false, portable=false, write_combined=false))]
    fn allocate(
        &self,
        py: Python<'_>,
        bytes: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = device::numbers)] device: (i32, i32),
        stream: Option<&Bound<'_, PyAny>>,
        mapped: bool,
        portable: bool,
        write_combined: bool,
    ) -> Result<Memory> {
        let (bytes, (kind, device_id)) = (argument::size(bytes, "bytes")?, device);
        let request = Request::named(DeviceType(kind), device_id, bytes)?;
        let stream = stream_or_none(Device { kind: DeviceType::CUDA, id: request.ordinal }, stream)?;
        let host = HostFlags { mapped, portable, write_combined };
        let request = Request { stream, host, ..request };
        Ok(Memory::new(self.ask(py, |manager| manager.allocate(&request))?))
    }

    /// Pins host memory that is there already, until the result is closed: that of an object with the buffer protocol,
    /// which is kept, or `bytes` bytes at an address, which the caller keeps. It is unpinned at once, also while
    /// cleanup is deferred.
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
            None if memory.is_instance_of::<PyInt>() => {
                return wrong_type!("memory is an address: bytes is needed, too");
            }
            None => buffer::bytes_of(memory)?,
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

    /// How much memory there is for this manager. Raises Refused if it cannot say.
    #[pyo3(signature = (device_id=0))]
    fn memory_info<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = device::number)] device_id: i32,
    ) -> Result<Bound<'py, PyAny>> {
        let info = self.ask(py, |manager| manager.memory_info(device_id))?;
        Ok(MEMORY_INFO.make(py, (info.free, info.total))?)
    }

    /// The driver's handle for the allocation that an address of this manager's lies in. The memory must live until the
    /// other process has closed it. Raises Refused for memory that has no such handle: of pools, pinned, managed, or
    /// plain host memory.
    fn ipc_handle<'py>(&self, py: Python<'py>, address: Address) -> Result<Bound<'py, PyAny>> {
        let found = self.ask(py, |manager| manager.ipc_handle(address.pointer()))?;
        let handle = PyBytes::new(py, &found.handle);
        Ok(IPC_HANDLE.make(py, (handle, found.offset, found.bytes, found.ordinal))?)
    }

    /// Gives all memory that goes with a device back, also what is still in use, which nobody may touch any more; closing
    /// it does nothing then. Plain host memory goes with none, and stays. A limited manager resets the one that it asks, too,
    /// and with it the memory that others have of that one. This comes before a reset of the device itself.
    #[pyo3(signature = (device_id=0))]
    fn reset(&self, py: Python<'_>, #[pyo3(from_py_with = device::number)] device_id: i32) -> Result<()> {
        // SAFETY: as documented, it is the program's to see that nobody uses the memory any more.
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

    /// A context manager: within it, what is expensive about giving memory back does not happen. Memory in the order of
    /// a stream goes back to its pool at once all the same, and so does host memory that was pinned.
    fn defer_cleanup(&self) -> Result<DeferredCleanup> {
        Ok(DeferredCleanup::new(self.get()?))
    }

    /// What was allocated and given back.
    fn statistics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let now = self.get()?.statistics();
        let (in_use, all) = ((now.bytes, now.peak_bytes, now.allocations), (now.total_allocations, now.total_bytes));
        Ok(STATISTICS.make(py, (in_use.0, in_use.1, in_use.2, all.0, all.1, now.refused))?)
    }

    /// Gives up this object's part of the manager. Memory that it gave stays. Closing again does nothing.
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

/// None is no limit.
fn limit_of(limit: Option<&Bound<'_, PyAny>>) -> Result<usize> {
    limit.map_or(Ok(usize::MAX), |limit| argument::size(limit, "limit"))
}

/// Host memory, pinned until its owner is gone.
fn pinned(
    manager: &dyn Manager,
    ordinal: i32,
    mut memory: Allocated,
    flags: HostFlags,
) -> devexchange_core::Result<Allocated> {
    // SAFETY: the memory's own owner keeps it until it is unpinned; or its address was given, and the caller keeps it.
    let unpin = unsafe { manager.pin(ordinal, memory.address, memory.bytes, flags) }?;
    let keep = std::mem::replace(&mut memory.owner, Owner::none());
    memory.owner = Owner::new((unpin, keep));
    Ok(memory)
}

/// A stream of a device's to allocate on; −1 stands for none, too.
fn stream_or_none(device: Device, value: Option<&Bound<'_, PyAny>>) -> Result<Option<Stream>> {
    let value = stream::optional(value)?.filter(|&value| value != RawStream::NO_SYNC);
    Ok(value.map(|value| device.stream_with(device, value)).transpose()?)
}
