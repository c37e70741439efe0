//! Captures, contexts and threads: what the order requires from the driver.

use super::*;

// ---- graph capture ----

#[test]
fn capture_is_refused_and_stays_intact() {
    let session = Session::new();
    for mode in [0, 1, 2] {
        session.each(5, || {
            let scene = Scene::new();
            let (tensor, batch) = (scene.tensor(), scene.batch());
            let mut foreign = scene.arrow();
            let event = unsafe { Batch::import_device(&raw mut foreign, &bytes_schema()) }.expect("imported");
            let queued = sim::on(scene.consumer);
            let mut captured = foreign::tensor(scene.data, N, CUDA0, || ());
            unsafe { captured.produced_on(queued) }.expect("not shared yet");
            let mut captured_batch = foreign::batch(scene.data, N, CUDA0, || ());
            unsafe { captured_batch.produced_on(queued) }.expect("not shared yet");
            let (mut bytes, host) = (vec![0; N as usize], Tensor::from_vec(vec![0_u8; 16], &[16]).expect("a tensor"));

            sim::begin_capture(scene.consumer, mode);
            let mut out = MaybeUninit::<ArrowDeviceArray>::uninit();
            let refusals = [
                tensor.wait(queued),
                batch.wait(queued),
                event.wait(queued),
                captured.wait(sim::on(scene.producer)),
                tensor.used_on(queued),
                batch.used_on(queued),
                dlpack::export::<DLManagedTensorVersioned>(tensor.clone(), &request(scene.consumer as i64))
                    .map(drop)
                    .map_err(Into::into),
                unsafe { captured_batch.clone().export_device(out.as_mut_ptr()) }.map_err(Into::into),
                tensor.copy_to(CUDA0, queued).map(drop),
                batch.copy_to(CUDA0, queued).map(drop),
                host.copy_to(CUDA0, queued).map(drop),
                Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(queued)).map(drop),
                tensor.read(&mut bytes, Some(queued)),
                unsafe { tensor.write(&bytes, Some(queued)) },
                queued.synchronize(),
            ];
            // On the capturing stream itself there is nothing to wait for.
            captured.wait(queued).expect("the same stream");
            // Everything unrelated to the capture still works, including releases.
            drop(batch.used_on(sim::on(scene.producer)));
            drop(batch);
            drop(Tensor::allocate(CUDA0, DType::UINT8, &[16], None).expect("allocated"));
            let mut there = vec![0; N as usize];
            tensor.read(&mut there, Some(sim::on(scene.producer))).expect("read on another stream");
            assert!(there.iter().all(|byte| *byte == 0x5a));
            sim::settle();
            assert_eq!(sim::end_capture(scene.consumer), 0, "the capture is intact");
            for (which, refused) in refusals.into_iter().enumerate() {
                let error = refused.expect_err("captured");
                assert_eq!(error.status(), DEVX_UNSUPPORTED, "{which}: {error}");
                assert!(error.message().contains("is being captured"), "{which}: {error}");
            }
            drop((tensor, event, captured, captured_batch));
            scene.end();
        });
    }
}

#[test]
fn memory_of_a_stream_that_captures_is_freed_after_the_capture() {
    let session = Session::new();
    session.each(10, || {
        let stream = sim::stream();
        let tensor = Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(sim::on(stream))).expect("allocated");
        sim::begin_capture(stream, 1);
        drop(tensor);
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_eq!(sim::end_capture(stream), 0);
        sim::settle();
        sim::synchronize(stream);
        sim::destroy(stream);
    });
}

// ---- contexts ----

#[test]
fn no_context_is_needed_and_none_is_left() {
    let session = Session::new();
    let mut own = 0_u64;
    cu_ok!("cuCtxCreate_v2", &raw mut own, 0, 0);
    let mut popped = 0_u64;
    cu_ok!("cuCtxPopCurrent_v2", &raw mut popped);
    // A GPU is often the only one.
    let of_another_device = (!sim::on_gpu()).then(|| sim::primary(1));
    for context in [0, own].into_iter().chain(of_another_device) {
        session.each(10, || {
            sim::set_current(sim::primary(0));
            let scene = Scene::new();
            sim::set_current(context);
            for stream in [LEGACY, PER_THREAD, scene.consumer as i64] {
                let tensor = scene.tensor();
                let check = |what: &str| assert_eq!(sim::current(), context, "{what}");
                drop(export::<DLManagedTensorVersioned>(tensor.clone(), stream));
                check("export");
                let stream = sim::on(stream as u64);
                let column = convert::column(&tensor, "x", Copying::Never).expect("a view");
                release(export_arrow(column.clone()));
                check("Arrow export");
                column.used_on(stream).expect("used");
                tensor.wait(stream).expect("waits");
                check("wait, use");
                let copies = [
                    tensor.copy_to(CUDA0, stream).expect("copied"),
                    tensor.copy_to(Device::CPU, stream).expect("copied"),
                    Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(stream)).expect("allocated"),
                    Tensor::allocate(CUDA0, DType::UINT8, &[16], None).expect("allocated"),
                ];
                check("copies");
                drop((copies, column, tensor));
                check("drop");
            }
            sim::settle();
            sim::set_current(sim::primary(0));
            cu!("cuCtxSynchronize");
            scene.end();
        });
    }
    sim::set_current(sim::primary(0));
    cu_ok!("cuCtxDestroy_v2", own);
}

#[test]
fn run_by_threads() {
    sim::again_with_threads();
}
