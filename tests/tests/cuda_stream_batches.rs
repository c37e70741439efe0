//! Streams of device batches: each batch carries its own event through import, export and both, and outlives its
//! stream; a wait that is left out is detected.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr::null;

use devexchange_core::abi::arrow_data::ArrowSchema;
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::arrow_device_stream::ArrowDeviceArrayStream;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::abi::types::DEVX_DEVICE;
use devexchange_core::arrow::{release_array, release_device_stream};
use devexchange_core::{Batch, BatchStream, Device, DeviceType};
use devexchange_tests::cu_ok;
use devexchange_tests::foreign::{self, CUDA0, bytes_schema};
use devexchange_tests::sim::{self, Session};

const N: u64 = 256;
const BATCHES: u8 = 4;
const SEEDS: u64 = 30;
/// The number of seeds for a negative twin: the detector must report each of them.
const TWINS: u64 = 10;

/// Memory that will be filled with `byte` on `stream`.
fn produced(byte: u8, stream: u64) -> u64 {
    let data = sim::alloc(N);
    sim::fill(data, byte, N, stream);
    data
}

/// Frees memory on whatever thread the release comes.
fn freeing(data: u64) -> impl FnOnce() + Send + 'static {
    let context = sim::primary(0);
    move || {
        cu_ok!("cuCtxPushCurrent_v2", context);
        sim::free(data);
        let mut popped = 0_u64;
        cu_ok!("cuCtxPopCurrent_v2", &raw mut popped);
    }
}

/// A foreign producer: its batches are queued on its stream, and each carries an event.
struct Producer {
    stream: u64,
    given: u8,
}

fn foreign_stream(stream: u64) -> ArrowDeviceArrayStream {
    unsafe extern "C" fn get_schema(_: *mut ArrowDeviceArrayStream, out: *mut ArrowSchema) -> c_int {
        unsafe { bytes_schema().export(out) }.expect("exported");
        0
    }
    unsafe extern "C" fn get_next(stream: *mut ArrowDeviceArrayStream, out: *mut ArrowDeviceArray) -> c_int {
        let own = unsafe { (*stream).private_data };
        let own = unsafe { &mut *own.cast::<Producer>() };
        if own.given == BATCHES {
            unsafe { out.write_bytes(0, 1) };
            return 0;
        }
        let data = produced(own.given, own.stream);
        own.given += 1;
        let event = sim::event();
        cu_ok!("cuEventRecord", event, own.stream);
        let free = freeing(data);
        let array = foreign::arrow(data, N, CUDA0, event, move || {
            cu_ok!("cuEventDestroy_v2", event);
            free();
        });
        unsafe { out.write(array) };
        0
    }
    unsafe extern "C" fn get_last_error(_: *mut ArrowDeviceArrayStream) -> *const c_char {
        null()
    }
    unsafe extern "C" fn release(stream: *mut ArrowDeviceArrayStream) {
        let stream = unsafe { &mut *stream };
        drop(unsafe { Box::from_raw(stream.private_data.cast::<Producer>()) });
        stream.release = None;
    }
    ArrowDeviceArrayStream {
        device_type: CUDA0.kind.0,
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release),
        private_data: Box::into_raw(Box::new(Producer { stream, given: 0 })).cast(),
    }
}

fn imported(stream: u64) -> BatchStream {
    unsafe { BatchStream::import_device(&mut foreign_stream(stream)) }.expect("imported")
}

/// Our own source, whose batches are queued on a stream.
fn own(stream: u64) -> BatchStream {
    let batches = (0..BATCHES).map(move |byte| {
        let data = produced(byte, stream);
        let mut batch = foreign::batch(data, N, CUDA0, freeing(data));
        unsafe { batch.produced_on(sim::on(stream)) }.map(|()| batch)
    });
    BatchStream::of(&bytes_schema(), DeviceType::CUDA, batches).expect("a stream")
}

fn exported(stream: BatchStream) -> ArrowDeviceArrayStream {
    let mut out = MaybeUninit::uninit();
    unsafe { stream.export_device(out.as_mut_ptr()) }.expect("exported");
    unsafe { out.assume_init() }
}

/// Our own consumer pulls everything, gives up the stream, and then lets `use_it` use each batch.
fn consume(stream: BatchStream, use_it: impl Fn(u8, &Batch)) {
    let batches: Vec<_> = stream.batches().map(|batch| batch.expect("a batch")).collect();
    drop(stream);
    assert_eq!(batches.len(), usize::from(BATCHES));
    (0..).zip(&batches).for_each(|(byte, batch)| use_it(byte, batch));
}

/// The same for a foreign consumer.
fn consume_foreign(mut stream: ArrowDeviceArrayStream, use_it: impl Fn(u8, &ArrowDeviceArray)) {
    let get_next = stream.get_next.expect("a callback");
    let mut arrays = Vec::new();
    loop {
        let mut array = MaybeUninit::uninit();
        assert_eq!(unsafe { get_next(&raw mut stream, array.as_mut_ptr()) }, 0);
        let array = unsafe { array.assume_init() };
        if array.array.release.is_none() {
            break;
        }
        arrays.push(array);
    }
    unsafe { release_device_stream(&raw mut stream) };
    assert_eq!(arrays.len(), usize::from(BATCHES));
    (0..).zip(&arrays).for_each(|(byte, array)| use_it(byte, array));
    arrays.iter_mut().for_each(|array| unsafe { release_array(&raw mut array.array) });
}

fn address_of(batch: &Batch) -> u64 {
    batch.root().buffers().get(1).map_or(0, |address| address.addr() as u64)
}

fn foreign_address_of(array: &ArrowDeviceArray) -> u64 {
    let buffer = unsafe { array.array.buffers.add(1) };
    unsafe { buffer.read() }.addr() as u64
}

fn wait_event(array: &ArrowDeviceArray, stream: u64) {
    assert!(!array.sync_event.is_null(), "the data is not ready, so there is an event");
    let event = unsafe { *array.sync_event.cast::<u64>() };
    cu_ok!("cuStreamWaitEvent", stream, event, 0);
}

/// Streams of a producer and a consumer, and the consumer's memory.
struct Scene {
    producer: u64,
    consumer: u64,
    scratch: u64,
}

impl Scene {
    fn new() -> Self {
        Self { producer: sim::stream(), consumer: sim::stream(), scratch: sim::alloc(N) }
    }

    fn see(&self, byte: u8, data: u64) {
        sim::copy(self.scratch, data, N, self.consumer);
        let seen = sim::download(self.scratch, N, self.consumer);
        assert!(seen.iter().all(|seen| *seen == byte), "{byte}: {seen:x?}");
    }

    fn end(self) {
        sim::settle();
        sim::synchronize(self.producer);
        sim::synchronize(self.consumer);
        sim::free(self.scratch);
        sim::destroy(self.producer);
        sim::destroy(self.consumer);
    }
}

/// Runs a broken scenario; the detector must flag a race each time.
fn twin(scenario: impl Fn(&Scene)) {
    Session::new().races(TWINS, || {
        let scene = Scene::new();
        scenario(&scene);
        scene.end();
    });
}

#[test]
fn batches_of_a_foreign_stream_are_waited_for_and_outlive_it() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        consume(imported(scene.producer), |byte, batch| {
            batch.wait(sim::on(scene.consumer)).expect("waits");
            scene.see(byte, address_of(batch));
        });
        scene.end();
    });
}

#[test]
fn batches_are_released_after_the_work_that_was_named() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        consume(imported(scene.producer), |_, batch| {
            batch.wait(sim::on(scene.consumer)).expect("waits");
            sim::copy(scene.scratch, address_of(batch), N, scene.consumer);
            batch.used_on(sim::on(scene.consumer)).expect("noted");
        });
        scene.end();
    });
}

#[test]
fn batches_of_ours_carry_an_event_to_a_foreign_consumer() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        consume_foreign(exported(own(scene.producer)), |byte, array| {
            wait_event(array, scene.consumer);
            scene.see(byte, foreign_address_of(array));
        });
        scene.end();
    });
}

#[test]
fn events_of_a_foreign_stream_pass_through() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        consume_foreign(exported(imported(scene.producer)), |byte, array| {
            wait_event(array, scene.consumer);
            scene.see(byte, foreign_address_of(array));
        });
        scene.end();
    });
}

#[test]
fn a_consumer_that_does_not_wait_is_seen() {
    twin(|scene| {
        consume(imported(scene.producer), |_, batch| {
            sim::copy(scene.scratch, address_of(batch), N, scene.consumer);
            sim::synchronize(scene.consumer);
        });
    });
}

#[test]
fn a_foreign_consumer_that_does_not_wait_is_seen() {
    twin(|scene| {
        consume_foreign(exported(own(scene.producer)), |_, array| {
            sim::copy(scene.scratch, foreign_address_of(array), N, scene.consumer);
            sim::synchronize(scene.consumer);
        });
    });
}

#[test]
fn a_stream_released_in_the_middle_leaves_nothing() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let stream = imported(scene.producer);
        let first = stream.next().expect("a batch").expect("not the end");
        let mut handed = exported(stream);
        unsafe { release_device_stream(&raw mut handed) };
        first.wait(sim::on(scene.consumer)).expect("waits");
        scene.see(0, address_of(&first));
        drop(first);
        scene.end();
    });
}

#[test]
fn a_batch_on_another_kind_of_device_is_refused() {
    let _session = Session::new();
    let pinned = sim::alloc_host(N);
    let device = Device { kind: DeviceType::CUDA_HOST, id: 0 };
    let given = [Ok(foreign::batch(pinned, N, device, || ()))];
    let stream = BatchStream::of(&bytes_schema(), DeviceType::CUDA, given).expect("a stream");
    let error = stream.next().expect_err("not of the stream's device type");
    assert_eq!(error.status(), DEVX_DEVICE);
    assert!(error.message().contains("device_type is cuda_host (3): the stream's is cuda (2)"), "{error}");
    // A stream of device memory cannot be exported into the struct for host memory.
    let mut out = MaybeUninit::<ArrowArrayStream>::uninit();
    let refused = unsafe { stream.export(out.as_mut_ptr()) }.expect_err("not host memory");
    assert_eq!(refused.error.status(), DEVX_DEVICE);
    drop(refused);
    cu_ok!("cuMemFreeHost", pinned);
}

#[test]
fn run_by_threads() {
    sim::again_with_threads();
}
