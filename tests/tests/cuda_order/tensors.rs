//! Tensors that are exported and imported through DLPack.

use super::*;

#[test]
fn dlpack_export_for_every_stream_of_a_consumer() {
    let session = Session::new();
    for value in [LEGACY, PER_THREAD, 0] {
        session.each(SEEDS, || {
            let scene = Scene::new();
            // 0 stands for a handle here.
            let stream = if value == 0 { scene.consumer as i64 } else { value };
            let exported = export::<DLManagedTensorVersioned>(scene.tensor(), stream);
            scene.consume(stream as u64);
            drop(exported);
            scene.end();
        });
    }
    session.each(SEEDS, || {
        let scene = Scene::new();
        let exported = export::<DLManagedTensor>(scene.tensor(), scene.consumer as i64);
        scene.consume(scene.consumer);
        drop(exported);
        scene.end();
    });
}

/// As if the memory were the program's own.
#[test]
fn new_memory_is_filled_on_the_legacy_stream_without_a_word() {
    let session = Session::new();
    let with = |manager: &dyn Manager| Tensor::allocate_with(manager, CUDA0, DType::UINT8, &[N as i64], None);
    let allocate: [&dyn Fn() -> devexchange_core::Result<Tensor>; 3] =
        [&|| Tensor::allocate(CUDA0, DType::UINT8, &[N as i64], None), &|| with(&Driver::new()?), &|| {
            with(&Pool::new(PoolOptions::default())?)
        }];
    for allocate in allocate {
        session.each(SEEDS, || {
            let tensor = allocate().expect("allocated");
            let (data, consumer, scratch) = (tensor.data() as u64, sim::stream(), sim::alloc(N));
            sim::fill(data, 0x5a, N, LEGACY as u64);
            let exported = export::<DLManagedTensorVersioned>(tensor, consumer as i64);
            sim::copy(scratch, data, N, consumer);
            let seen = exported.import().expect("imported");
            seen.used_on(sim::on(consumer)).expect("used");
            drop(seen);
            assert_eq!(sim::download(scratch, N, consumer), [0x5a; N as usize]);
            sim::free(scratch);
            sim::settle();
            sim::destroy(consumer);
        });
    }
}

#[test]
fn dlpack_export_without_synchronisation() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let exported = export::<DLManagedTensorVersioned>(scene.tensor(), -1);
        // The consumer synchronises by itself.
        sim::synchronize(scene.producer);
        scene.consume(scene.consumer);
        drop(exported);
        scene.end();
    });
}

#[test]
fn dlpack_export_without_synchronisation_is_seen() {
    Session::new().races(TWINS, || {
        let scene = Scene::new();
        let exported = export::<DLManagedTensorVersioned>(scene.tensor(), -1);
        consume_blindly(&scene, scene.consumer);
        drop(exported);
        scene.end();
    });
}

/// A consumer that imports with this library, without a stream, learns when the data is ready.
#[test]
fn dlpack_within_rust_keeps_the_order() {
    fn handed_over<M: Managed>() {
        let scene = Scene::new();
        let source = scene.tensor();
        // Exports the last reference, and one of several; again and again.
        let others = source.clone();
        let exported = [source, others].map(|tensor| export::<M>(tensor, -1));
        for exported in exported {
            let tensor = export::<M>(exported.import().expect("imported"), -1).import().expect("imported");
            assert_eq!(tensor.as_slice::<u8>().expect_err("of a device").status(), DEVX_DEVICE);
            tensor.wait(sim::on(scene.consumer)).expect("queued");
            scene.consume(scene.consumer);
        }
        scene.end();
    }
    let session = Session::new();
    session.each(SEEDS, || {
        handed_over::<DLManagedTensor>();
        handed_over::<DLManagedTensorVersioned>();
    });
}

#[test]
fn dlpack_export_for_a_stream_that_is_none() {
    let _session = Session::new();
    let scene = Scene::new();
    let mut tensor = scene.tensor();
    for value in [0, -2, i64::MIN] {
        let refused = dlpack::export::<DLManagedTensorVersioned>(tensor, &request(value)).expect_err("no such stream");
        assert_eq!(refused.error.status(), DEVX_INVALID_STREAM, "{}", refused.error);
        assert!(refused.error.message().contains(&value.to_string()), "{}", refused.error);
        tensor = refused.returned;
    }
    drop(tensor);
    scene.end();
}

#[test]
fn dlpack_import_on_a_stream_and_export_for_another() {
    let session = Session::new();
    for value in [LEGACY, PER_THREAD, 0] {
        session.each(SEEDS, || {
            let scene = Scene::new();
            let other = sim::stream();
            let stream = if value == 0 { other as i64 } else { value };
            let tensor = imported(&scene, stream, true);
            // Our own work in between, which the next consumer must see.
            sim::fill(scene.data, 0x11, N, stream as u64);
            sim::fill(scene.data, 0x5a, N, stream as u64);
            let exported = export::<DLManagedTensorVersioned>(tensor, scene.consumer as i64);
            scene.consume(scene.consumer);
            drop(exported);
            sim::destroy(other);
            scene.end();
        });
    }
}

#[test]
fn dlpack_import_of_a_producer_that_did_not_wait_is_seen() {
    Session::new().races(TWINS, || {
        let scene = Scene::new();
        let other = sim::stream();
        let exported = export::<DLManagedTensorVersioned>(imported(&scene, other as i64, false), scene.consumer as i64);
        consume_blindly(&scene, scene.consumer);
        drop(exported);
        sim::destroy(other);
        scene.end();
    });
}

#[test]
fn dlpack_without_a_stream_is_the_legacy_default_stream() {
    let session = Session::new();
    for stream in [None, Some(NO_SYNC)] {
        session.each(SEEDS, || {
            let scene = Scene::new();
            sim::synchronize(scene.producer);
            sim::fill(scene.data, 0x5a, N, LEGACY as u64);
            let managed = foreign::dlpack(scene.data, N, CUDA0, || ());
            let tensor = unsafe { dlpack::import_on(managed.as_ptr(), stream.map(sim::raw)) }.expect("imported");
            let exported = export::<DLManagedTensorVersioned>(tensor, scene.consumer as i64);
            scene.consume(scene.consumer);
            drop(exported);
            scene.end();
        });
    }
}

/// The number 2 means a different stream on every thread.
#[test]
fn per_thread_streams_of_two_threads_are_two_streams() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        sim::synchronize(scene.producer);
        sim::fill(scene.data, 0x5a, N, PER_THREAD as u64);
        let tensor = foreign::tensor_behind(PER_THREAD as u64, scene.data, N, CUDA0, || ());
        std::thread::scope(|scope| {
            let consumer = scope.spawn(|| {
                sim::set_current(sim::primary(0));
                let exported = export::<DLManagedTensorVersioned>(tensor.clone(), PER_THREAD);
                scene.consume(PER_THREAD as u64);
                drop(exported);
            });
            consumer.join().expect("the consumer");
        });
        drop(tensor);
        scene.end();
    });
}

/// The legacy stream stands for that of another thread, but only work on it is promised to come after the other one's.
#[test]
fn the_host_waits_for_the_default_stream_of_another_thread() {
    let session = Session::new();
    let managed = Device { kind: DeviceType::CUDA_MANAGED, id: 0 };
    for waits in [true, false] {
        session.each(SEEDS, || {
            let mut data = 0_u64;
            cu_ok!("cuMemAllocManaged", &raw mut data, N, 1);
            let produce = || {
                sim::set_current(sim::primary(0));
                sim::fill(data, 0x5a, N, PER_THREAD as u64);
                let stream = sim::on(PER_THREAD as u64);
                (foreign::tensor_behind(PER_THREAD as u64, data, N, managed, move || sim::free(data)), stream)
            };
            let (tensor, stream) = std::thread::scope(|scope| scope.spawn(produce).join().expect("the producer"));
            let mut seen = [0; N as usize];
            if waits {
                stream.synchronize().expect("waited");
                tensor.read(&mut seen, None).expect("it is done");
            } else {
                while tensor.read(&mut seen, None).is_err() {}
            }
            sim::host_access(data, N, false);
            assert_eq!(seen, [0x5a; N as usize]);
        });
    }
}

#[test]
fn streams_of_another_device_wait_too() {
    let session = Session::new();
    if sim::skipped("this part needs two devices") {
        return;
    }
    session.each(SEEDS, || {
        let scene = Scene::new();
        sim::set_current(sim::primary(1));
        let other = sim::stream();
        sim::set_current(0);
        let tensor = scene.tensor();
        tensor.wait(sim::on_device(1, other)).expect("waits");
        let copy = {
            let device = Device { kind: DeviceType::CUDA, id: 1 };
            tensor.copy_to(device, sim::on_device(1, other)).expect("copied")
        };
        let mut seen = vec![0; N as usize];
        copy.read(&mut seen, Some(Stream::legacy(1))).expect("read");
        assert!(seen.iter().all(|byte| *byte == 0x5a));
        drop((copy, tensor));
        assert_eq!(sim::current(), 0);
        sim::set_current(sim::primary(0));
        sim::settle();
        sim::destroy(other);
        scene.end();
    });
}

#[test]
fn without_a_stream_the_host_reads_and_writes_what_is_ready_for_it() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let mut seen = vec![0; N as usize];
        let on_device = scene.tensor();
        assert_eq!(on_device.read(&mut seen, None).expect_err("device memory").status(), DEVX_DEVICE);
        assert_eq!(unsafe { on_device.write(&seen, None) }.expect_err("device memory").status(), DEVX_DEVICE);
        let pinned =
            on_device.copy_to(Device { kind: DeviceType::CUDA_HOST, id: 0 }, sim::on(scene.consumer)).expect("copied");
        match pinned.read(&mut seen, None) {
            Ok(()) => assert!(seen.iter().all(|byte| *byte == 0x5a), "the copy was done already"),
            Err(error) => assert_eq!(error.status(), DEVX_NOT_READY, "{error}"),
        }
        sim::synchronize(scene.consumer);
        unsafe { pinned.write(&[7; N as usize], None) }.expect("written");
        pinned.read(&mut seen, None).expect("read");
        assert_eq!(seen, [7; N as usize]);
        drop((on_device, pinned));
        scene.end();
    });
}

#[test]
fn later_work_on_the_stream_keeps_nobody_from_reading_a_copy_in_host_memory() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let (tensor, batch) = (scene.tensor(), scene.batch());
        for kind in [DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED] {
            let (device, stream) = (Device { kind, id: 0 }, sim::on(scene.consumer));
            let (tensor, batch) =
                (tensor.copy_to(device, stream).expect("copied"), batch.copy_to(device, stream).expect("copied"));
            sim::synchronize(scene.consumer);
            sim::fill(scene.scratch, 1, N, scene.consumer);
            let mut seen = vec![0; N as usize];
            tensor.read(&mut seen, None).expect("the copy is done");
            assert!(seen.iter().all(|byte| *byte == 0x5a), "{seen:x?}");
            drop(batch.copy().expect("the copy is done"));
            sim::synchronize(scene.consumer);
        }
        drop((tensor, batch));
        scene.end();
    });
}
