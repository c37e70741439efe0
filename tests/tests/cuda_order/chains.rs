//! Several sources, conversions, chains and copies.

use super::*;

// ---- several sources, conversions, chains ----

#[test]
fn several_producers_are_merged_into_one_order() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (first, second, third) = (Scene::new(), Scene::new(), Scene::new());
        let (a, b) = (first.tensor(), second.batch());
        let mut array = third.arrow();
        let c = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported");
        let merged = Ready::merge([a.ready(), b.ready(), c.ready()], sim::on(first.consumer)).expect("merged");
        merged.wait(sim::on(second.consumer)).expect("waits");
        for scene in [&first, &second, &third] {
            scene.consume(second.consumer);
        }
        drop((a, b, c));
        [first, second, third].into_iter().for_each(Scene::end);
    });
}

#[test]
fn conversions_keep_the_order() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let column = convert::column(&scene.tensor(), "x", Copying::Never).expect("a view");
        column.wait(sim::on(scene.consumer)).expect("waits");
        scene.consume(scene.consumer);
        let tensor = convert::tensor(column.root(), Copying::Never).expect("a view");
        let other = sim::stream();
        tensor.wait(sim::on(other)).expect("waits");
        scene.consume(other);
        drop((column, tensor));
        sim::destroy(other);
        scene.end();
    });
}

#[test]
fn chains_through_both_protocols_keep_the_order() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let middle = sim::stream();
        // DLPack in, Arrow out, Arrow in, DLPack out.
        let tensor = imported(&scene, middle as i64, true);
        sim::fill(scene.data, 0x5a, N, middle);
        let column = convert::column(&tensor, "x", Copying::Never).expect("a view");
        drop(tensor);
        let schema = column.schema().clone();
        let mut array = export_arrow(column);
        let batch = unsafe { Batch::import_device(&raw mut array, &schema) }.expect("imported");
        let tensor = convert::tensor(batch.root(), Copying::Never).expect("a view");
        drop(batch);
        let exported = export::<DLManagedTensorVersioned>(tensor, scene.consumer as i64);
        scene.consume(scene.consumer);
        drop(exported);
        sim::destroy(middle);
        scene.end();
    });
}

#[test]
fn copies_keep_the_order() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let (tensor, batch) = (scene.tensor(), scene.batch());
        let stream = sim::on(scene.consumer);
        let device = tensor.copy_to(CUDA0, stream).expect("copied");
        let pinned = tensor.copy_to(Device { kind: DeviceType::CUDA_HOST, id: 0 }, stream).expect("copied");
        let managed = tensor.copy_to(Device { kind: DeviceType::CUDA_MANAGED, id: 0 }, stream).expect("copied");
        let host = tensor.copy_to(Device::CPU, stream).expect("copied");
        let batches = batch.copy_to(CUDA0, stream).expect("copied").copy_to(Device::CPU, stream).expect("copied");
        assert_eq!(host.as_slice::<u8>().expect("ready"), [0x5a; N as usize]);
        assert_eq!(batches.root().values::<u8>().expect("ready"), [0x5a; N as usize]);
        let back = device.copy_to(Device::CPU, sim::on(scene.producer)).expect("copied");
        assert_eq!(back.as_slice::<u8>().expect("ready"), [0x5a; N as usize]);
        assert_eq!(pinned.as_slice::<u8>().expect("the host has waited for a later copy"), [0x5a; N as usize]);
        drop((tensor, batch, device, pinned, managed, host, back));
        scene.end();
    });
}

/// The host reads memory that it shares with the device once the queued work is done; the read does not wait for that
/// work.
#[test]
fn memory_that_the_host_shares_is_read_when_it_is_ready() {
    let session = Session::new();
    let not_ready = Cell::new(0);
    for kind in [DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED] {
        session.each(SEEDS, || {
            let scene = Scene::new();
            let (device, stream) = (Device { kind, id: 0 }, sim::on(scene.consumer));
            let tensor = scene.tensor().copy_to(device, stream).expect("copied");
            let batch = scene.batch().copy_to(device, stream).expect("copied");
            let mut exported = MaybeUninit::<ArrowDeviceArray>::uninit();
            unsafe { batch.clone().export_device(exported.as_mut_ptr()) }.expect("exported");
            let behind_an_event =
                unsafe { Batch::import_device(exported.as_mut_ptr(), batch.schema()) }.expect("imported");
            let mut legacy = scene.tensor().copy_to(device, sim::on(LEGACY as u64)).expect("copied");
            unsafe { legacy.produced_on(sim::on(LEGACY as u64)) }.expect("not shared");
            let reads = || {
                [
                    tensor.as_slice::<u8>(),
                    batch.root().values::<u8>(),
                    behind_an_event.root().values::<u8>(),
                    legacy.as_slice::<u8>(),
                ]
            };
            for read in reads() {
                match read {
                    Ok(bytes) => assert_eq!(bytes, [0x5a; N as usize]),
                    Err(error) => {
                        assert_eq!(error.status(), DEVX_NOT_READY);
                        not_ready.update(|n| n + 1);
                    }
                }
            }
            sim::synchronize(scene.consumer);
            sim::synchronize(LEGACY as u64);
            for read in reads() {
                assert_eq!(read.expect("ready"), [0x5a; N as usize]);
            }
            drop((tensor, batch, behind_an_event, legacy));
            scene.end();
        });
    }
    assert!(sim::goes_on() || not_ready.get() > 0);
}

#[test]
fn copies_that_nobody_reads_are_no_race() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let tensor = scene.tensor();
        for kind in [DeviceType::CUDA, DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED] {
            drop(tensor.copy_to(Device { kind, id: 0 }, sim::on(scene.consumer)).expect("copied"));
            drop(scene.batch().copy_to(Device { kind, id: 0 }, sim::on(scene.consumer)).expect("copied"));
        }
        drop(tensor);
        sim::settle();
        scene.end();
    });
}
