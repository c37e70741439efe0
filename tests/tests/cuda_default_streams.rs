//! Default streams, whose number does not name a device: the device is that of the memory, the one that the memory was
//! made for, or the one that is named.
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

use core::ffi::c_void;

use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::abi::types::{
    DEVX_CALLBACK, DEVX_MANAGER_VERSION, DevxError, DevxManagerTable, DevxMemory, DevxMemoryRequest, DevxStatus,
};
use devexchange_core::dlpack::{self, Copying, Owned, Request};
use devexchange_core::manager::{self, Manager, PoolOptions};
use devexchange_core::stream::{LEGACY, PER_THREAD};
use devexchange_core::{DType, Device, DeviceType, Stream, Tensor, cuda_array, ipc};
use devexchange_tests::cu_ok;
use devexchange_tests::devices::{CUDA1, Streams, numbers, require_numbers, two_devices};
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::sim;

const N: u64 = 256;
const SEEDS: u64 = 100;

/// Data whose producer names no stream is behind the legacy default stream of the device that the memory was made for.
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

/// Memory of `kind` that was made for device 1, and the function that frees it.
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

/// Like [`on_legacy_of_one`], also on the default stream of this thread.
fn on_default_of_one(number: i64, work: impl FnOnce(u64)) {
    sim::set_current(sim::primary(1));
    work(number as u64);
    sim::set_current(sim::primary(0));
}

const OF_NO_DEVICE: [DeviceType; 2] = [DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED];

/// The producer was asked for stream 1, which means that of the device that the memory was made for.
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
            unsafe { tensor.produced_on(streams.of(CUDA0)) }.expect("not shared");
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

/// A copy on stream 1 runs on that of the GPU that it is to or from, otherwise of the one that the pinned memory was
/// made for.
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

/// Within host memory, too, a copy comes after the work queued on the named stream.
#[test]
fn a_default_stream_for_a_copy_within_host_memory_is_that_of_device_0() {
    let Some(session) = two_devices() else { return };
    let tensor = numbers();
    let of = |value| tensor.stream_to(Device::CPU, value).expect("a stream").ordinal();
    assert_eq!([of(sim::raw(LEGACY)), of(sim::raw(LEGACY).on(1))], [0, 1]);
    drop(session);
}

/// The driver is not asked if a number is unambiguous: a handle, or memory that belongs to a device or to the host.
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
    let refused = numbers().stream(sim::raw(1)).expect_err("host memory");
    assert_eq!(refused.message(), "stream is 1: device is cpu:0, which has no streams");
    drop((on_gpu, of_none));
    streams.end();
    drop(session);
}

/// A consumer of a CUDA array takes stream 1 as that of the array's device, and the interface has no room for a device
/// number.
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
            unsafe { tensor.produced_on(sim::on_device(by.id, LEGACY as u64)) }.expect("not shared");
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

/// A default stream of device 1 with memory of device 0: a request by its name means the named device.
#[test]
fn a_default_stream_that_is_named_with_its_device_is_of_that_device() {
    let Some(session) = two_devices() else { return };
    for number in [LEGACY, PER_THREAD] {
        session.each(SEEDS, || {
            let (streams, scratch) = (Streams::new(), sim::alloc(N));
            let (data, named) = (sim::alloc(N), sim::on_device(1, number as u64));
            sim::fill(data, 0x5a, N, streams.zero);
            let mut tensor = foreign::tensor(data, N, CUDA0, move || sim::free(data));
            unsafe { tensor.produced_on(streams.of(CUDA0)) }.expect("not shared");
            // The consumer works there, and its release waits for that work.
            let request = Request { stream: named.into(), ..Request::default() };
            let exported: Owned<DLManagedTensorVersioned> = dlpack::export(tensor, &request).expect("exported");
            on_default_of_one(number, |stream| sim::copy(scratch, data, N, stream));
            // And so does a producer: its work queued there comes before.
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
        unsafe { tensor.produced_on(streams.of(CUDA0)) }.expect("not shared");
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

/// A program's own manager gets a number, which it takes as a stream of the device in the request.
#[test]
fn a_manager_is_not_told_of_a_default_stream_of_another_device() {
    let Some(session) = two_devices() else { return };
    let streams = Streams::new();
    let mut table: DevxManagerTable = unsafe { std::mem::zeroed() };
    table.version = DEVX_MANAGER_VERSION;
    table.allocate = Some(never_asked);
    let manager = unsafe { manager::Shared::of_table(&table) }.expect("a manager");
    for own in [&*manager as &dyn Manager, &manager::Pool::new(PoolOptions::default()).expect("a pool")] {
        let stream = Some(sim::on_device(1, LEGACY as u64));
        let request = manager::Request { stream, ..manager::Request::of(DeviceType::CUDA, 0, 64) };
        let error = own.allocate(&request).expect_err("not in that order");
        assert_eq!(error.message(), "stream is 0x1: of cuda:1, not of cuda:0");
    }
    drop(manager);
    streams.end();
    drop(session);
}

/// Memory of no device is requested from any manager for the device of its stream, however the stream is named.
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
    let own = unsafe { manager::Shared::of_table(&table) }.expect("a manager");
    let driver = manager::Driver::new().expect("a manager");
    for kind in OF_NO_DEVICE {
        let device = Device { kind, id: 0 };
        // Nothing states the device of a handle.
        for stream in [sim::on(streams.one), sim::on_device(1, LEGACY as u64)] {
            let refused =
                Tensor::allocate_with(&*own, device, DType::UINT8, &[64], Some(stream)).expect_err("it gives none");
            assert_eq!(refused.status(), DEVX_CALLBACK, "{refused}");
            let tensor = Tensor::allocate_with(&driver, device, DType::UINT8, &[64], Some(stream)).expect("allocated");
            assert_eq!((tensor.device(), tensor.stream(sim::raw(LEGACY)).expect("a stream").ordinal()), (device, 1));
        }
        Tensor::allocate_with(&*own, device, DType::UINT8, &[64], None).expect_err("it gives none");
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

/// Pinned and managed memory that a stream writes is made for the stream's device: its default streams are then that
/// device's, and no other device is used.
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

/// Managed memory is device 0, whichever device it is requested for.
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

/// Memory that cannot be shared between processes is copied to the device that it was made for, on a stream of that
/// device.
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

/// A number that includes a device is valid only within this library, and only for an existing device and stream
/// number.
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
