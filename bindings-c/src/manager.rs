//! `devx_manager_*`: managers that come with the library, managers that the caller fills in, and memory from either.

use devexchange_core::abi::types::{DevxManagerTable, DevxMemory};
use devexchange_core::manager::{
    Allocated, Driver, HostFlags, Limited, Manager, Pool, PoolOptions, Request, Shared, limit_from_raw,
};
use devexchange_core::{DType, Device, Result, Tensor};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{
    DlDataType, DlDevice, ErrorRecord, IpcHandleRecord, ManagerTableRecord, MemoryInfoRecord, MemoryRecord,
    MemoryRequestRecord, OwnerRecord, StatisticsRecord, Status, Void,
};
use crate::error::{guard, guard_release, handle, list, required};
use crate::stream::stream_or_none;
use crate::tensor::TensorHandle;

handle! {
    /// A memory manager: one reference. Memory from it may outlive it. Any thread may use it.
    ManagerHandle = "devx_manager" of Shared
}

type OutManager<'a> = Option<Out<'a, *mut ManagerHandle>>;

fn make<M: Manager + 'static>(
    out: OutManager<'_>,
    error: Option<&mut ErrorRecord>,
    manager: impl FnOnce() -> Result<M>,
) -> Status {
    guard(error, || {
        required(out, "out")?.write(ManagerHandle::give(Shared::new(manager()?)?));
        Ok(())
    })
}

/// Makes a manager that asks the driver for each allocation, for every kind of memory.
///
/// With a stream, device memory comes from the device's default pool.
#[ffi_export]
fn devx_manager_create_driver(out: OutManager<'_>, error: Option<&mut ErrorRecord>) -> Status {
    make(out, error, Driver::new)
}

/// Like `devx_manager_create_driver`, but gives managed memory for every request for device memory.
#[ffi_export]
fn devx_manager_create_managed(out: OutManager<'_>, error: Option<&mut ErrorRecord>) -> Status {
    make(out, error, Driver::managed)
}

/// Makes a manager of plain and pinned host memory only (DEVX_UNSUPPORTED for other kinds).
#[ffi_export]
fn devx_manager_create_host_only(out: OutManager<'_>, error: Option<&mut ErrorRecord>) -> Status {
    make(out, error, Driver::host_only)
}

/// Makes a manager with its own stream-ordered pool on each device.
///
/// It has device and pinned memory only (DEVX_UNSUPPORTED for other kinds). At most `limit` bytes are in use over all devices,
/// and up to `keep` unused bytes are kept on each; -1 for no limit. When out of memory, the manager waits for the stream, trims
/// the pool and tries once more.
#[ffi_export]
fn devx_manager_create_pool(limit: i64, keep: i64, out: OutManager<'_>, error: Option<&mut ErrorRecord>) -> Status {
    make(out, error, || Pool::new(PoolOptions::from_raw(limit, keep)?))
}

/// Like `devx_manager_create_pool`, with device memory that can be offered to other processes
/// (`devx_ipc_server_offer_tensor`).
#[ffi_export]
fn devx_manager_create_shareable_pool(
    limit: i64,
    keep: i64,
    out: OutManager<'_>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    make(out, error, || Pool::shareable(PoolOptions::from_raw(limit, keep)?))
}

/// Makes a manager that allocates from `inner` and has at most `limit` bytes in use; with -1, it only counts.
///
/// `inner` is shared. At most 64 managers can stand one over the other (DEVX_TOO_DEEP).
#[ffi_export]
unsafe fn devx_manager_create_limited(
    inner: *const ManagerHandle,
    limit: i64,
    out: OutManager<'_>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let inner = unsafe { ManagerHandle::borrow(inner, "inner") }?;
        let limited = Limited::new(Shared::clone(&inner), limit_from_raw(limit)?)?;
        out.write(ManagerHandle::give(Shared::new(limited)?));
        Ok(())
    })
}

/// Makes a manager from a table of callbacks that the caller fills in.
///
/// The table is copied; its `release` is called once, when the manager and all memory from it have been given up.
#[ffi_export]
unsafe fn devx_manager_create(
    table: Option<&ManagerTableRecord>,
    out: OutManager<'_>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        let table: &DevxManagerTable = &required(table, "table")?.0;
        // SAFETY: the caller gives callbacks that any thread may call.
        out.write(ManagerHandle::give(unsafe { Shared::of_table(table) }?));
        Ok(())
    })
}

/// Prepares a manager for allocations on a device. May be called any number of times.
#[ffi_export]
unsafe fn devx_manager_initialize(
    manager: *const ManagerHandle,
    device_id: i32,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { ManagerHandle::borrow(manager, "manager") }?.initialize(device_id))
}

/// Allocates memory, which `out->owner` gives back.
///
/// Pinned and managed memory is for the device that `request->device_id` names; −1 is accepted only for the CPU. The owner is
/// released once, from any thread, also after the manager was released. The memory is given back in the order of the request's
/// stream, if there is one. That stream must not be destroyed before; it may be closed (`devx_stream_close`). A tensor or batch
/// that is made with `out->owner` does not know the stream: name work with it on any other stream as a use
/// (`devx_tensor_used_on`), including the work that fills it. Without a stream, the memory is ready when this returns: for
/// memory of a pool, the host waits for that.
#[ffi_export]
unsafe fn devx_manager_allocate(
    manager: *const ManagerHandle,
    request: Option<&MemoryRequestRecord>,
    out: Option<Out<'_, MemoryRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let (out, request) = (required(out, "out")?, required(request, "request")?);
        // SAFETY: the caller gives a living handle.
        let manager = unsafe { ManagerHandle::borrow(manager, "manager") }?;
        // SAFETY: the caller's stream is alive.
        let request = unsafe { Request::from_raw(&request.0) }?;
        let Allocated { address, device, owner, .. } = manager.allocate_ready(&request)?;
        let (device_type, device_id) = (device.kind.0, device.id);
        out.write(MemoryRecord(DevxMemory { address, device_type, device_id, owner: owner.into_raw() }));
        Ok(())
    })
}

/// Like `devx_tensor_allocate`, but with memory from a manager.
///
/// Pinned and managed memory is requested for the device of the stream, with −1 for device 0, whatever number `device` has.
/// With −1, memory of a pool is in the order of the legacy default stream.
#[ffi_export]
unsafe fn devx_tensor_allocate_with(
    manager: *const ManagerHandle,
    device: DlDevice,
    dtype: DlDataType,
    shape: *const i64,
    ndim: usize,
    stream: i64,
    out: Option<Out<'_, *mut TensorHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let manager = unsafe { ManagerHandle::borrow(manager, "manager") }?;
        // SAFETY: the caller gives `ndim` extents.
        let shape = unsafe { list(shape, ndim, "shape") }?;
        let device = Device::from_dlpack(device.0)?;
        let dtype = DType::from_dlpack(dtype.0)?;
        // SAFETY: the caller's stream is alive.
        let stream = unsafe { stream_or_none(device, stream) }?;
        out.write(TensorHandle::give(Tensor::allocate_with(&**manager, device, dtype, shape, stream)?));
        Ok(())
    })
}

/// Pins existing host memory until `out` is released; the memory must be valid until then.
///
/// `host_flags` are `DEVX_HOST_...` bits; the managers of this library refuse `DEVX_HOST_WRITE_COMBINED`, which existing memory
/// cannot become.
#[ffi_export]
unsafe fn devx_manager_pin(
    manager: *const ManagerHandle,
    device_id: i32,
    address: *mut Void,
    bytes: usize,
    host_flags: u32,
    out: Option<Out<'_, OwnerRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let manager = unsafe { ManagerHandle::borrow(manager, "manager") }?;
        let flags = HostFlags::from_bits(host_flags)?;
        // SAFETY: the caller gives memory that outlives the owner.
        let owner = unsafe { manager.pin(device_id, address.cast(), bytes, flags) }?;
        out.write(OwnerRecord(owner.into_raw()));
        Ok(())
    })
}

/// Tells how much memory a manager has on a device.
///
/// DEVX_UNSUPPORTED if the manager cannot tell; one of host memory only never can.
#[ffi_export]
unsafe fn devx_manager_memory_info(
    manager: *const ManagerHandle,
    device_id: i32,
    out: Option<Out<'_, MemoryInfoRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let info = unsafe { ManagerHandle::borrow(manager, "manager") }?.memory_info(device_id)?;
        out.write(MemoryInfoRecord(info.to_raw()));
        Ok(())
    })
}

/// Gives the driver's handle of the allocation that contains an address from this manager.
///
/// For programs that send handles to other processes themselves. The memory must live until the other process has closed the
/// handle. `devx_ipc_server_offer_tensor` does all of that by itself, and also shares memory of pools, which has no such
/// handle.
#[ffi_export]
unsafe fn devx_manager_ipc_handle(
    manager: *const ManagerHandle,
    address: *const Void,
    out: Option<Out<'_, IpcHandleRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let found = unsafe { ManagerHandle::borrow(manager, "manager") }?.ipc_handle(address.cast())?;
        out.write(IpcHandleRecord(found.to_raw()));
        Ok(())
    })
}

/// Gives back all memory of a manager that belongs to a device, even if it is still in use.
///
/// The owners of this memory have nothing to do any more. Plain host memory belongs to no device, and stays. Nobody may use
/// what is given back after this call, and no other thread may give it up during the call. If cleanup was deferred, no other
/// thread may resume it, trim or allocate during the call either, because that may give back what was kept. A limited manager
/// also resets the manager that it allocates from, including the memory that others have from that one.
///
/// Call this before a reset of the device itself (`cudaDeviceReset`, `cuDevicePrimaryCtxReset`), which takes its memory. What
/// is given up only after such a reset is unknown to the driver and counts as lost (`devx_releases_lost`), or the driver has
/// given it to somebody else since.
#[ffi_export]
unsafe fn devx_manager_reset(manager: *const ManagerHandle, device_id: i32, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let manager = unsafe { ManagerHandle::borrow(manager, "manager") }?;
        // SAFETY: as documented, the caller sees to it that nobody uses the memory any more.
        unsafe { manager.reset(device_id) }
    })
}

/// Gives unused memory of a device back to the driver, except for `keep` bytes.
#[ffi_export]
unsafe fn devx_manager_trim(
    manager: *const ManagerHandle,
    device_id: i32,
    keep: usize,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { ManagerHandle::borrow(manager, "manager") }?.trim(device_id, keep))
}

/// Holds back memory that is given up until `devx_manager_resume_cleanup` has been called as often as this function.
///
/// Memory that is held back counts as given back, also for a limit (`devx_manager_create_limited`). Memory in the order of a
/// stream still goes back to its pool at once, and memory of `devx_manager_pin` is unpinned at once. `devx_manager_trim` gives
/// back what is held back, and so does a manager of this library that runs out of memory.
#[ffi_export]
unsafe fn devx_manager_defer_cleanup(manager: *const ManagerHandle, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        unsafe { ManagerHandle::borrow(manager, "manager") }?.defer_cleanup();
        Ok(())
    })
}

/// Ends one `devx_manager_defer_cleanup` of the same manager (DEVX_INVALID_ARGUMENT if there is none).
///
/// It never ends a deferral of another manager that allocates from this one, or of the manager that this one allocates from. A
/// limited manager that is gone defers nothing any more.
#[ffi_export]
unsafe fn devx_manager_resume_cleanup(manager: *const ManagerHandle, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        unsafe { ManagerHandle::borrow(manager, "manager") }?.resume_cleanup()
    })
}

/// Tells how much a manager has allocated and got back.
#[ffi_export]
unsafe fn devx_manager_get_statistics(
    manager: *const ManagerHandle,
    out: Option<Out<'_, StatisticsRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let now = unsafe { ManagerHandle::borrow(manager, "manager") }?.statistics();
        out.write(StatisticsRecord(now.to_raw()));
        Ok(())
    })
}

/// Releases a manager and sets the handle to NULL; memory from it stays valid. NULL and a handle that is NULL are fine.
#[ffi_export]
unsafe fn devx_manager_release(manager: Option<&mut *mut ManagerHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { ManagerHandle::take(manager) }));
}
