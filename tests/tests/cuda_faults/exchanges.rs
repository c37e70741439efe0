//! Imports, exports, conversions, copies, allocations and releases, in Rust.

use std::mem::MaybeUninit;

use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::arrow::release_array;
use devexchange_core::dlpack::{self, Copying, Request};
use devexchange_core::order::Ready;
use devexchange_core::runtime::cuda::info;
use devexchange_core::{Batch, DType, Device, DeviceType, Tensor, convert};
use devexchange_tests::foreign::{self, CUDA0, bytes_schema};
use devexchange_tests::{cu, sim};

use super::N;
use super::scene::{Scene, give_back, unused};

const KINDS: [DeviceType; 3] = [DeviceType::CUDA, DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED];

fn device(kind: DeviceType) -> Device {
    Device { kind, id: 0 }
}

pub(super) fn export(scene: &Scene) {
    let request = Request { stream: sim::raw(scene.stream()), ..Request::default() };
    drop(scene.note(dlpack::export::<DLManagedTensorVersioned>(scene.tensor(), &request).map_err(Into::into)));
    let shared = scene.tensor();
    scene.note(shared.wait(scene.on()));
    drop(scene.note(dlpack::export::<DLManagedTensorVersioned>(shared, &request).map_err(Into::into)));
    let mut out = MaybeUninit::<ArrowDeviceArray>::uninit();
    if scene.note(unsafe { scene.batch().export_device(out.as_mut_ptr()) }.map_err(Into::into)).is_some() {
        let mut array = unsafe { out.assume_init() };
        let batch = scene.note(unsafe { Batch::import_device(&raw mut array, &bytes_schema()) });
        if let Some(batch) = batch {
            scene.note(batch.wait(scene.on()));
            let mut again = MaybeUninit::<ArrowDeviceArray>::uninit();
            if scene.note(unsafe { batch.export_device(again.as_mut_ptr()) }.map_err(Into::into)).is_some() {
                unsafe { release_array(&raw mut (*again.as_mut_ptr()).array) };
            }
        } else {
            unsafe { release_array(&raw mut array.array) };
        }
    }
    unused(scene, &[0, 1]);
}

pub(super) fn import(scene: &Scene) {
    let managed = scene.foreign_tensor();
    match scene.note(unsafe { dlpack::import_on(managed, Some(sim::raw(scene.stream()))) }) {
        Some(tensor) => {
            scene.note(tensor.check_pointers());
            scene.note(tensor.wait(scene.on()));
            scene.note(tensor.wait(sim::on(scene.producer)));
            scene.note(tensor.used_on(sim::on(scene.producer)));
        }
        None => give_back(managed),
    }
    let mut array = scene.foreign_array(1, scene.event);
    match scene.note(unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }) {
        Some(batch) => {
            scene.note(batch.check_pointers());
            scene.note(batch.wait(scene.on()));
            scene.note(Ready::merge([batch.ready(), scene.tensor().ready()], scene.on()));
            scene.note(batch.used_on(scene.on()));
        }
        None => unsafe { release_array(&raw mut array.array) },
    }
    scene.note(Device::new(DeviceType::CUDA, 0));
}

pub(super) fn conversion(scene: &Scene) {
    let managed = scene.foreign_tensor();
    let Some(tensor) = scene.note(unsafe { dlpack::import_on(managed, Some(sim::raw(scene.stream()))) }) else {
        give_back(managed);
        return unused(scene, &[1]);
    };
    if let Some(column) = scene.note(convert::column(&tensor, "x", Copying::Never)) {
        scene.note(column.used_on(scene.on()));
        let mut out = MaybeUninit::<ArrowDeviceArray>::uninit();
        if scene.note(unsafe { column.clone().export_device(out.as_mut_ptr()) }.map_err(Into::into)).is_some() {
            unsafe { release_array(&raw mut (*out.as_mut_ptr()).array) };
        }
        if let Some(view) = scene.note(convert::tensor(column.root(), Copying::Never)) {
            scene.note(view.wait(sim::on(scene.producer)));
            scene.note(view.used_on(sim::on(scene.producer)));
            let request = Request { stream: sim::raw(scene.producer as i64), ..Request::default() };
            drop(scene.note(dlpack::export::<DLManagedTensorVersioned>(view, &request).map_err(Into::into)));
        }
    }
    unused(scene, &[1]);
}

pub(super) fn copy(scene: &Scene) {
    // The producer may release the source of a copy as soon as the handle is gone.
    let tensor = {
        let (address, release) = scene.release_of(0);
        foreign::tensor_behind(scene.producer, address, N, CUDA0, release)
    };
    let batch = {
        let (address, release) = scene.release_of(1);
        foreign::batch_behind(scene.producer, address, N, CUDA0, release)
    };
    for kind in KINDS {
        if let Some(there) = scene.note(tensor.copy_to(device(kind), scene.on())) {
            drop(scene.note(there.copy_to(Device::CPU, sim::on(scene.producer))));
        }
        drop(scene.note(batch.copy_to(device(kind), scene.on())));
    }
    drop(scene.note(batch.copy_to(Device::CPU, scene.on())));
    drop((tensor, batch));
}

pub(super) fn upload(scene: &Scene) {
    let host = Tensor::from_vec(vec![1_u8; N as usize], &[N as i64]).expect("a tensor");
    for kind in KINDS {
        if let Some(tensor) = scene.note(host.copy_to(device(kind), scene.on())) {
            let mut bytes = vec![0; N as usize];
            scene.note(unsafe { tensor.write(&bytes, Some(sim::on(scene.producer))) });
            scene.note(tensor.read(&mut bytes, Some(sim::on(scene.producer))));
        }
    }
    unused(scene, &[0, 1]);
}

pub(super) fn allocation(scene: &Scene) {
    for kind in KINDS {
        for stream in [None, Some(scene.on())] {
            if let Some(tensor) = scene.note(Tensor::allocate(device(kind), DType::UINT8, &[N as i64], stream)) {
                scene.note(tensor.wait(sim::on(scene.consumer)));
                scene.note(tensor.used_on(sim::on(scene.consumer)));
            }
        }
    }
    scene.note(info::device_info(0));
    scene.note(info::memory_info(0));
    scene.note(info::driver_version());
    unused(scene, &[0, 1]);
}

pub(super) fn release(scene: &Scene) {
    let tensor = scene.foreign_tensor();
    let mut array = scene.foreign_array(1, 0);
    let tensor = scene
        .note(unsafe { dlpack::import_on(tensor, Some(sim::raw(scene.stream()))) })
        .expect("no call of the driver");
    let batch = scene.note(unsafe { Batch::import_device(&raw mut array, &bytes_schema()) });
    let batch = batch.expect("no call of the driver");
    // Queued work may use the memory: the last handle may be dropped only if the use could be noted.
    for (stream, used) in [(scene.on(), scene.stream() as u64), (sim::on(scene.producer), scene.producer)] {
        if cu!("cuMemcpyDtoDAsync_v2", scene.scratch, tensor.data() as u64, 0, used) == 0
            && scene.note(tensor.used_on(stream)).is_none()
        {
            // What a consumer does when it learns that its work was not noted.
            scene.note(stream.synchronize());
        }
        scene.note(batch.used_on(stream));
    }
    drop((tensor, batch));
}
