//! Managers of every kind: initialised, allocated from, pinned with, queried, deferred, trimmed and reset.

use devexchange_core::abi::types::DEVX_UNSUPPORTED;
use devexchange_core::manager::{Deferred, Driver, HostFlags, Limited, Manager, Pool, PoolOptions, Request, Shared};
use devexchange_core::{DType, Device, DeviceType, Error, Result, Tensor};
use devexchange_tests::foreign::CUDA0;
use devexchange_tests::sim;

use super::N;
use super::scene::{Scene, unused};

/// Whether memory without a stream is an allocation with a handle for other processes.
#[derive(Clone, Copy, PartialEq)]
enum Memory {
    Plain,
    OfPool,
    Managed,
    HostOnly,
}

pub(super) fn driver(scene: &Scene) {
    all(scene, shared(Driver::new()), Memory::Plain);
}

pub(super) fn managed(scene: &Scene) {
    all(scene, shared(Driver::managed()), Memory::Managed);
}

pub(super) fn host_only(scene: &Scene) {
    all(scene, shared(Driver::host_only()), Memory::HostOnly);
}

pub(super) fn pool(scene: &Scene) {
    all(scene, shared(Pool::new(PoolOptions::default())), Memory::OfPool);
}

pub(super) fn shareable_pool(scene: &Scene) {
    all(scene, shared(Pool::shareable(PoolOptions { limit: 1 << 20, keep: 0 })), Memory::OfPool);
}

pub(super) fn limited(scene: &Scene) {
    all(scene, shared(Limited::new(shared(Driver::new()), 1 << 20)), Memory::Plain);
}

fn shared(manager: Result<impl Manager + 'static>) -> Shared {
    manager.and_then(Shared::new).expect("room for a manager")
}

/// A feature that the manager does not have is not a fault.
fn note<T>(scene: &Scene, result: Result<T>) -> Option<T> {
    let had = |error: &Error| error.status() == DEVX_UNSUPPORTED && error.driver_code() == 0;
    if result.as_ref().is_err_and(had) { None } else { scene.note(result) }
}

fn all(scene: &Scene, manager: Shared, memory: Memory) {
    note(scene, manager.initialize(0));
    let device = if memory == Memory::HostOnly { Device::CPU } else { CUDA0 };
    let streams = if memory == Memory::HostOnly { vec![None] } else { vec![None, Some(scene.on())] };
    for stream in streams {
        let made = Tensor::allocate_with(&*manager, device, DType::UINT8, &[N as i64], stream);
        if let Some(tensor) = note(scene, made)
            && device == CUDA0
        {
            if memory == Memory::Plain && stream.is_none() {
                note(scene, manager.ipc_handle(tensor.data()));
            }
            note(scene, tensor.wait(sim::on(scene.consumer)));
            note(scene, tensor.used_on(sim::on(scene.consumer)));
        }
    }
    let pinned = note(scene, manager.allocate(&Request::of(DeviceType::CUDA_HOST, 0, N as usize)));
    // Never freed: memory that could not be unpinned stays pinned, and no other memory may get its address.
    let own = Box::leak(vec![0_u8; N as usize].into_boxed_slice());
    let flags = HostFlags { portable: true, ..HostFlags::default() };
    let kept = note(scene, unsafe { manager.pin(0, own.as_mut_ptr().cast(), own.len(), flags) });
    note(scene, manager.memory_info(0));
    {
        let _deferred = Deferred::new(&*manager);
        drop(pinned);
        drop(note(scene, manager.allocate(&Request::of(device.kind, 0, N as usize))));
    }
    note(scene, manager.trim(0, 0));
    let in_use = note(scene, manager.allocate(&Request::of(device.kind, 0, N as usize)));
    drop(kept);
    note(scene, unsafe { manager.reset(0) });
    drop(in_use);
    let now = manager.statistics();
    assert_eq!((now.bytes, now.allocations), (0, 0), "{now:?}");
    drop(manager);
    unused(scene, &[0, 1]);
}
