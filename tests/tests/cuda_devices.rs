//! Two devices in one exchange: copies between them, a consumer whose stream is on the other one, release after work there.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

use core::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::abi::types::{
    DEVX_CALLBACK, DEVX_DEVICE, DEVX_MANAGER_VERSION, DevxError, DevxManagerTable, DevxMemory, DevxMemoryRequest,
    DevxStatus,
};
use devexchange_core::arrow::ArrayBuilder;
use devexchange_core::dlpack::{self, Copying, Owned, Request};
use devexchange_core::manager::{self, Manager, PoolOptions};
use devexchange_core::runtime::cuda::{LEGACY, PER_THREAD, Stream, reaper};
use devexchange_core::{Batch, DType, Device, DeviceType, Owner, Tensor, convert, cuda_array, ipc};
use devexchange_tests::cu_ok;
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::sim::{self, Session};

const N: u64 = 256;
const SEEDS: u64 = 100;
const CUDA1: Device = Device { kind: DeviceType::CUDA, id: 1 };

/// A stream on each device. Device 0 is current before and after.
struct Streams {
    zero: u64,
    one: u64,
}

impl Streams {
    fn new() -> Self {
        let zero = sim::stream();
        sim::set_current(sim::primary(1));
        let one = sim::stream();
        sim::set_current(sim::primary(0));
        Self { zero, one }
    }

    fn of(&self, device: Device) -> Stream {
        sim::on_device(device.id, if device == CUDA0 { self.zero } else { self.one })
    }

    fn end(self) {
        assert_eq!(sim::current(), sim::primary(0), "the context of the caller is as it was");
        sim::settle();
        sim::destroy(self.zero);
        sim::destroy(self.one);
    }
}

fn two_devices() -> Option<Session> {
    let session = Session::new();
    if sim::skipped("this needs two devices") { None } else { Some(session) }
}

fn numbers() -> Tensor {
    Tensor::from_vec((0..64_i32).collect(), &[8, 8]).expect("a matrix")
}

fn require_numbers(tensor: &Tensor, stream: Stream) {
    let mut seen = vec![0_u8; 256];
    tensor.read(&mut seen, stream).expect("read");
    let expected: Vec<u8> = (0..64_i32).flat_map(i32::to_ne_bytes).collect();
    assert_eq!(seen, expected);
}

#[test]
fn tensors_are_copied_both_ways_on_streams_of_either() {
    let Some(session) = two_devices() else { return };
    for (there, back) in [(CUDA0, CUDA0), (CUDA0, CUDA1), (CUDA1, CUDA0), (CUDA1, CUDA1)] {
        session.each(SEEDS, || {
            let streams = Streams::new();
            let at_zero = numbers().copy_to(CUDA0, streams.of(CUDA0)).expect("copied up");
            let at_one = at_zero.copy_to(CUDA1, streams.of(there)).expect("copied over");
            assert_eq!(at_one.device(), CUDA1);
            at_one.check_pointers().expect("it is where it says");
            drop(at_zero);
            let again = at_one.copy_to(CUDA0, streams.of(back)).expect("copied back");
            drop(at_one);
            again.check_pointers().expect("it is where it says");
            require_numbers(&again, streams.of(CUDA0));
            drop(again);
            streams.end();
        });
    }
}

#[test]
fn batches_are_copied_between_devices() {
    let Some(session) = two_devices() else { return };
    session.each(SEEDS, || {
        let streams = Streams::new();
        let data = sim::alloc(N);
        sim::fill(data, 0x5a, N, streams.zero);
        let mut batch = foreign::batch(data, N, CUDA0, move || sim::free(data));
        batch.produced_on(streams.of(CUDA0)).expect("not shared");
        let over = batch.copy_to(CUDA1, streams.of(CUDA1)).expect("copied over");
        drop(batch);
        let back = over.copy_to(Device::CPU, streams.of(CUDA1)).expect("copied down");
        drop(over);
        assert!(back.root().values::<u8>().expect("bytes").iter().all(|byte| *byte == 0x5a));
        streams.end();
    });
}

/// The consumer works on device 1 with memory of device 0: what the producer queued comes before.
#[test]
fn a_stream_of_the_other_device_waits() {
    let Some(session) = two_devices() else { return };
    session.each(SEEDS, || {
        let streams = Streams::new();
        let (data, scratch) = (sim::alloc(N), sim::alloc(N));
        sim::fill(data, 0x5a, N, streams.zero);
        let mut batch = foreign::batch(data, N, CUDA0, move || sim::free(data));
        batch.produced_on(streams.of(CUDA0)).expect("not shared");
        let mut exported = MaybeUninit::<ArrowDeviceArray>::uninit();
        unsafe { batch.export_device(exported.as_mut_ptr()) }.map_err(|refused| refused.error).expect("exported");
        let mut exported = unsafe { exported.assume_init() };
        let schema = foreign::bytes_schema();
        let imported = unsafe { Batch::import_device(&raw mut exported, &schema) }.expect("imported");
        imported.wait(streams.of(CUDA1)).expect("waits");
        sim::copy(scratch, data, N, streams.one);
        imported.used_on(streams.of(CUDA1)).expect("noted");
        drop(imported);
        assert!(sim::download(scratch, N, streams.one).iter().all(|byte| *byte == 0x5a));
        sim::free(scratch);
        streams.end();
    });
}

#[test]
fn a_wait_that_is_left_out_is_found() {
    let Some(session) = two_devices() else { return };
    for schedule in sim::schedules(20) {
        session.begin(schedule);
        let streams = Streams::new();
        let (data, scratch) = (sim::alloc(N), sim::alloc(N));
        sim::fill(data, 0x5a, N, streams.zero);
        sim::copy(scratch, data, N, streams.one);
        sim::synchronize(streams.one);
        sim::synchronize(streams.zero);
        let findings = sim::take_findings();
        assert!(findings.iter().any(|text| text.starts_with("Race: ")), "{schedule:?}: {findings:?}");
        sim::free(data);
        sim::free(scratch);
        streams.end();
    }
}

/// On a stream of the other device a copy runs aside. If neither that stream nor the host can wait for it, nobody knows when
/// it is done with what it reads and writes.
#[test]
fn copies_aside_that_cannot_be_waited_for_keep_what_they_use() {
    let Some(session) = two_devices() else { return };
    session.begin(sim::schedules(1)[0]);
    type Act = fn(&Batch, &Tensor, Stream) -> devexchange_core::Result<()>;
    // With what is lost: the memory, and what is made for the copy.
    let acts: [(&str, i64, Act); 6] = [
        ("copy", 2, |_, tensor, stream| tensor.copy_to(CUDA0, stream).map(drop)),
        ("copy of a batch", 2, |batch, _, stream| batch.copy_to(CUDA0, stream).map(drop)),
        ("matrix", 2, |batch, _, stream| convert::matrix(batch, Copying::Always, Some(stream)).map(drop)),
        ("nulls", 2, |batch, _, stream| batch.root().child(0).expect("a column").null_count_on(stream).map(drop)),
        ("read", 1, |_, tensor, stream| tensor.read(&mut [0; N as usize], stream)),
        ("write", 1, |_, tensor, stream| unsafe { tensor.write(&[0; N as usize], stream) }),
    ];
    for (name, expected, act) in acts {
        let (streams, data) = (Streams::new(), sim::alloc(N));
        sim::fill(data, 1, N, streams.zero);
        sim::synchronize(streams.zero);
        let released = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&released);
        let address = std::ptr::with_exposed_provenance(data as usize);
        let mut tensor = foreign::tensor(data, N, CUDA0, move || seen.store(true, SeqCst));
        tensor.produced_on(streams.of(CUDA1)).expect("not shared");
        let owner = Owner::new(tensor.clone());
        let column = ArrayBuilder::new("x", "C", N as i64).buffer(address).buffer(address);
        let column = if name == "matrix" { column.null_count(0) } else { column };
        let table = ArrayBuilder::batch(N as i64).child(column).owner(owner);
        let mut batch = unsafe { table.build(CUDA0) }.map_err(|refused| refused.error).expect("well-formed");
        batch.produced_on(streams.of(CUDA1)).expect("not shared");
        let lost = reaper::leaked();
        // The first event is that of what the copy comes after.
        sim::fail("cuEventRecord", 2, 719, false);
        sim::fail("cuStreamSynchronize", 1, 719, false);
        act(&batch, &tensor, streams.of(CUDA1)).expect_err("the copy cannot be waited for");
        sim::fail_clear();
        drop((batch, tensor));
        sim::settle();
        assert_eq!((released.load(SeqCst), reaper::leaked() - lost), (false, expected), "{name}");
        cu_ok!("cuCtxSynchronize");
        assert!(sim::take_findings().is_empty(), "{name}");
        sim::free(data);
        streams.end();
    }
    session.accept();
}

/// Memory of device 0 and of its pool, used on a stream of device 1: it is given back after that work, from a thread on
/// which neither device's context is current.
#[test]
fn release_waits_for_work_on_the_other_device() {
    let Some(session) = two_devices() else { return };
    session.each(SEEDS, || {
        let streams = Streams::new();
        let released = Arc::new(AtomicBool::new(false));
        let (data, scratch) = (sim::alloc(N), sim::alloc(N));
        let seen = Arc::clone(&released);
        sim::fill(data, 1, N, streams.zero);
        let mut foreign = foreign::tensor(data, N, CUDA0, move || {
            sim::free(data);
            seen.store(true, SeqCst);
        });
        foreign.produced_on(streams.of(CUDA0)).expect("not shared");
        sim::let_at_pool(0, 1, true);
        let pool = Tensor::allocate(CUDA0, DType::UINT8, &[N as i64], Some(streams.of(CUDA0))).expect("allocated");
        let exported: Owned<DLManagedTensorVersioned> =
            dlpack::export(foreign, &Request { stream: sim::raw(streams.one as i64), ..Request::default() })
                .expect("exported");
        let imported =
            unsafe { dlpack::import_on(exported.into_raw(), Some(sim::raw(streams.one as i64))) }.expect("imported");
        pool.wait(streams.of(CUDA1)).expect("waits");
        sim::copy(pool.data().expose_provenance() as u64, data, N, streams.one);
        sim::copy(scratch, pool.data().expose_provenance() as u64, N, streams.one);
        imported.used_on(streams.of(CUDA1)).expect("noted");
        pool.used_on(streams.of(CUDA1)).expect("noted");
        let releaser = std::thread::spawn(move || {
            sim::set_current(0);
            drop((imported, pool));
            assert_eq!(sim::current(), 0);
        });
        releaser.join().expect("released");
        assert!(sim::download(scratch, N, streams.one).iter().all(|byte| *byte == 1));
        sim::settle();
        assert!(released.load(SeqCst));
        sim::free(scratch);
        sim::let_at_pool(0, 1, false);
        streams.end();
    });
}

/// Pinned memory belongs to no device: the stream that it was used on says whose events to wait for.
#[test]
fn pinned_memory_follows_the_stream_that_is_named() {
    let Some(session) = two_devices() else { return };
    session.each(SEEDS, || {
        let streams = Streams::new();
        let pinned = Device { kind: DeviceType::CUDA_HOST, id: 0 };
        let at_one = numbers().copy_to(CUDA1, streams.of(CUDA1)).expect("copied up");
        let host = at_one.copy_to(pinned, streams.of(CUDA1)).expect("copied down");
        drop(at_one);
        assert!(host.as_slice::<i32>().is_err(), "it is not ready");
        host.wait(streams.of(CUDA0)).expect("waits");
        let at_zero = host.copy_to(CUDA0, streams.of(CUDA0)).expect("copied up again");
        host.used_on(streams.of(CUDA0)).expect("noted");
        drop(host);
        require_numbers(&at_zero, streams.of(CUDA0));
        drop(at_zero);
        streams.end();
    });
}

/// What a producer says nothing of is behind the legacy default stream of the device that the memory was made for.
#[test]
fn memory_of_no_device_is_behind_the_stream_of_the_one_it_was_made_for() {
    let Some(session) = two_devices() else { return };
    session.each(SEEDS, || {
        let (streams, scratch) = (Streams::new(), sim::alloc(N));
        sim::set_current(sim::primary(1));
        let mut memory = 0_u64;
        cu_ok!("cuMemAllocManaged", &raw mut memory, N, 1);
        sim::fill(memory, 0x5a, N, LEGACY as u64);
        sim::set_current(sim::primary(0));
        let managed = foreign::dlpack(memory, N, Device { kind: DeviceType::CUDA_MANAGED, id: 0 }, || ());
        let tensor = unsafe { dlpack::import(managed.as_ptr()) }.expect("imported");
        tensor.wait(streams.of(CUDA0)).expect("waits");
        sim::copy(scratch, memory, N, streams.zero);
        assert!(sim::download(scratch, N, streams.zero).iter().all(|byte| *byte == 0x5a));
        drop(tensor);
        sim::settle();
        sim::free(memory);
        sim::free(scratch);
        streams.end();
    });
}

/// Memory of `kind` that was made for device 1, and what frees it.
fn made_for_one(kind: DeviceType) -> (u64, fn(u64)) {
    sim::set_current(sim::primary(1));
    let mut memory = 0_u64;
    match kind {
        DeviceType::CUDA_HOST => cu_ok!("cuMemHostAlloc", &raw mut memory, N, 1),
        _ => cu_ok!("cuMemAllocManaged", &raw mut memory, N, 1),
    }
    sim::set_current(sim::primary(0));
    let free = match kind {
        DeviceType::CUDA_HOST => |memory| cu_ok!("cuMemFreeHost", memory),
        _ => sim::free,
    };
    (memory, free)
}

/// Queues work of a producer or a consumer on the legacy default stream of device 1.
fn on_legacy_of_one(work: impl FnOnce(u64)) {
    on_default_of_one(LEGACY, work);
}

/// As [`on_legacy_of_one`], also on that of this thread.
fn on_default_of_one(number: i64, work: impl FnOnce(u64)) {
    sim::set_current(sim::primary(1));
    work(number as u64);
    sim::set_current(sim::primary(0));
}

const OF_NO_DEVICE: [DeviceType; 2] = [DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED];

/// The producer was asked for stream 1: of the device that the memory was made for.
#[test]
fn a_default_stream_of_an_import_is_that_of_the_device_the_memory_was_made_for() {
    let Some(session) = two_devices() else { return };
    for kind in OF_NO_DEVICE {
        session.each(SEEDS, || {
            let (streams, scratch) = (Streams::new(), sim::alloc(N));
            let (memory, free) = made_for_one(kind);
            on_legacy_of_one(|legacy| sim::fill(memory, 0x5a, N, legacy));
            let managed = foreign::dlpack(memory, N, Device { kind, id: 0 }, || ());
            let tensor = unsafe { dlpack::import_on(managed.as_ptr(), Some(sim::raw(LEGACY))) }.expect("imported");
            tensor.wait(streams.of(CUDA0)).expect("waits");
            sim::copy(scratch, memory, N, streams.zero);
            assert!(sim::download(scratch, N, streams.zero).iter().all(|byte| *byte == 0x5a));
            drop(tensor);
            sim::settle();
            free(memory);
            sim::free(scratch);
            streams.end();
        });
    }
}

/// The consumer asks for stream 1 and works there, on the device that the memory was made for.
#[test]
fn a_default_stream_of_an_export_is_that_of_the_device_the_memory_was_made_for() {
    let Some(session) = two_devices() else { return };
    for kind in OF_NO_DEVICE {
        session.each(SEEDS, || {
            let (streams, scratch) = (Streams::new(), sim::alloc(N));
            let (memory, free) = made_for_one(kind);
            sim::fill(memory, 0x5a, N, streams.zero);
            let mut tensor = foreign::tensor(memory, N, Device { kind, id: 0 }, || ());
            tensor.produced_on(streams.of(CUDA0)).expect("not shared");
            let request = Request { stream: sim::raw(LEGACY), ..Request::default() };
            let exported: Owned<DLManagedTensorVersioned> = dlpack::export(tensor, &request).expect("exported");
            on_legacy_of_one(|legacy| sim::copy(scratch, memory, N, legacy));
            on_legacy_of_one(|legacy| {
                assert!(sim::download(scratch, N, legacy).iter().all(|byte| *byte == 0x5a));
            });
            drop(exported);
            free(memory);
            sim::free(scratch);
            streams.end();
        });
    }
}

/// Work on a default stream of the device that the memory was made for is named by its number: the release waits for it.
#[test]
fn a_release_waits_for_a_default_stream_of_the_device_the_memory_was_made_for() {
    let Some(session) = two_devices() else { return };
    for kind in OF_NO_DEVICE {
        session.each(SEEDS, || {
            let (streams, device) = (Streams::new(), Device { kind, id: 0 });
            let ((one, free), (other, _)) = (made_for_one(kind), made_for_one(kind));
            let tensor = foreign::tensor(one, N, device, move || free(one));
            let batch = foreign::batch(other, N, device, move || free(other));
            on_legacy_of_one(|legacy| sim::fill(one, 1, N, legacy));
            on_legacy_of_one(|legacy| sim::fill(other, 2, N, legacy));
            let of_tensor = tensor.stream(sim::raw(LEGACY)).expect("a stream");
            let of_batch = batch.stream(sim::raw(LEGACY)).expect("a stream");
            assert_eq!((of_tensor.ordinal(), of_batch.ordinal()), (1, 1));
            tensor.used_on(of_tensor).expect("noted");
            batch.used_on(of_batch).expect("noted");
            drop((tensor, batch));
            streams.end();
        });
    }
}

/// A copy on stream 1: of the GPU that it is to or from, otherwise of the one that the pinned memory was made for.
#[test]
fn a_copy_on_a_default_stream_is_on_that_of_the_gpu_or_of_the_memory() {
    let Some(session) = two_devices() else { return };
    session.each(SEEDS, || {
        let (streams, pinned) = (Streams::new(), Device { kind: DeviceType::CUDA_HOST, id: 0 });
        let (memory, free) = made_for_one(DeviceType::CUDA_HOST);
        on_legacy_of_one(|legacy| sim::fill(memory, 3, N, legacy));
        let tensor = foreign::tensor(memory, N, pinned, move || free(memory));
        for (target, ordinal) in [(CUDA0, 0), (CUDA1, 1), (Device::CPU, 1), (pinned, 1)] {
            let stream = tensor.stream_to(target, sim::raw(LEGACY)).expect("a stream");
            assert_eq!(stream.ordinal(), ordinal, "{target}");
            let copy = tensor.copy_to(target, stream).expect("copied").copy_to(Device::CPU, streams.of(CUDA0));
            assert!(copy.expect("copied down").as_slice::<u8>().expect("bytes").iter().all(|byte| *byte == 3));
        }
        drop(tensor);
        streams.end();
    });
}

/// The driver is asked for nothing where a number says it all: a handle, and memory that is a device's own or the host's.
#[test]
fn only_a_default_stream_of_memory_of_no_device_is_looked_up() {
    let Some(session) = two_devices() else { return };
    let (streams, data) = (Streams::new(), sim::alloc(N));
    let (pinned, free) = made_for_one(DeviceType::CUDA_HOST);
    let on_gpu = foreign::tensor(data, N, CUDA0, move || sim::free(data));
    let of_none = foreign::tensor(pinned, N, Device { kind: DeviceType::CUDA_HOST, id: 0 }, move || free(pinned));
    let asked = |tensor: &Tensor, stream: u64| {
        let before = sim::calls("*");
        tensor.stream(sim::raw(stream as i64)).expect("a stream");
        sim::calls("*") - before
    };
    assert_eq!([asked(&on_gpu, 1), asked(&on_gpu, streams.one), asked(&of_none, streams.one)], [0, 0, 0]);
    assert_eq!([asked(&of_none, 1), asked(&of_none, 2)], [1, 1]);
    assert!(numbers().stream(sim::raw(1)).is_err(), "host memory has no streams");
    drop((on_gpu, of_none));
    streams.end();
    drop(session);
}

/// A consumer of a CUDA array takes stream 1 for that of the array's device, whose number the interface has no room for.
#[test]
fn an_array_is_not_said_to_be_behind_a_default_stream_of_another_device() {
    let Some(session) = two_devices() else { return };
    for kind in [DeviceType::CUDA, DeviceType::CUDA_HOST] {
        session.each(SEEDS, || {
            let (streams, scratch, source, of_zero) = (Streams::new(), sim::alloc(N), sim::alloc(N), sim::alloc(N));
            sim::fill(source, 0x5a, N, streams.zero);
            sim::synchronize(streams.zero);
            let (of_one, free) = made_for_one(DeviceType::CUDA_HOST);
            let (data, by) = if kind == DeviceType::CUDA { (of_zero, CUDA1) } else { (of_one, CUDA0) };
            sim::set_current(sim::primary(by.id));
            sim::copy(data, source, N, LEGACY as u64);
            sim::set_current(sim::primary(0));
            let mut tensor = foreign::tensor(data, N, Device { kind, id: 0 }, || ());
            tensor.produced_on(sim::on_device(by.id, LEGACY as u64)).expect("not shared");
            let mut array = cuda_array::export(tensor, &cuda_array::Request::default()).expect("exported").into_raw();
            let request = cuda_array::Request { stream: Some(sim::raw(streams.zero as i64)), ..Default::default() };
            let imported = unsafe { cuda_array::import(&raw mut array, &request, false) }.expect("imported");
            sim::copy(scratch, data, N, streams.zero);
            imported.tensor.used_on(streams.of(CUDA0)).expect("noted");
            assert!(sim::download(scratch, N, streams.zero).iter().all(|byte| *byte == 0x5a));
            drop(imported);
            sim::settle();
            free(of_one);
            [source, of_zero, scratch].into_iter().for_each(sim::free);
            streams.end();
        });
    }
}

/// A default stream of device 1 with memory of device 0: what is asked for by its name is of the device that is named.
#[test]
fn a_default_stream_that_is_named_with_its_device_is_of_that_device() {
    let Some(session) = two_devices() else { return };
    for number in [LEGACY, PER_THREAD] {
        session.each(SEEDS, || {
            let (streams, scratch) = (Streams::new(), sim::alloc(N));
            let (data, named) = (sim::alloc(N), sim::on_device(1, number as u64));
            sim::fill(data, 0x5a, N, streams.zero);
            let mut tensor = foreign::tensor(data, N, CUDA0, move || sim::free(data));
            tensor.produced_on(streams.of(CUDA0)).expect("not shared");
            // The consumer works there, and its release waits for that.
            let request = Request { stream: named.into(), ..Request::default() };
            let exported: Owned<DLManagedTensorVersioned> = dlpack::export(tensor, &request).expect("exported");
            on_default_of_one(number, |stream| sim::copy(scratch, data, N, stream));
            // And so does a producer: what it queued there comes before.
            let imported = unsafe { dlpack::import_on(exported.into_raw(), Some(named.into())) }.expect("imported");
            imported.used_on(imported.stream(named.into()).expect("a stream")).expect("noted");
            imported.wait(streams.of(CUDA0)).expect("waits");
            assert!(sim::download(scratch, N, streams.zero).iter().all(|byte| *byte == 0x5a));
            drop(imported);
            sim::settle();
            sim::free(scratch);
            streams.end();
        });
    }
}

/// The consumer of an array asks for a stream that the struct cannot name.
#[test]
fn an_array_is_ordered_on_no_default_stream_of_another_device_that_is_asked_for() {
    let Some(session) = two_devices() else { return };
    session.each(SEEDS, || {
        let (streams, scratch, data) = (Streams::new(), sim::alloc(N), sim::alloc(N));
        sim::fill(data, 0x5a, N, streams.zero);
        let mut tensor = foreign::tensor(data, N, CUDA0, || ());
        tensor.produced_on(streams.of(CUDA0)).expect("not shared");
        let named = sim::on_device(1, LEGACY as u64);
        let request = cuda_array::Request { stream: Some(named.into()), ..Default::default() };
        let mut array = cuda_array::export(tensor, &request).expect("exported").into_raw();
        let other = sim::stream();
        let on = cuda_array::Request { stream: Some(sim::raw(other as i64)), ..Default::default() };
        let imported = unsafe { cuda_array::import(&raw mut array, &on, false) }.expect("imported");
        sim::copy(scratch, data, N, other);
        imported.tensor.used_on(sim::on(other)).expect("noted");
        assert!(sim::download(scratch, N, other).iter().all(|byte| *byte == 0x5a));
        drop(imported);
        sim::settle();
        sim::destroy(other);
        [data, scratch].into_iter().for_each(sim::free);
        streams.end();
    });
}

/// A manager of a program's own is told a number, which it takes for a stream of the device that it is asked for.
#[test]
fn a_manager_is_not_told_of_a_default_stream_of_another_device() {
    let Some(session) = two_devices() else { return };
    let streams = Streams::new();
    let mut table: DevxManagerTable = unsafe { std::mem::zeroed() };
    table.version = DEVX_MANAGER_VERSION;
    table.allocate = Some(never_asked);
    let manager = unsafe { manager::Table::new(&table) }.expect("a manager");
    for own in [&manager as &dyn Manager, &manager::Pool::new(PoolOptions::default()).expect("a pool")] {
        let stream = Some(sim::on_device(1, LEGACY as u64));
        let request = manager::Request { stream, ..manager::Request::of(DeviceType::CUDA, 0, 64) };
        let error = own.allocate(&request).expect_err("not in that order");
        assert_eq!(error.message(), "stream is 0x1: of cuda:1, not of cuda:0");
    }
    drop(manager);
    streams.end();
    drop(session);
}

/// Memory of no device is asked of any manager for the device of its stream, however that is named.
#[test]
fn a_manager_is_asked_for_the_device_of_the_stream() {
    unsafe extern "C" fn allocate(
        context: *mut c_void,
        request: *const DevxMemoryRequest,
        _: *mut DevxMemory,
        _: *mut DevxError,
    ) -> DevxStatus {
        let asked = unsafe { &mut *context.cast::<Vec<DevxMemoryRequest>>() };
        asked.push(unsafe { *request });
        DEVX_CALLBACK
    }
    let Some(session) = two_devices() else { return };
    let streams = Streams::new();
    let mut asked = Vec::<DevxMemoryRequest>::new();
    let mut table: DevxManagerTable = unsafe { std::mem::zeroed() };
    (table.version, table.context) = (DEVX_MANAGER_VERSION, (&raw mut asked).cast());
    table.allocate = Some(allocate);
    let own = unsafe { manager::Table::new(&table) }.expect("a manager");
    let driver = manager::Driver::new().expect("a manager");
    for kind in OF_NO_DEVICE {
        let device = Device { kind, id: 0 };
        // Of a handle nobody says whose it is.
        for stream in [sim::on(streams.one), sim::on_device(1, LEGACY as u64)] {
            let refused =
                Tensor::allocate_with(&own, device, DType::UINT8, &[64], Some(stream)).expect_err("it gives none");
            assert_eq!(refused.status(), DEVX_CALLBACK, "{refused}");
            let tensor = Tensor::allocate_with(&driver, device, DType::UINT8, &[64], Some(stream)).expect("allocated");
            assert_eq!((tensor.device(), tensor.stream(sim::raw(LEGACY)).expect("a stream").ordinal()), (device, 1));
        }
        Tensor::allocate_with(&own, device, DType::UINT8, &[64], None).expect_err("it gives none");
    }
    let said = asked.iter().map(|request| (request.device_type, request.device_id));
    let expected = OF_NO_DEVICE.map(|kind| [(kind.0, 1), (kind.0, 1), (kind.0, 0)]);
    assert_eq!(said.collect::<Vec<_>>(), expected.concat());
    drop(own);
    streams.end();
    drop(session);
}

unsafe extern "C" fn never_asked(
    _: *mut c_void,
    _: *const DevxMemoryRequest,
    _: *mut DevxMemory,
    _: *mut DevxError,
) -> DevxStatus {
    DEVX_CALLBACK
}

/// Pinned and managed memory for what a stream writes is made for its device: so its default streams are that one's, and no
/// other device is used.
#[test]
fn a_copy_in_memory_of_no_device_is_made_for_that_of_the_stream() {
    let Some(session) = two_devices() else { return };
    session.each(20, || {
        let streams = Streams::new();
        let at_one = numbers().copy_to(CUDA1, streams.of(CUDA1)).expect("copied up");
        let batch = foreign::batch(at_one.data().expose_provenance() as u64, N, CUDA1, || ());
        for kind in OF_NO_DEVICE {
            let target = Device { kind, id: 0 };
            for stream in [streams.of(CUDA1), sim::on_device(1, LEGACY as u64)] {
                let tensor = at_one.copy_to(target, stream).expect("copied");
                let columns = batch.copy_to(target, stream).expect("copied");
                let new = Tensor::allocate(target, DType::UINT8, &[4], Some(stream)).expect("allocated");
                let made_for = |stream: devexchange_core::Result<Stream>| stream.expect("a stream").ordinal();
                assert_eq!(made_for(tensor.stream(sim::raw(LEGACY))), 1);
                assert_eq!(made_for(columns.stream(sim::raw(LEGACY))), 1);
                assert_eq!(made_for(new.stream(sim::raw(LEGACY))), 1);
                require_numbers(&tensor, streams.of(CUDA1));
                drop((tensor, columns, new));
            }
        }
        drop((at_one, batch));
        streams.end();
    });
}

/// Managed memory is device 0, whichever device it is asked for.
#[test]
fn memory_of_a_manager_for_the_other_device_is_where_it_says() {
    let Some(session) = two_devices() else { return };
    let streams = Streams::new();
    for (manager, kind) in [
        (manager::Driver::managed().expect("a manager"), DeviceType::CUDA),
        (manager::Driver::new().expect("a manager"), DeviceType::CUDA_MANAGED),
        (manager::Driver::new().expect("a manager"), DeviceType::CUDA_HOST),
        (manager::Driver::new().expect("a manager"), DeviceType::CUDA),
    ] {
        let asked = Device { kind, id: 1 };
        let tensor = Tensor::allocate_with(&manager, asked, DType::UINT8, &[64], None).expect("allocated");
        tensor.check_pointers().expect("it is where it says");
        assert_eq!(tensor.stream(sim::raw(LEGACY)).expect("a stream").ordinal(), 1);
        drop(tensor);
    }
    streams.end();
    drop(session);
}

/// What cannot be shared between processes is copied to the device that it was made for, on a stream of that.
#[test]
fn what_another_process_gets_is_copied_on_the_device_the_memory_was_made_for() {
    let Some(session) = two_devices() else { return };
    for kind in OF_NO_DEVICE {
        let (streams, (memory, free)) = (Streams::new(), made_for_one(kind));
        on_legacy_of_one(|legacy| sim::fill(memory, 3, N, legacy));
        let uuids = [CUDA0, CUDA1].map(|device| device.info().expect("it is there").uuid);
        let tensor = foreign::tensor(memory, N, Device { kind, id: 0 }, move || free(memory));
        let exported = ipc::export_tensor(&tensor, Copying::IfNeeded).expect("exported");
        let is_on = uuids.map(|uuid| exported.descriptor().windows(16).any(|part| part == uuid));
        assert_eq!(is_on, [false, true]);
        drop((tensor, exported));
        streams.end();
    }
    drop(session);
}

/// As a copy of a batch, so a matrix of its columns.
#[test]
fn a_matrix_is_gathered_on_a_stream_of_the_other_device() {
    let Some(session) = two_devices() else { return };
    session.each(20, || {
        let streams = Streams::new();
        let (values, others) = (vec![1_i32, 2, 3], vec![4_i32, 5, 6]);
        let column = |name, values: &[i32]| {
            ArrayBuilder::new(name, "i", 3).buffer(std::ptr::null()).buffer(values.as_ptr().cast())
        };
        let table = ArrayBuilder::batch(3).child(column("a", &values)).child(column("b", &others));
        let host = unsafe { table.owner(Owner::new((values, others))).build(Device::CPU) }.expect("built");
        let batch = host.copy_to(CUDA0, streams.of(CUDA0)).expect("copied");
        let matrix = convert::matrix(&batch, Copying::Always, Some(streams.of(CUDA1))).expect("gathered");
        drop(batch);
        assert_eq!((matrix.device(), matrix.shape()), (CUDA0, &[3, 2][..]));
        matrix.check_pointers().expect("it is where it says");
        drop(matrix);
        streams.end();
    });
}

/// The number with a device is one for this library, of a device that there is; a number of nobody's is none.
#[test]
fn numbers_that_name_a_device() {
    let Some(session) = two_devices() else { return };
    for (number, ordinal) in [(LEGACY, 0), (LEGACY, 1), (PER_THREAD, 1)] {
        let device = Device { kind: DeviceType::CUDA, id: ordinal };
        let named = device.own_stream(sim::raw(number)).expect("a stream");
        assert_eq!((named.value(), sim::raw(named.to_raw())), (number, named));
        let stream = CUDA0.stream(named).expect("it has streams").expect("a stream");
        assert_eq!((stream.ordinal(), stream.value()), (ordinal, number));
    }
    let pinned = Device { kind: DeviceType::CUDA_HOST, id: 0 };
    assert_eq!(pinned.own_stream(sim::raw(LEGACY)).expect("a stream"), sim::raw(LEGACY));
    assert_eq!(CUDA1.own_stream(sim::raw(4096)).expect("a handle"), sim::raw(4096));
    let named = CUDA1.own_stream(sim::raw(LEGACY)).expect("a stream").to_raw();
    for number in [0, -1, i64::MIN, named - 1, named + 2, named + (1 << 40), named ^ i64::MIN ^ (1 << 62)] {
        assert!(number > 0 || CUDA1.stream(sim::raw(number)).expect("it has streams").is_err(), "{number:#x}");
        assert_ne!(sim::raw(number).value(), LEGACY);
    }
    drop(session);
}

/// Arrow numbers what belongs to no device in particular by -1, which is no number of a device.
#[test]
fn devices_have_the_numbers_of_their_standards() {
    let Some(_session) = two_devices() else { return };
    for (kind, ids) in [
        (DeviceType::CUDA, &[(0, 0), (1, 1)][..]),
        (DeviceType::CUDA_HOST, &[(-1, 0), (0, 0), (1, 0)]),
        (DeviceType::CUDA_MANAGED, &[(-1, 0), (0, 0), (1, 0)]),
    ] {
        for (id, ours) in ids {
            assert_eq!(Device::new(kind, *id), Ok(Device { kind, id: *ours }));
        }
    }
    for (kind, id) in [(DeviceType::CUDA, -1), (DeviceType::CUDA, 2), (DeviceType::CUDA_HOST, -2)] {
        let error = Device::new(kind, id).expect_err("there are two");
        assert_eq!(error.status(), DEVX_DEVICE, "{error}");
        assert!(error.message().contains(&format!("device_id is {id}")), "{error}");
    }
    assert_eq!((CUDA1.arrow_id(), Device::CPU.arrow_id()), (1, -1));
    assert_eq!(Device::count(DeviceType::CUDA), Ok(2));
}

#[test]
fn the_host_reads_no_memory_of_a_device() {
    let Some(_session) = two_devices() else { return };
    let tensor = Tensor::allocate(CUDA1, DType::UINT8, &[4], None).expect("allocated");
    let refused = tensor.as_slice::<u8>().expect_err("not the host's");
    assert_eq!((refused.status(), refused.message()), (DEVX_DEVICE, "device is cuda:1, not host memory"));
    drop(tensor);
    sim::settle();
}

#[test]
fn a_stream_of_the_wrong_device_is_named() {
    let Some(session) = two_devices() else { return };
    let streams = Streams::new();
    let mistaken = sim::on_device(1, streams.zero);
    match Tensor::allocate(CUDA1, DType::UINT8, &[4], Some(mistaken)) {
        Err(error) => assert!(error.message().contains("stream"), "{error}"),
        Ok(tensor) => tensor.check_pointers().expect("then it is where it says"),
    }
    cu_ok!("cuCtxSetCurrent", sim::primary(0));
    sim::settle();
    streams.end();
    session.accept();
}
