//! Order on CUDA: what a producer queued comes before a consumer's work, through every protocol and
//! conversion, whatever the schedule; and a wait that is left out is found.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

use std::cell::Cell;
use std::mem::MaybeUninit;

use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::abi::types::{DEVX_DEVICE, DEVX_INVALID_STREAM, DEVX_NOT_READY, DEVX_UNSUPPORTED};
use devexchange_core::arrow::release_array;
use devexchange_core::convert;
use devexchange_core::dlpack::{self, Copying, Managed, Owned, Request};
use devexchange_core::order::{NO_SYNC, Ready};
use devexchange_core::runtime::cuda::{LEGACY, PER_THREAD, Stream};
use devexchange_core::{Batch, DType, Device, DeviceType, Tensor};
use devexchange_tests::foreign::{self, CUDA0, bytes_schema};
use devexchange_tests::sim::{self, Session};
use devexchange_tests::{cu, cu_ok};

const N: u64 = 256;
const SEEDS: u64 = 100;
/// Seeds for a negative twin: the detector must see each of them.
const TWINS: u64 = 20;

/// Memory that a producer fills on a stream of its own, and a stream and memory of a consumer.
struct Scene {
    data: u64,
    producer: u64,
    consumer: u64,
    scratch: u64,
}

impl Scene {
    fn new() -> Self {
        let scene =
            Self { data: sim::alloc(N), producer: sim::stream(), consumer: sim::stream(), scratch: sim::alloc(N) };
        sim::fill(scene.data, 0x5a, N, scene.producer);
        scene
    }

    /// A tensor over the memory, produced on the producer's stream. Who made the memory frees it.
    fn tensor(&self) -> Tensor {
        let mut tensor = foreign::tensor(self.data, N, CUDA0, || ());
        tensor.produced_on(sim::on(self.producer)).expect("not shared yet");
        tensor
    }

    fn batch(&self) -> Batch {
        let mut batch = foreign::batch(self.data, N, CUDA0, || ());
        batch.produced_on(sim::on(self.producer)).expect("not shared yet");
        batch
    }

    /// A foreign array with an event of the producer's.
    fn arrow(&self) -> ArrowDeviceArray {
        let event = sim::event();
        cu_ok!("cuEventRecord", event, self.producer);
        foreign::arrow(self.data, N, CUDA0, event, move || cu_ok!("cuEventDestroy_v2", event))
    }

    /// The consumer's work on `stream`: the data must be what the producer wrote.
    fn consume(&self, stream: u64) {
        sim::copy(self.scratch, self.data, N, stream);
        let seen = sim::download(self.scratch, N, stream);
        assert!(seen.iter().all(|byte| *byte == 0x5a), "{seen:x?}");
    }

    fn end(self) {
        sim::synchronize(self.producer);
        sim::synchronize(self.consumer);
        sim::free(self.data);
        sim::free(self.scratch);
        sim::destroy(self.producer);
        sim::destroy(self.consumer);
    }
}

fn request(stream: i64) -> Request {
    Request { stream: sim::raw(stream), ..Request::default() }
}

fn export<M: Managed>(tensor: Tensor, stream: i64) -> Owned<M> {
    dlpack::export(tensor, &request(stream)).expect("exported")
}

fn export_arrow(batch: Batch) -> ArrowDeviceArray {
    let mut out = MaybeUninit::uninit();
    unsafe { batch.export_device(out.as_mut_ptr()) }.expect("exported");
    unsafe { out.assume_init() }
}

/// What a consumer of Arrow does first.
fn wait_event(array: &ArrowDeviceArray, stream: u64) {
    assert!(!array.sync_event.is_null(), "the data is not ready, so there is an event");
    let event = unsafe { *array.sync_event.cast::<u64>() };
    cu_ok!("cuStreamWaitEvent", stream, event, 0);
}

fn release(mut array: ArrowDeviceArray) {
    unsafe { release_array(&raw mut array.array) }
}

/// Runs a broken scenario; the detector must flag a race each time.
fn twin(scenario: impl Fn()) {
    let session = Session::new();
    if sim::skipped("a missing wait shows only with the detector") {
        return;
    }
    for schedule in sim::schedules(TWINS) {
        session.begin(schedule);
        scenario();
        let findings = sim::take_findings();
        assert!(findings.iter().any(|text| text.starts_with("Race: ")), "{schedule:?}: {findings:?}");
    }
}

/// The consumer's copy without looking at the data, which may be anything.
fn consume_blindly(scene: &Scene, stream: u64) {
    sim::copy(scene.scratch, scene.data, N, stream);
    sim::synchronize(stream);
}

// ---- DLPack ----

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
    twin(|| {
        let scene = Scene::new();
        let exported = export::<DLManagedTensorVersioned>(scene.tensor(), -1);
        consume_blindly(&scene, scene.consumer);
        drop(exported);
        scene.end();
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

/// The producer was asked for the consumer's stream, which it makes wait.
fn imported(scene: &Scene, stream: i64, waits: bool) -> Tensor {
    if waits {
        let event = sim::event();
        cu_ok!("cuEventRecord", event, scene.producer);
        cu_ok!("cuStreamWaitEvent", stream, event, 0);
        cu_ok!("cuEventDestroy_v2", event);
    }
    let managed = foreign::dlpack(scene.data, N, CUDA0, || ());
    unsafe { dlpack::import_on(managed.as_ptr(), Some(sim::raw(stream))) }.expect("imported")
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
            // Work of ours between, which the next consumer has to see.
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
    twin(|| {
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

/// The number 2 means another stream on every thread.
#[test]
fn per_thread_streams_of_two_threads_are_two_streams() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        sim::synchronize(scene.producer);
        sim::fill(scene.data, 0x5a, N, PER_THREAD as u64);
        let tensor = {
            let mut tensor = foreign::tensor(scene.data, N, CUDA0, || ());
            tensor.produced_on(sim::on(PER_THREAD as u64)).expect("not shared yet");
            tensor
        };
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
        copy.read(&mut seen, Stream::legacy(1)).expect("read");
        assert!(seen.iter().all(|byte| *byte == 0x5a));
        drop((copy, tensor));
        assert_eq!(sim::current(), 0);
        sim::set_current(sim::primary(0));
        sim::settle();
        sim::destroy(other);
        scene.end();
    });
}

// ---- Arrow ----

#[test]
fn arrow_export_carries_an_event_that_survives_moves() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let batch = scene.batch();
        let shared = export_arrow(batch.clone());
        // The consumer moves the struct, as the standard allows, and the original is gone before it looks.
        let moved = Box::new(shared);
        drop(batch);
        wait_event(&moved, scene.consumer);
        scene.consume(scene.consumer);
        release(*moved);
        scene.end();
    });
}

#[test]
fn arrow_export_without_the_wait_is_seen() {
    twin(|| {
        let scene = Scene::new();
        let array = export_arrow(scene.batch());
        consume_blindly(&scene, scene.consumer);
        release(array);
        scene.end();
    });
}

#[test]
fn arrow_exports_at_different_times_have_events_of_their_own() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let batch = scene.batch();
        let early = export_arrow(batch.clone());
        sim::fill(scene.data, 0x5a, N, scene.producer);
        let late = export_arrow(batch);
        release(early);
        wait_event(&late, scene.consumer);
        scene.consume(scene.consumer);
        release(late);
        scene.end();
    });
}

#[test]
fn arrow_import_has_to_be_waited_for() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let mut array = scene.arrow();
        let batch = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported");
        assert!(array.array.release.is_none());
        batch.wait(sim::on(scene.consumer)).expect("waits");
        scene.consume(scene.consumer);
        drop(batch);
        scene.end();
    });
}

#[test]
fn arrow_import_without_the_wait_is_seen() {
    twin(|| {
        let scene = Scene::new();
        let mut array = scene.arrow();
        let batch = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported");
        consume_blindly(&scene, scene.consumer);
        drop(batch);
        scene.end();
    });
}

#[test]
fn the_host_is_told_to_wait() {
    let session = Session::new();
    session.each(3, || {
        let (data, stream, event) = (sim::alloc_host(N), sim::stream(), sim::event());
        sim::fill(data, 7, N, stream);
        cu_ok!("cuEventRecord", event, stream);
        for kind in [DeviceType::CUDA_HOST, DeviceType::CUDA] {
            let device = Device { kind, id: 0 };
            let mut array = foreign::arrow(data, N, device, event, || ());
            let batch = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported");
            match batch.root().values::<u8>() {
                Err(refused) => {
                    let expected = if kind == DeviceType::CUDA { DEVX_DEVICE } else { DEVX_NOT_READY };
                    assert_eq!(refused.status(), expected, "{refused}");
                }
                // A GPU may be done with it.
                Ok(bytes) => assert!(sim::on_gpu() && kind == DeviceType::CUDA_HOST && bytes == [7; N as usize]),
            }
        }
        sim::synchronize(stream);
        cu_ok!("cuMemFreeHost", data);
        cu_ok!("cuEventDestroy_v2", event);
        sim::destroy(stream);
    });
}

#[test]
fn arrow_reexport_keeps_the_producers_event() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let mut array = scene.arrow();
        let given = array.sync_event;
        let batch = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported");
        let again = export_arrow(batch);
        assert_eq!(again.sync_event, given);
        wait_event(&again, scene.consumer);
        scene.consume(scene.consumer);
        release(again);
        scene.end();
    });
}

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

/// The host reads memory that it shares with the device when what is queued there is done, and does not wait for that.
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
            legacy.produced_on(sim::on(LEGACY as u64)).expect("not shared");
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
    assert!(sim::on_gpu() || not_ready.get() > 0);
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
            captured.produced_on(queued).expect("not shared yet");
            let mut captured_batch = foreign::batch(scene.data, N, CUDA0, || ());
            captured_batch.produced_on(queued).expect("not shared yet");
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
                tensor.read(&mut bytes, queued),
                unsafe { tensor.write(&bytes, queued) },
                queued.synchronize(),
            ];
            // On the capturing stream itself nothing has to be waited for.
            captured.wait(queued).expect("the same stream");
            // What has nothing to do with the capture works on, releases included.
            drop(batch.used_on(sim::on(scene.producer)));
            drop(batch);
            drop(Tensor::allocate(CUDA0, DType::UINT8, &[16], None).expect("allocated"));
            let mut there = vec![0; N as usize];
            tensor.read(&mut there, sim::on(scene.producer)).expect("read on another stream");
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
    if sim::skipped("this part needs two devices") {
        return;
    }
    let mut own = 0_u64;
    cu_ok!("cuCtxCreate_v2", &raw mut own, 0, 0);
    let mut popped = 0_u64;
    cu_ok!("cuCtxPopCurrent_v2", &raw mut popped);
    for context in [0, sim::primary(1), own] {
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
    sim::again_with_threads("run_by_threads");
}
