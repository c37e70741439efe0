//! Memory of every kind is given, and taken back in order, even after its manager is gone.

use std::sync::atomic::Ordering::SeqCst;

use devexchange_core::abi::types::*;
use devexchange_core::manager::{Driver, HostFlags, Manager, Pool, PoolOptions, Request, Statistics};
use devexchange_core::order::Ready;
use devexchange_core::{DType, Device, DeviceType, Tensor};
use devexchange_tests::foreign::CUDA0;
use devexchange_tests::peer::forked;
use devexchange_tests::sim::{self, Session};

use super::{N, SEEDS, all, each};

#[test]
fn memory_is_given_and_taken_back_in_order() {
    let session = Session::new();
    each(&session, SEEDS, |name, manager| {
        manager.initialize(0).expect("initialized");
        manager.initialize(0).expect("initialized again");
        let (producer, consumer) = (sim::stream(), sim::stream());
        let tensor =
            Tensor::allocate_with(&**manager, CUDA0, DType::UINT8, &[N as i64], Some(sim::on(producer))).expect(name);
        tensor.check_pointers().expect("it is where it says");
        let data = tensor.data().expose_provenance() as u64;
        sim::fill(data, 7, N as u64, producer);
        let mut tensor = tensor;
        unsafe { tensor.produced_on(sim::on(producer)) }.expect("not shared");
        tensor.wait(sim::on(consumer)).expect("waits");
        let scratch = sim::alloc(N as u64);
        sim::copy(scratch, data, N as u64, consumer);
        tensor.used_on(sim::on(consumer)).expect("noted");
        assert_eq!(manager.statistics().bytes, N);
        drop(tensor);
        assert!(sim::download(scratch, N as u64, consumer).iter().all(|byte| *byte == 7));
        sim::free(scratch);
        sim::settle();
        let Statistics { bytes, allocations, peak_bytes, .. } = manager.statistics();
        assert_eq!((bytes, allocations, peak_bytes), (0, 0, N), "{name}");
        sim::destroy(producer);
        sim::destroy(consumer);
    });
}

#[test]
fn without_a_stream_and_of_every_kind() {
    let session = Session::new();
    each(&session, 5, |name, manager| {
        let device = manager.allocate(&Request::device(0, N)).expect(name);
        assert_eq!(device.bytes, N);
        let pinned = manager.allocate(&Request::of(DeviceType::CUDA_HOST, 0, N)).expect(name);
        assert_eq!(pinned.device.kind, DeviceType::CUDA_HOST);
        assert!(matches!(pinned.ready, Ready::Now));
        let none = manager.allocate(&Request::device(0, 0)).expect(name);
        assert!(none.address.is_null());
        let error = manager.allocate(&Request::of(DeviceType::ROCM, 0, N)).expect_err("no such kind");
        assert_eq!(error.status(), DEVX_UNSUPPORTED);
        let nowhere = [Request::device(7, N), Request::device(7, 0), Request::of(DeviceType::CUDA_HOST, -1, 0)];
        let nowhere =
            nowhere.map(|request| manager.allocate(&request).map(drop)).into_iter().chain([manager.initialize(7)]);
        for error in nowhere.map(|done| done.expect_err("no such device")) {
            assert_eq!(error.status(), DEVX_DEVICE, "{error}");
        }
        let info = manager.memory_info(0).expect(name);
        assert!(info.free <= info.total && info.total > 0, "{info:?}");
        drop((device, pinned, none));
    });
    let host = Driver::host_only().expect("a manager");
    host.initialize(99).expect("no device is needed");
    let refused = host.allocate(&Request::device(0, N)).expect_err("host only");
    assert_eq!(refused.status(), DEVX_UNSUPPORTED);
    assert!(refused.message().contains("the host-only manager"), "{refused}");
    drop(host.allocate(&Request::of(DeviceType::CPU, 0, N)).expect("host memory"));
    assert_eq!(host.memory_info(0).expect_err("it cannot know").status(), DEVX_UNSUPPORTED);
}

#[test]
fn device_of_the_managed_manager() {
    let session = Session::new();
    session.each(5, || {
        let managed = Driver::managed().expect("a manager");
        let given = managed.allocate(&Request::device(0, N)).expect("allocated");
        assert_eq!(given.device, Device { kind: DeviceType::CUDA_MANAGED, id: 0 });
        let refused = managed.allocate(&Request::of(DeviceType::ROCM, 0, N)).expect_err("no such kind");
        assert!(refused.message().contains("the managed manager"), "{refused}");
        drop(given);
    });
}

#[test]
fn host_memory_is_pinned_for_a_while() {
    let session = Session::new();
    each(&session, 5, |name, manager| {
        let mut mine = vec![0_u8; N].into_boxed_slice();
        let flags = HostFlags { mapped: true, portable: true, ..HostFlags::default() };
        // SAFETY: the box outlives the owner.
        let owner = unsafe { manager.pin(0, mine.as_mut_ptr().cast(), N, flags) }.expect(name);
        // SAFETY: as above.
        let twice = unsafe { manager.pin(0, mine.as_mut_ptr().cast(), N, flags) }.expect_err("pinned already");
        assert_eq!((twice.status(), twice.driver_code()), (DEVX_DRIVER, 712), "{twice}");
        drop(owner);
        // SAFETY: as above.
        drop(unsafe { manager.pin(0, mine.as_mut_ptr().cast(), N, flags) }.expect("pinned again"));
        let wrong = HostFlags { write_combined: true, ..flags };
        // SAFETY: as above.
        let refused = unsafe { manager.pin(0, mine.as_mut_ptr().cast(), N, wrong) }.expect_err("not possible");
        assert_eq!(refused.status(), DEVX_INVALID_ARGUMENT);
    });
}

#[test]
fn allocations_have_handles_for_other_processes() {
    let session = Session::new();
    each(&session, 2, |name, manager| {
        let device = manager.allocate(&Request::device(0, N)).expect(name);
        let inside = device.address.wrapping_byte_add(100);
        match manager.ipc_handle(inside) {
            Ok(found) => {
                assert_eq!((found.ordinal, found.offset, found.bytes), (0, 100, N), "{name}");
                assert_eq!(manager.ipc_handle(device.address).expect(name).handle, found.handle);
                assert_ne!(found.handle, [0; 64]);
            }
            Err(error) => {
                assert_eq!(error.status(), DEVX_UNSUPPORTED, "{error}");
                let why = if device.device.kind == DeviceType::CUDA_MANAGED { "cannot share" } else { "of a pool" };
                assert!(error.message().contains(why), "{name}: {error}");
            }
        }
        let pinned = manager.allocate(&Request::of(DeviceType::CUDA_HOST, 0, N)).expect(name);
        assert_eq!(manager.ipc_handle(pinned.address).expect_err("pinned").status(), DEVX_UNSUPPORTED);
        assert_eq!(manager.ipc_handle(std::ptr::null()).expect_err("NULL").status(), DEVX_UNSUPPORTED);
    });
}

/// Memory for which no stream was named is ready at once, even for streams that wait for no other stream.
#[test]
fn memory_without_a_stream_is_ready_at_once() {
    let session = Session::new();
    each(&session, SEEDS, |name, manager| {
        let (theirs, mine) = (sim::stream(), sim::stream());
        let first =
            Tensor::allocate_with(&**manager, CUDA0, DType::UINT8, &[N as i64], Some(sim::on(theirs))).expect(name);
        sim::fill(first.data().expose_provenance() as u64, 1, N as u64, theirs);
        first.used_on(sim::on(theirs)).expect("noted");
        drop(first);
        let second = manager.allocate_ready(&Request::device(0, N)).expect(name);
        sim::fill(second.address.expose_provenance() as u64, 2, N as u64, mine);
        sim::synchronize(mine);
        drop(second);
        sim::settle();
        sim::synchronize(theirs);
        sim::destroy(theirs);
        sim::destroy(mine);
    });
}

/// The work of managers is independent of other streams' captures, and leaves them intact.
#[test]
fn captures_of_others_stay_intact() {
    let session = Session::new();
    each(&session, 5, |name, manager| {
        let (other, stream) = (sim::stream(), sim::stream());
        let mut mine = vec![0_u8; N].into_boxed_slice();
        sim::begin_capture(other, 0);
        // SAFETY: the box outlives the owner.
        drop(unsafe { manager.pin(0, mine.as_mut_ptr().cast(), N, HostFlags::default()) }.expect(name));
        drop(manager.allocate(&Request::on(sim::on(stream), N)).expect(name));
        drop(manager.allocate_ready(&Request::device(0, N)).expect(name));
        manager.memory_info(0).expect(name);
        manager.trim(0, 0).expect(name);
        unsafe { manager.reset(0) }.expect(name);
        sim::settle();
        assert_eq!(sim::end_capture(other), 0, "{name}: the capture is intact");
        sim::synchronize(stream);
        sim::destroy(other);
        sim::destroy(stream);
    });
}

/// Memory outlives its manager, and is given back from any thread.
#[test]
fn memory_outlives_its_manager() {
    let session = Session::new();
    session.each(SEEDS, || {
        for (name, manager) in all() {
            let stream = sim::stream();
            let tensor =
                Tensor::allocate_with(&*manager, CUDA0, DType::UINT8, &[N as i64], Some(sim::on(stream))).expect(name);
            drop(manager);
            sim::fill(tensor.data().expose_provenance() as u64, 1, N as u64, stream);
            tensor.used_on(sim::on(stream)).expect("noted");
            std::thread::spawn(move || drop(tensor)).join().expect("released");
            sim::settle();
            sim::destroy(stream);
        }
    });
}

#[test]
fn a_fork_finds_no_lock_held_by_threads_of_its_parent() {
    let _session = Session::new();
    let pool = Pool::new(PoolOptions::default()).expect("room for a manager");
    pool.initialize(0).expect("initialized");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                pool.initialize(0).expect("initialized");
            }
        });
        // There the driver cannot be asked about it.
        let refused =
            || pool.reserved(0).is_err_and(|error| error.message().contains("fork")) && pool.trim(0, 0).is_err();
        let ended: Vec<_> = (0..100).map(|_| forked(refused)).collect();
        over.store(true, SeqCst);
        assert!(ended.iter().all(|&status| status == 0), "wait statuses: {ended:?}");
    });
}
