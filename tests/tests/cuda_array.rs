//! The CUDA Array Interface as a C struct: every version both ways, the order that it asks of both sides, and what is
//! refused; whatever the schedule.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use devexchange_core::abi::cuda_array::{DEVX_CUDA_ARRAY_NO_STREAM, DevxCudaArray};
use devexchange_core::abi::types::*;
use devexchange_core::cuda_array::{self, NoStream, Request, dtype_of};
use devexchange_core::runtime::cuda::{LEGACY, PER_THREAD};
use devexchange_core::{DType, Device, Error, Flags, Owner, Tensor, TensorDesc};
use devexchange_tests::cu_ok;
use devexchange_tests::cuda_array::{Producer, keep_mask, mask_of, produce, state};
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::sim::{self, Session};

const N: u64 = 256;
const SEEDS: u64 = 100;
const TWINS: u64 = 20;

fn import(array: &mut DevxCudaArray, request: &Request) -> Result<Tensor, Error> {
    unsafe { cuda_array::import(array, request, false) }.map(|imported| imported.tensor)
}

fn for_stream(stream: u64) -> Request {
    Request { stream: Some(sim::raw(stream as i64)), ..Request::default() }
}

/// A producer and a consumer with a stream each.
struct Scene {
    data: u64,
    scratch: u64,
    producer: u64,
    consumer: u64,
}

impl Scene {
    fn new() -> Self {
        Self { data: sim::alloc(N), scratch: sim::alloc(N), producer: sim::stream(), consumer: sim::stream() }
    }

    fn consume(&self, stream: u64) {
        sim::copy(self.scratch, self.data, N, stream);
        assert!(sim::download(self.scratch, N, stream).iter().all(|byte| *byte == 0x5a));
    }

    fn end(self) {
        sim::settle();
        for stream in [self.producer, self.consumer] {
            sim::synchronize(stream);
            sim::destroy(stream);
        }
        sim::free(self.data);
        sim::free(self.scratch);
    }
}

#[test]
fn the_producers_stream_is_waited_for() {
    let session = Session::new();
    for value in [LEGACY, PER_THREAD, 0] {
        session.each(SEEDS, || {
            let scene = Scene::new();
            // 0 stands for a handle here.
            let stream = if value == 0 { scene.producer } else { value as u64 };
            sim::fill(scene.data, 0x5a, N, stream);
            let mut array = produce(scene.data, "|u1", &[N as i64], || ());
            array.stream = stream as i64;
            let tensor = import(&mut array, &for_stream(scene.consumer)).expect("imported");
            assert!(array.release.is_none());
            scene.consume(scene.consumer);
            drop(tensor);
            sim::synchronize(stream);
            scene.end();
        });
    }
}

/// Nothing is said of a stream at import: whoever the tensor is handed on to waits.
#[test]
fn the_wait_is_handed_on() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, scene.producer);
        let mut array = produce(scene.data, "|u1", &[N as i64], || ());
        array.stream = scene.producer as i64;
        let tensor = import(&mut array, &Request::default()).expect("imported");
        // The producer goes on with other things, and its stream may even end: the event stays.
        tensor.wait(sim::on(scene.consumer)).expect("waits");
        scene.consume(scene.consumer);
        drop(tensor);
        scene.end();
    });
}

/// At the end the producer's stream waits for the consumer's work, on the device.
#[test]
fn the_producers_stream_waits_at_the_end() {
    let session = Session::new();
    let scenario = |says_so: bool| {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, scene.producer);
        let mut array = produce(scene.data, "|u1", &[N as i64], || ());
        array.stream = scene.producer as i64;
        let tensor = import(&mut array, &for_stream(scene.consumer)).expect("imported");
        sim::copy(scene.scratch, scene.data, N, scene.consumer);
        if says_so {
            tensor.used_on(sim::on(scene.consumer)).expect("noted");
        }
        drop(tensor);
        // The producer writes again, on its own stream, without a word to anybody.
        sim::fill(scene.data, 1, N, scene.producer);
        sim::synchronize(scene.producer);
        sim::synchronize(scene.consumer);
        scene
    };
    session.each(SEEDS, || scenario(true).end());
    if sim::skipped("a missing wait shows only with the detector") {
        return;
    }
    for schedule in sim::schedules(TWINS) {
        session.begin(schedule);
        let scene = scenario(false);
        let findings = sim::take_findings();
        assert!(findings.iter().any(|text| text.starts_with("Race: ")), "{schedule:?}: {findings:?}");
        scene.end();
    }
}

/// A stream that is being captured cannot wait for work outside of the capture: the release waits all the same.
#[test]
fn a_producer_that_captures_meanwhile_is_left_alone() {
    let session = Session::new();
    session.each(5, || {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, scene.producer);
        let mut array = produce(scene.data, "|u1", &[N as i64], || ());
        array.stream = scene.producer as i64;
        let released = Arc::clone(&state(&array).released);
        let tensor = import(&mut array, &for_stream(scene.consumer)).expect("imported");
        sim::copy(scene.scratch, scene.data, N, scene.consumer);
        tensor.used_on(sim::on(scene.consumer)).expect("noted");
        sim::begin_capture(scene.producer, 2);
        drop(tensor);
        sim::settle();
        assert_eq!(sim::end_capture(scene.producer), 0, "the capture is intact");
        assert_eq!(released.load(SeqCst), 1);
        scene.end();
    });
}

#[test]
fn releases_come_once_and_after_the_work() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let memory = sim::alloc(N);
        sim::fill(memory, 0x5a, N, scene.producer);
        let mut array = produce(memory, "|u1", &[N as i64], move || sim::free(memory));
        array.stream = scene.producer as i64;
        let released = Arc::clone(&state(&array).released);
        let tensor = import(&mut array, &for_stream(scene.consumer)).expect("imported");
        sim::copy(scene.scratch, memory, N, scene.consumer);
        tensor.used_on(sim::on(scene.consumer)).expect("noted");
        drop(tensor);
        sim::settle();
        assert_eq!(released.load(SeqCst), 1);
        scene.end();
    });
}

/// Versions before 3 have no stream: the policy says what takes its place.
#[test]
fn producers_without_a_stream() {
    let session = Session::new();
    for version in 0..3 {
        for (no_stream, filled_on_legacy) in [(NoStream::LegacyDefault, true), (NoStream::HostSync, false)] {
            session.each(20, || {
                let scene = Scene::new();
                let stream = if filled_on_legacy { LEGACY as u64 } else { scene.producer };
                sim::fill(scene.data, 0x5a, N, stream);
                let mut array = produce(scene.data, "|u1", &[N as i64], || ());
                (array.version, array.stream) = (version, 0);
                let request = Request { no_stream, ..for_stream(scene.consumer) };
                let tensor = import(&mut array, &request).expect("imported");
                scene.consume(scene.consumer);
                drop(tensor);
                scene.end();
            });
        }
    }
    if sim::skipped("a missing wait shows only with the detector") {
        return;
    }
    for schedule in sim::schedules(TWINS) {
        session.begin(schedule);
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, LEGACY as u64);
        let mut array = produce(scene.data, "|u1", &[N as i64], || ());
        array.version = 2;
        let request = Request { no_stream: NoStream::Trust, ..for_stream(scene.consumer) };
        let tensor = import(&mut array, &request).expect("imported");
        sim::copy(scene.scratch, scene.data, N, scene.consumer);
        sim::synchronize(scene.consumer);
        let findings = sim::take_findings();
        assert!(findings.iter().any(|text| text.starts_with("Race: ")), "{schedule:?}: {findings:?}");
        drop(tensor);
        sim::synchronize(LEGACY as u64);
        scene.end();
    }
}

/// Data without a stream in version 3 is ready: the host does not wait for what else the device has to do.
#[test]
fn the_host_waits_for_no_array_that_is_ready() {
    let session = Session::new();
    if sim::skipped("calls of the driver are counted") {
        return;
    }
    session.each(5, || {
        let scene = Scene::new();
        for (version, waits) in [(2, 1), (3, 0)] {
            let before = sim::calls("cuCtxSynchronize");
            let mut array = produce(scene.data, "|u1", &[N as i64], || ());
            array.version = version;
            let request = Request { no_stream: NoStream::HostSync, ..Request::default() };
            drop(import(&mut array, &request).expect("imported"));
            assert_eq!(sim::calls("cuCtxSynchronize") - before, waits, "version {version}");
        }
        scene.end();
    });
}

/// Who waits for one device leaves alone what others capture on another one.
#[test]
fn the_host_waits_for_one_device_while_another_one_captures() {
    let session = Session::new();
    if sim::skipped("there are two devices") {
        return;
    }
    session.each(5, || {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, scene.producer);
        sim::set_current(sim::primary(1));
        let other = sim::stream();
        sim::begin_capture(other, 0);
        sim::set_current(sim::primary(0));
        let mut array = produce(scene.data, "|u1", &[N as i64], || ());
        array.version = 2;
        let request = Request { no_stream: NoStream::HostSync, ..Request::default() };
        let imported = import(&mut array, &request);
        assert_eq!(sim::end_capture(other), 0, "the capture is intact");
        drop(imported.expect("imported"));
        sim::destroy(other);
        scene.end();
    });
}

#[test]
fn exports_name_the_stream_that_the_data_is_behind() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, scene.producer);
        let mut tensor = foreign::tensor(scene.data, N, CUDA0, || ());
        tensor.produced_on(sim::on(scene.producer)).expect("not shared");
        // A consumer of version 3 waits for the stream that is named, as one in Python would.
        for request in [Request::default(), for_stream(scene.consumer)] {
            let exported = cuda_array::export(tensor.clone(), &request).map_err(Error::from).expect("exported");
            let named = exported.as_raw().stream;
            assert_eq!(named as u64, if request.stream.is_some() { scene.consumer } else { scene.producer });
            sim::synchronize(named as u64);
            scene.consume(scene.consumer);
        }
        // One of version 2 works on the legacy default stream.
        let request = Request { max_version: 2, ..Request::default() };
        let exported = cuda_array::export(tensor.clone(), &request).map_err(Error::from).expect("exported");
        assert_eq!((exported.as_raw().version, exported.as_raw().stream), (2, DEVX_CUDA_ARRAY_NO_STREAM));
        scene.consume(LEGACY as u64);
        drop((exported, tensor));
        scene.end();
    });
}

/// Nobody has to wait for data that is ready, until somebody works on it.
#[test]
fn exports_of_what_is_ready_name_a_stream_only_if_it_is_used() {
    let session = Session::new();
    for (max_version, is_used, named) in
        [(3, false, DEVX_CUDA_ARRAY_NO_STREAM), (2, false, DEVX_CUDA_ARRAY_NO_STREAM), (3, true, LEGACY)]
    {
        session.each(20, || {
            let scene = Scene::new();
            let mut array = produce(scene.data, "|u1", &[N as i64], || ());
            let tensor = import(&mut array, &Request::default()).expect("imported");
            sim::fill(scene.data, 0x5a, N, scene.producer);
            if is_used {
                tensor.used_on(sim::on(scene.producer)).expect("noted");
            } else {
                sim::synchronize(scene.producer);
            }
            let request = Request { max_version, ..Request::default() };
            let exported = cuda_array::export(tensor, &request).map_err(Error::from).expect("exported");
            assert_eq!((exported.as_raw().version, exported.as_raw().stream), (max_version, named));
            if is_used {
                follow(scene.consumer, named as u64);
            }
            scene.consume(scene.consumer);
            drop(exported);
            scene.end();
        });
    }
}

/// Work that was noted is work on the data: to wait for the named stream has to be enough for all of it (version 3,
/// "Interface Requirements").
#[test]
fn exports_come_after_the_work_that_was_noted() {
    let session = Session::new();
    for (queued, named) in [(false, false), (true, false), (true, true)] {
        session.each(SEEDS, || {
            let (scene, other) = (Scene::new(), sim::stream());
            let mut tensor = foreign::tensor(scene.data, N, CUDA0, || ());
            if queued {
                tensor.produced_on(sim::on(scene.producer)).expect("not shared");
            }
            // Whoever has the tensor works on it, on another stream.
            sim::fill(scene.data, 0x5a, N, other);
            tensor.used_on(sim::on(other)).expect("noted");
            let request = if named { for_stream(scene.consumer) } else { Request::default() };
            let exported = cuda_array::export(tensor.clone(), &request).map_err(Error::from).expect("exported");
            let behind = match (named, queued) {
                (true, _) => scene.consumer,
                (false, true) => scene.producer,
                (false, false) => LEGACY as u64,
            };
            assert_eq!(exported.as_raw().stream as u64, behind);
            follow(scene.consumer, behind);
            scene.consume(scene.consumer);
            drop((exported, tensor));
            scene.end();
            sim::synchronize(other);
            sim::destroy(other);
        });
    }
}

/// A consumer that has made the named stream wait for its work may release: what is queued there comes first.
#[test]
fn exports_are_released_after_what_is_behind_the_named_stream() {
    let session = Session::new();
    for (names_one, captures) in [(false, false), (true, false), (true, true)] {
        session.each(if captures { 5 } else { SEEDS }, || {
            let (scene, named) = (Scene::new(), sim::stream());
            let memory = sim::alloc(N);
            sim::fill(memory, 0x5a, N, scene.producer);
            let released = Arc::new(AtomicU32::new(0));
            let count = Arc::clone(&released);
            let mut tensor = foreign::tensor(memory, N, CUDA0, move || {
                sim::free(memory);
                count.fetch_add(1, SeqCst);
            });
            tensor.produced_on(sim::on(scene.producer)).expect("not shared");
            let request = if names_one { for_stream(named) } else { Request::default() };
            let exported = cuda_array::export(tensor, &request).map_err(Error::from).expect("exported");
            let mut array = exported.into_raw();
            assert_eq!(array.stream as u64, if names_one { named } else { scene.producer });
            follow(scene.consumer, array.stream as u64);
            sim::copy(scene.scratch, memory, N, scene.consumer);
            follow(array.stream as u64, scene.consumer);
            if captures {
                sim::begin_capture(named, 2);
            }
            unsafe { cuda_array::release(&raw mut array) };
            if captures {
                std::thread::sleep(std::time::Duration::from_millis(2));
                assert_eq!(sim::end_capture(named), 0, "the capture is intact");
            }
            sim::settle();
            assert_eq!(released.load(SeqCst), 1);
            sim::synchronize(named);
            sim::destroy(named);
            scene.end();
        });
    }
}

/// To a consumer before version 3 no stream is named: the legacy default stream stands for the producer's, at the end, too.
#[test]
fn exports_without_a_stream_are_released_after_the_legacy_one() {
    let session = Session::new();
    for produced in [false, true] {
        session.each(SEEDS, || {
            let (scene, memory) = (Scene::new(), sim::alloc(N));
            sim::fill(memory, 0x5a, N, scene.producer);
            let mut tensor = foreign::tensor(memory, N, CUDA0, move || sim::free(memory));
            if produced {
                tensor.produced_on(sim::on(scene.producer)).expect("not shared");
            } else {
                sim::synchronize(scene.producer);
            }
            let request = Request { max_version: 2, ..Request::default() };
            let exported = cuda_array::export(tensor, &request).map_err(Error::from).expect("exported");
            let mut array = exported.into_raw();
            assert_eq!(array.stream, DEVX_CUDA_ARRAY_NO_STREAM);
            sim::copy(scene.scratch, memory, N, LEGACY as u64);
            unsafe { cuda_array::release(&raw mut array) };
            sim::settle();
            sim::synchronize(LEGACY as u64);
            scene.end();
        });
    }
}

/// Where no stream is named, the policy says who waits: the legacy default stream, the host, or nobody.
#[test]
fn who_waits_for_an_export_without_a_stream() {
    if sim::skipped("calls of the driver are counted") {
        return;
    }
    let session = Session::new();
    session.each(5, || {
        for (max_version, no_stream, waits) in [
            (2, NoStream::LegacyDefault, [1, 0]),
            (2, NoStream::HostSync, [1, 1]),
            (2, NoStream::Trust, [0, 0]),
            (3, NoStream::HostSync, [0, 0]),
        ] {
            let scene = Scene::new();
            sim::fill(scene.data, 0x5a, N, scene.producer);
            let mut tensor = foreign::tensor(scene.data, N, CUDA0, || ());
            tensor.produced_on(sim::on(scene.producer)).expect("not shared");
            let calls = || ["cuStreamWaitEvent", "cuStreamSynchronize"].map(sim::calls);
            let before = calls();
            let request = Request { max_version, no_stream, stream: None };
            let exported = cuda_array::export(tensor, &request).map_err(Error::from).expect("exported");
            let [wait, synchronize] = calls();
            assert_eq!([wait - before[0], synchronize - before[1]], waits, "version {max_version}, {no_stream:?}");
            if waits == [1, 1] {
                // On any stream: the host has seen to it.
                scene.consume(scene.consumer);
            }
            drop(exported);
            scene.end();
        }
    });
}

/// Makes a stream wait for what is queued on another one, as a consumer does by itself.
fn follow(stream: u64, other: u64) {
    let event = sim::event();
    cu_ok!("cuEventRecord", event, other);
    cu_ok!("cuStreamWaitEvent", stream, event, 0);
    cu_ok!("cuEventDestroy_v2", event);
}

/// Nobody took it, so nobody ordered anything behind its stream.
#[test]
fn what_is_not_taken_is_released_at_once() {
    let session = Session::new();
    session.each(1, || {
        let scene = Scene::new();
        let released = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&released);
        let tensor = foreign::tensor(scene.data, N, CUDA0, move || {
            count.fetch_add(1, SeqCst);
        });
        let exported = cuda_array::export(tensor, &Request::default()).map_err(Error::from).expect("exported");
        sim::copy(scene.scratch, scene.data, N, exported.as_raw().stream as u64);
        drop(exported);
        assert_eq!(released.load(SeqCst), 1);
        sim::synchronize(LEGACY as u64);
        scene.end();
    });
}

/// The number 2 means another stream on every thread, so that of one thread is not named on another.
#[test]
fn the_default_stream_of_another_thread_is_named_by_the_legacy_one() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, PER_THREAD as u64);
        let mut tensor = foreign::tensor(scene.data, N, CUDA0, || ());
        tensor.produced_on(sim::on(PER_THREAD as u64)).expect("not shared");
        let export = || cuda_array::export(tensor.clone(), &Request::default()).map_err(Error::from).expect("exported");
        assert_eq!(export().as_raw().stream, PER_THREAD);
        std::thread::scope(|scope| {
            let consumer = scope.spawn(|| {
                sim::set_current(sim::primary(0));
                let exported = export();
                follow(scene.consumer, exported.as_raw().stream as u64);
                scene.consume(scene.consumer);
                assert_eq!(exported.as_raw().stream, LEGACY);
            });
            consumer.join().expect("the consumer");
        });
        drop(tensor);
        scene.end();
    });
}

/// Managed memory has no device of its own, but its producer's default stream has one.
#[test]
fn default_streams_are_those_of_the_device_that_the_memory_was_made_for() {
    let session = Session::new();
    if sim::skipped("this needs two devices") {
        return;
    }
    session.each(SEEDS, || {
        let scene = Scene::new();
        sim::set_current(sim::primary(1));
        let mut memory = 0_u64;
        cu_ok!("cuMemAllocManaged", &raw mut memory, N, 1);
        sim::fill(memory, 0x5a, N, LEGACY as u64);
        sim::set_current(sim::primary(0));
        let mut array = produce(memory, "|u1", &[N as i64], || ());
        array.stream = LEGACY;
        let tensor = import(&mut array, &for_stream(scene.consumer)).expect("imported");
        sim::copy(scene.scratch, memory, N, scene.consumer);
        assert!(sim::download(scene.scratch, N, scene.consumer).iter().all(|byte| *byte == 0x5a));
        drop(tensor);
        sim::free(memory);
        scene.end();
    });
}

#[test]
fn what_is_described_comes_back() {
    let session = Session::new();
    session.each(5, || {
        let scene = Scene::new();
        let described = |dtype, shape: &[i64], strides: Option<&[i64]>, flags| {
            let data = std::ptr::with_exposed_provenance_mut(scene.data as usize);
            let desc = TensorDesc { data, device: CUDA0, dtype, shape, strides, byte_offset: 0, flags };
            unsafe { Tensor::from_raw_parts(&desc, Owner::none()) }.map_err(Error::from).expect("described")
        };
        for (dtype, typestr) in [
            (DType::BOOL, "|b1"),
            (DType::INT8, "|i1"),
            (DType::UINT16, "<u2"),
            (DType::INT64, "<i8"),
            (DType::FLOAT16, "<f2"),
            (DType::FLOAT64, "<f8"),
            ("complex64".parse().expect("a type"), "<c8"),
            ("complex128".parse().expect("a type"), "<c16"),
        ] {
            let tensor = described(dtype, &[2, 3], Some(&[1, 4]), Flags::READ_ONLY);
            let mut array =
                cuda_array::export(tensor, &Request::default()).map_err(Error::from).expect("exported").into_raw();
            let said = unsafe { std::ffi::CStr::from_ptr(array.typestr) };
            assert_eq!((said.to_str(), array.read_only), (Ok(typestr), 1));
            let width = dtype.element_bytes().expect("whole bytes") as i64;
            assert_eq!(unsafe { std::slice::from_raw_parts(array.strides, 2) }, [width, 4 * width]);
            let back = import(&mut array, &Request::default()).expect("imported");
            assert_eq!((back.dtype(), back.shape(), back.strides()), (dtype, &[2, 3][..], &[1, 4][..]));
            assert!(back.flags().has(Flags::READ_ONLY));
            assert_eq!(back.data().addr() as u64, scene.data);
        }
        // NumPy knows no such numbers, or others by that name.
        for name in ["complex32", "int128", "uint128", "float128", "bfloat16", "float32x2"] {
            let tensor = described(name.parse().expect(name), &[2], None, Flags::default());
            let refused = cuda_array::export(tensor, &Request::default()).map_err(Error::from).expect_err(name);
            assert_eq!(refused.status(), DEVX_UNSUPPORTED, "{refused}");
            assert!(refused.message().contains(name), "{refused}");
        }
        let compact = described(DType::FLOAT32, &[4, 2], None, Flags::default());
        let exported = cuda_array::export(compact, &Request::default()).map_err(Error::from).expect("exported");
        assert!(exported.as_raw().strides.is_null());
        drop(exported);
        let empty = described(DType::FLOAT32, &[0, 2], None, Flags::default());
        let exported = cuda_array::export(empty, &Request::default()).map_err(Error::from).expect("exported");
        assert!(exported.as_raw().data.is_null());
        let mut array = exported.into_raw();
        assert_eq!(import(&mut array, &Request::default()).expect("imported").shape(), [0, 2]);
        scene.end();
    });
}

#[test]
fn masks_are_a_tensor_of_their_own() {
    let session = Session::new();
    session.each(5, || {
        let scene = Scene::new();
        sim::fill(scene.data, 1, N, scene.producer);
        let mut array = produce(scene.data, "<i4", &[4], || ());
        array.stream = scene.producer as i64;
        let mask = mask_of(&array, scene.data + 64);
        keep_mask(&mut array, mask);
        let released = Arc::clone(&state(&array).released);
        let error = import(&mut array, &Request::default()).expect_err("a mask");
        assert_eq!((error.status(), array.release.is_some()), (DEVX_UNSUPPORTED, true));
        let imported = unsafe { cuda_array::import(&raw mut array, &Request::default(), true) }.expect("imported");
        drop(imported.tensor);
        let mask = imported.mask.expect("a mask");
        assert_eq!((mask.dtype(), mask.shape(), mask.data().addr() as u64), (DType::BOOL, &[4][..], scene.data + 64));
        assert_eq!(released.load(SeqCst), 0);
        drop(mask);
        assert_eq!(released.load(SeqCst), 1);
        scene.end();
    });
}

/// The mask of an array of 2 x 3 bytes, which another stream still has to fill.
fn masked(scene: &Scene, mask_stream: u64, shape: &[i64]) -> DevxCudaArray {
    let mut array = produce(scene.data, "|u1", &[2, 3], || ());
    array.stream = scene.producer as i64;
    let mut mask = produce(scene.data + 64, "|b1", shape, || ());
    mask.stream = mask_stream as i64;
    // What the mask points to belongs to the array, too.
    let kept = mask.private_data.expose_provenance();
    state(&array).on_release =
        Some(Box::new(move || drop(unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<Producer>(kept)) })));
    keep_mask(&mut array, mask);
    array
}

#[test]
fn masks_have_an_order_of_their_own() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let other = sim::stream();
        sim::fill(scene.data, 7, 6, scene.producer);
        sim::fill(scene.data + 64, 1, 6, other);
        let mut array = masked(&scene, other, &[2, 3]);
        let request = for_stream(scene.consumer);
        let imported = unsafe { cuda_array::import(&raw mut array, &request, true) }.expect("imported");
        let mask = imported.mask.expect("a mask");
        assert_eq!(sim::download(mask.data() as u64, 6, scene.consumer), [1; 6]);
        mask.used_on(sim::on(scene.consumer)).expect("used");
        drop((imported.tensor, mask));
        // Its producer goes on after what used it.
        sim::fill(scene.data + 64, 0, 6, other);
        sim::settle();
        sim::synchronize(other);
        sim::destroy(other);
        scene.end();
    });
}

#[test]
fn masks_get_the_shape_of_their_array() {
    let session = Session::new();
    session.each(1, || {
        let scene = Scene::new();
        let cases: [(&[i64], &[i64]); 6] = [
            (&[2, 3], &[3, 1]),
            (&[3], &[0, 1]),
            (&[1], &[0, 0]),
            (&[], &[0, 0]),
            (&[2, 1], &[1, 0]),
            (&[1, 3], &[0, 1]),
        ];
        for (shape, strides) in cases {
            let mut array = masked(&scene, scene.producer, shape);
            let imported = unsafe { cuda_array::import(&raw mut array, &Request::default(), true) }.expect("imported");
            let mask = imported.mask.expect("a mask");
            assert_eq!((mask.shape(), mask.strides()), (&[2, 3][..], strides), "{shape:?}");
            assert_eq!(mask.flags().has(Flags::READ_ONLY), shape != [2, 3]);
        }
        for shape in [&[2][..], &[3, 2], &[2, 3, 1], &[1, 2, 3], &[0]] {
            let mut array = masked(&scene, scene.producer, shape);
            let error = unsafe { cuda_array::import(&raw mut array, &Request::default(), true) }.expect_err("refused");
            assert_eq!(error.status(), DEVX_MISMATCH, "{error}");
            assert!(error.message().contains(&format!("mask has shape {shape:?}")), "{error}");
            unsafe { cuda_array::release(&raw mut array) };
        }
        scene.end();
    });
}

#[test]
fn type_strings() {
    let _session = Session::new();
    for typestr in ["|b1", "<i2", "=u4", "<f8", "<c8", "<c16", "|i1", ">u1", "<f2"] {
        dtype_of(typestr).expect(typestr);
    }
    for (typestr, status) in [
        ("", DEVX_INVALID_DTYPE),
        ("f4", DEVX_INVALID_DTYPE),
        ("<f", DEVX_INVALID_DTYPE),
        ("<f3", DEVX_INVALID_DTYPE),
        ("<f+4", DEVX_INVALID_DTYPE),
        ("<f99999", DEVX_INVALID_DTYPE),
        ("|f4", DEVX_INVALID_DTYPE),
        ("<x4", DEVX_INVALID_DTYPE),
        ("<b2", DEVX_INVALID_DTYPE),
        (">f4", DEVX_UNSUPPORTED),
        ("<M8[ns]", DEVX_UNSUPPORTED),
        ("|V8", DEVX_UNSUPPORTED),
        ("|O", DEVX_UNSUPPORTED),
        ("|S3", DEVX_UNSUPPORTED),
        ("|t3", DEVX_UNSUPPORTED),
        // NumPy's long double, which is no IEEE number of 128 bits as DLPack's float128.
        ("<f16", DEVX_UNSUPPORTED),
        ("<c24", DEVX_UNSUPPORTED),
        ("<c32", DEVX_UNSUPPORTED),
        // More bits than DLPack's number of them can say.
        ("<i32", DEVX_INVALID_DTYPE),
    ] {
        let error = dtype_of(typestr).expect_err(typestr);
        assert_eq!(error.status(), status, "{error}");
        assert!(error.message().contains(typestr) && !error.message().contains("bits is 0"), "{error}");
    }
}

type Spoil = Box<dyn Fn(&mut DevxCudaArray)>;

/// A refusal that names the field and the value, and takes nothing.
fn is_refused(data: u64, status: DevxStatus, says: &str, spoil: &dyn Fn(&mut DevxCudaArray)) {
    let mut array = produce(data, "<i4", &[4], || ());
    let released = Arc::clone(&state(&array).released);
    spoil(&mut array);
    let error = import(&mut array, &Request::default()).expect_err(says);
    assert!(error.status() == status && error.message().contains(says), "{says}: {error}");
    assert_eq!((array.release.is_some(), released.load(SeqCst)), (true, 0), "{says}");
    unsafe { cuda_array::release(&raw mut array) };
    unsafe { cuda_array::release(&raw mut array) };
    assert_eq!(released.load(SeqCst), 1, "{says}");
    let error = import(&mut array, &Request::default()).expect_err("released");
    assert_eq!(error.status(), DEVX_RELEASED);
}

#[test]
fn a_stream_that_is_none() {
    let session = Session::new();
    if sim::skipped("a real driver may not survive a handle that is none") {
        return;
    }
    let data = sim::alloc(N);
    is_refused(data, DEVX_DRIVER, "(400)", &|array| array.stream = 0x12345);
    sim::free(data);
    sim::take_findings();
    session.accept();
}

#[test]
fn bad_input() {
    let session = Session::new();
    let data = sim::alloc(N);
    let freed = sim::alloc(N);
    sim::free(freed);
    sim::take_findings();
    session.accept();
    let host = Box::new([0_u8; 16]);
    let host = (&raw const *host).expose_provenance() as u64;
    let cases: Vec<(DevxStatus, &str, Spoil)> = vec![
        (DEVX_VERSION, "version is 4", Box::new(|array| array.version = 4)),
        (DEVX_VERSION, "version is -1", Box::new(|array| array.version = -1)),
        (DEVX_INVALID_STREAM, "stream is 0", Box::new(|array| array.stream = 0)),
        (DEVX_INVALID_STREAM, "stream is -2", Box::new(|array| array.stream = -2)),
        (DEVX_INVALID_DTYPE, "typestr is NULL", Box::new(|array| array.typestr = null())),
        (DEVX_INVALID_SHAPE, "ndim is -1", Box::new(|array| array.ndim = -1)),
        (DEVX_INVALID_SHAPE, "ndim is 65", Box::new(|array| array.ndim = 65)),
        (DEVX_INVALID_SHAPE, "shape is NULL", Box::new(|array| array.shape = null())),
        (DEVX_INVALID_SHAPE, "shape[0] is -3", Box::new(|array| state(array).shape[0] = -3)),
        (DEVX_INVALID_ARGUMENT, "data is NULL", Box::new(|array| array.data = null_mut())),
        (
            DEVX_INVALID_SHAPE,
            "strides[0] is 6 bytes",
            Box::new(|array| {
                state(array).strides = vec![6];
                array.strides = state(array).strides.as_ptr();
            }),
        ),
        (DEVX_DEVICE, "needs 4000 bytes", Box::new(|array| state(array).shape[0] = 1000)),
        (
            DEVX_DEVICE,
            "host memory",
            Box::new(move |array| array.data = std::ptr::with_exposed_provenance_mut(host as usize)),
        ),
        (
            DEVX_DEVICE,
            "data is",
            Box::new(move |array| array.data = std::ptr::with_exposed_provenance_mut(freed as usize)),
        ),
    ];
    for (status, says, spoil) in cases {
        is_refused(data, status, says, &spoil);
    }
    assert_eq!(
        unsafe { cuda_array::import(null_mut(), &Request::default(), true) }.expect_err("NULL").status(),
        DEVX_NULL_ARGUMENT
    );
    let on_host = Tensor::from_vec(vec![1_i32], &[1]).expect("a tensor");
    let refused = cuda_array::export(on_host, &Request::default()).expect_err("host memory");
    assert_eq!((refused.error.status(), refused.returned.device()), (DEVX_DEVICE, Device::CPU));
    sim::free(data);
    sim::take_findings();
    session.accept();
}
