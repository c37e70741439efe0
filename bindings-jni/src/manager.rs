//! Memory managers, and memory from them. The manager that Java implements is in [`allocator`].

use devexchange_core::abi::types::{DevxIpcHandle, DevxManagerStatistics, DevxMemoryInfo, DevxMemoryRequest};
use devexchange_core::manager::{
    Allocated, Driver, Limited, Manager, Pool, PoolOptions, Request, Shared, limit_from_raw,
};
use devexchange_core::{Owner, Tensor};
use jni::sys::{jint, jlong};

use crate::allocator;
use crate::boxed::{Held, Room, held, hold};
use crate::device::pack;
use crate::error::{Result, refuse};
use crate::handle::{give, take};
use crate::native::plain;
use crate::queue::{cancel, try_owner};
use crate::stream::optional;
use crate::tensor::wanted;

impl Held for Shared {
    const CLASS: &'static str = "MemoryManager";
    const NOUN: &'static str = "manager";
}

/// Memory that a manager allocated or pinned; dropping this gives it back or unpins it.
struct Memory {
    _owner: Owner,
    /// Keeps pinned Java-owned memory alive; dropped after the memory is unpinned.
    _kept: Owner,
}

impl Held for Memory {
    const CLASS: &'static str = "Memory";
    const NOUN: &'static str = "memory";
}

/// Defers cleanup as long as this lives.
struct Deferred(Shared);

impl Drop for Deferred {
    fn drop(&mut self) {
        // Each scope ends the one deferral that it began, so it is not refused.
        drop(self.0.resume_cleanup());
    }
}

impl Held for Deferred {
    const CLASS: &'static str = "DeferredCleanup";
    const NOUN: &'static str = "scope";
}

fn share(manager: impl Manager + 'static) -> Result<jlong> {
    hold(Shared::new(manager)?)
}

plain! { manager_driver() -> jlong }
/// Makes a manager of every kind of memory, from the driver.
fn manager_driver() -> Result<jlong> {
    share(Driver::new()?)
}

plain! { manager_managed() -> jlong }
/// Makes a manager that gives managed memory in place of device memory.
fn manager_managed() -> Result<jlong> {
    share(Driver::managed()?)
}

plain! { manager_host_only() -> jlong }
/// Makes a manager of host memory.
fn manager_host_only() -> Result<jlong> {
    share(Driver::host_only()?)
}

plain! { manager_pool(limit: jlong, keep: jlong, shareable: jboolean) -> jlong }
/// Makes a manager with its own pools; −1 is no limit.
fn manager_pool(limit: jlong, keep: jlong, shareable: bool) -> Result<jlong> {
    let options = PoolOptions::from_raw(limit, keep)?;
    share(if shareable { Pool::shareable(options) } else { Pool::new(options) }?)
}

plain! { manager_limited(inner: jlong, limit: jlong) -> jlong }
/// Makes a manager that limits another one, which is shared; with −1 it only counts.
fn manager_limited(inner: jlong, limit: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let inner = Shared::clone(unsafe { held::<Shared>(inner) }?);
    share(Limited::new(inner, limit_from_raw(limit)?)?)
}

plain! { manager_create(token: jlong) -> jlong }
/// Makes a manager that asks Java with a token, which is released with the manager and all its memory. If this fails,
/// the token is not released.
fn manager_create(token: jlong) -> Result<jlong> {
    let room = Room::new()?;
    Ok(room.hold(allocator::manager(token)?))
}

plain! { manager_initialize(handle: jlong, device_id: jint) }
/// Prepares for allocations on a device.
fn manager_initialize(handle: jlong, device_id: jint) -> Result<()> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { held::<Shared>(handle) }?.initialize(device_id)?)
}

plain! { manager_allocate(handle: jlong, request: jlong, out: jlong) -> jlong }
/// Allocates memory and returns a handle. `request` is the address of a record. Writes two longs: address and device.
fn manager_allocate(handle: jlong, request: jlong, out: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let manager = unsafe { held::<Shared>(handle) }?;
    // SAFETY: Java gives the address of a record that it filled in.
    let request = unsafe { &*take::<DevxMemoryRequest>(request) };
    // SAFETY: and the stream in it is alive.
    let request = unsafe { Request::from_raw(request) }?;
    let Allocated { address, device, owner, .. } = manager.allocate_ready(&request)?;
    // SAFETY: Java gives the address of room for two longs.
    unsafe { take::<[jlong; 2]>(out).write_unaligned([give(address), pack(device.kind.0, device.id)]) };
    hold(Memory { _owner: owner, _kept: Owner::none() })
}

plain! { tensor_allocate_with(manager: jlong, description: jlong, stream: jlong) -> jlong }
/// Same as `tensor_allocate`, over memory of a manager.
fn tensor_allocate_with(manager: jlong, description: jlong, stream: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let manager = unsafe { held::<Shared>(manager) }?;
    // SAFETY: Java gives the address of a description that is valid during the call.
    let (device, dtype, shape) = unsafe { wanted(description) }?;
    // SAFETY: Java gives a living handle, or none.
    let stream = unsafe { optional(stream, |number| device.stream_with(device, number)) }?;
    Ok(give(Tensor::allocate_with(&**manager, device, dtype, shape, stream)?.into_raw()))
}

plain! { manager_pin(handle: jlong, request: jlong, address: jlong, token: jlong) -> jlong }
/// Pins existing host memory; a record gives its size and the flags. `token` stands for what keeps the memory alive; if
/// this fails, the token is not released.
fn manager_pin(handle: jlong, request: jlong, address: jlong, token: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let manager = unsafe { held::<Shared>(handle) }?;
    // SAFETY: Java gives the address of a record that it filled in.
    let request = unsafe { &*take::<DevxMemoryRequest>(request) };
    // SAFETY: and the stream in it is alive.
    let request = unsafe { Request::from_raw(request) }?;
    let (room, kept) = (Room::new()?, try_owner(token)?);
    // SAFETY: Java's caller guarantees memory that outlives the result.
    match unsafe { manager.pin(request.ordinal, take(address), request.bytes, request.host) } {
        Ok(pinned) => Ok(room.hold(Memory { _owner: pinned, _kept: kept })),
        Err(error) => {
            cancel(kept);
            Err(error.into())
        }
    }
}

plain! { manager_memory_info(handle: jlong, device_id: jint, out: jlong) }
/// Writes how much memory the manager has.
fn manager_memory_info(handle: jlong, device_id: jint, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let info = unsafe { held::<Shared>(handle) }?.memory_info(device_id)?;
    // SAFETY: Java gives the address of room for the record.
    unsafe { take::<DevxMemoryInfo>(out).write(info.to_raw()) };
    Ok(())
}

plain! { manager_ipc_handle(handle: jlong, address: jlong, out: jlong) }
/// Writes the handle of the allocation that contains an address.
fn manager_ipc_handle(handle: jlong, address: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let found = unsafe { held::<Shared>(handle) }?.ipc_handle(take(address))?;
    // SAFETY: Java gives the address of room for the record.
    unsafe { take::<DevxIpcHandle>(out).write(found.to_raw()) };
    Ok(())
}

plain! { manager_reset(handle: jlong, device_id: jint) }
/// Gives back all memory of a device.
fn manager_reset(handle: jlong, device_id: jint) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let manager = unsafe { held::<Shared>(handle) }?;
    // SAFETY: as documented, the program must ensure that nobody uses the memory any more.
    Ok(unsafe { manager.reset(device_id) }?)
}

plain! { manager_trim(handle: jlong, device_id: jint, keep: jlong) }
/// Gives back unused memory of a device, except for `keep` bytes.
fn manager_trim(handle: jlong, device_id: jint, keep: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let manager = unsafe { held::<Shared>(handle) }?;
    let Ok(keep) = usize::try_from(keep) else {
        return refuse!(DEVX_INVALID_ARGUMENT, "keep is {keep}: it must not be negative");
    };
    Ok(manager.trim(device_id, keep)?)
}

plain! { manager_defer_cleanup(handle: jlong) -> jlong }
/// Defers cleanup; returns a handle whose release ends that.
fn manager_defer_cleanup(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    let manager = Shared::clone(unsafe { held::<Shared>(handle) }?);
    manager.defer_cleanup();
    hold(Deferred(manager))
}

plain! { manager_statistics(handle: jlong, out: jlong) }
/// Writes the numbers of allocations that were made and given back.
fn manager_statistics(handle: jlong, out: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    let now = unsafe { held::<Shared>(handle) }?.statistics();
    // SAFETY: Java gives the address of room for the record.
    unsafe { take::<DevxManagerStatistics>(out).write(now.to_raw()) };
    Ok(())
}
