//! Memory managers on CUDA: what they give, count, limit and take back, on whatever schedule and with whatever fault.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests reset what nobody uses but they")]

use core::ffi::c_void;
use std::sync::atomic::Ordering::SeqCst;

use devexchange_core::abi::types::*;
use devexchange_core::dlpack::Copying;
use devexchange_core::manager::{
    Allocated, Deferred, Driver, HostFlags, Limited, Manager, Pool, PoolOptions, Request, Shared, Statistics,
};
use devexchange_core::order::Ready;
use devexchange_core::runtime::cuda::{PER_THREAD, kept_events, reaper};
use devexchange_core::{DType, Device, DeviceType, Result, Tensor, convert};
use devexchange_tests::cu_ok;
use devexchange_tests::filled::fill_and_drop;
use devexchange_tests::foreign::CUDA0;
use devexchange_tests::peer::forked;
use devexchange_tests::sim::{self, Session};

const N: usize = 4096;
const SEEDS: u64 = 50;

fn shared(manager: Result<impl Manager + 'static>) -> Shared {
    manager.and_then(Shared::new).expect("room for a manager")
}

fn all() -> Vec<(&'static str, Shared)> {
    let pool = shared(Pool::new(PoolOptions::default()));
    vec![
        ("driver", shared(Driver::new())),
        ("managed", shared(Driver::managed())),
        ("pool", pool.clone()),
        ("limited", shared(Limited::new(pool, 1 << 30))),
    ]
}

/// A manager of a program's own, which asks another one.
fn table_of(inner: Shared) -> Shared {
    unsafe extern "C" fn allocate(
        context: *mut c_void,
        request: *const DevxMemoryRequest,
        out: *mut DevxMemory,
        error: *mut DevxError,
    ) -> DevxStatus {
        let (inner, request) = (unsafe { Shared::borrow_raw(context) }, unsafe { &*request });
        match unsafe { Request::from_raw(request) }.and_then(|request| inner.allocate_ready(&request)) {
            Ok(Allocated { address, device, owner, .. }) => {
                let (device_type, device_id, owner) = (device.kind.0, device.id, owner.into_raw());
                unsafe { out.write(DevxMemory { address, device_type, device_id, owner }) };
                DEVX_OK
            }
            Err(said) => {
                unsafe { *error = said.to_raw() };
                said.status()
            }
        }
    }
    unsafe extern "C" fn release(context: *mut c_void) {
        drop(unsafe { Shared::from_raw(context) });
    }
    let mut table: DevxManagerTable = unsafe { std::mem::zeroed() };
    (table.version, table.context) = (DEVX_MANAGER_VERSION, inner.into_raw());
    table.allocate = Some(allocate);
    table.release = Some(release);
    unsafe { Shared::of_table(&table) }.expect("a manager")
}

/// Takes what the managers keep for themselves for granted: a pool lives as long as its manager.
fn each(session: &Session, seeds: u64, mut scenario: impl FnMut(&str, &Shared)) {
    for (name, manager) in all() {
        session.each(seeds, || {
            scenario(name, &manager);
            unsafe { manager.reset(0) }.expect("reset");
        });
    }
}

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
        tensor.produced_on(sim::on(producer)).expect("not shared");
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
        let error = manager.allocate(&Request::device(7, N)).expect_err("no such device");
        assert_eq!(error.status(), DEVX_DEVICE, "{error}");
        let info = manager.memory_info(0).expect(name);
        assert!(info.free <= info.total && info.total > 0, "{info:?}");
        drop((device, pinned, none));
    });
    let host = Driver::host_only().expect("a manager");
    host.initialize(99).expect("no device is needed");
    assert_eq!(host.allocate(&Request::device(0, N)).expect_err("host only").status(), DEVX_UNSUPPORTED);
    drop(host.allocate(&Request::of(DeviceType::CPU, 0, N)).expect("host memory"));
    assert_eq!(host.memory_info(0).expect_err("it cannot know").status(), DEVX_UNSUPPORTED);
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
        assert!(manager.ipc_handle(std::ptr::null()).is_err());
    });
}

#[test]
fn limits_count_what_is_in_use() {
    let session = Session::new();
    session.each(5, || {
        let limited = Limited::new(shared(Driver::new()), 2 * N).expect("a manager");
        let first = limited.allocate(&Request::device(0, N)).expect("within");
        let second = limited.allocate(&Request::device(0, N)).expect("within");
        let error = limited.allocate(&Request::device(0, 1)).expect_err("over");
        assert_eq!(error.status(), DEVX_OUT_OF_MEMORY);
        assert!(error.message().contains("1 bytes with 8192 in use are more than the limit of 8192"), "{error}");
        assert_eq!(limited.memory_info(0).expect("known").free, 0);
        drop(first);
        drop(limited.allocate(&Request::device(0, N)).expect("within again"));
        assert_eq!(
            limited.allocate(&Request::device(0, usize::MAX)).expect_err("overflow").status(),
            DEVX_OUT_OF_MEMORY
        );
        let now = limited.statistics();
        assert_eq!((now.bytes, now.refused, now.total_allocations), (N, 2, 3));
        drop(second);
    });
}

/// While cleanup is deferred nothing is given back to the driver; then all of it.
#[test]
fn cleanup_is_deferred() {
    let session = Session::new();
    if sim::skipped("what is live is seen in the simulated driver only") {
        return;
    }
    session.each(5, || {
        let manager = Driver::new().expect("a manager");
        let before = sim::stat("live_device");
        {
            let _outer = Deferred::new(&manager);
            let inner = Deferred::new(&manager);
            drop(manager.allocate(&Request::device(0, N)).expect("allocated"));
            drop(inner);
            drop(manager.allocate(&Request::device(0, N)).expect("allocated"));
            sim::settle();
            assert_eq!(sim::stat("live_device"), before + 2);
            assert_eq!(manager.statistics().bytes, 0);
        }
        sim::settle();
        assert_eq!(sim::stat("live_device"), before);
    });
}

/// What belongs to a stream goes back on it while it is there, whatever is deferred.
#[test]
fn memory_of_a_stream_is_not_deferred() {
    let session = Session::new();
    each(&session, 5, |name, manager| {
        let stream = sim::stream();
        let deferred = Deferred::new(&**manager);
        let tensor =
            Tensor::allocate_with(&**manager, CUDA0, DType::UINT8, &[N as i64], Some(sim::on(stream))).expect(name);
        tensor.used_on(sim::on(stream)).expect("noted");
        drop(tensor);
        sim::settle();
        sim::synchronize(stream);
        sim::destroy(stream);
        drop(deferred);
    });
}

/// So is what a manager of a program's own gave in the order of a stream, for which it needs that stream.
#[test]
fn memory_of_a_stream_of_a_programs_own_is_not_deferred() {
    let session = Session::new();
    let manager = table_of(shared(Driver::new()));
    session.each(5, || {
        let stream = sim::stream();
        let deferred = Deferred::new(&*manager);
        drop(manager.allocate(&Request::on(sim::on(stream), N)).expect("allocated"));
        sim::synchronize(stream);
        sim::destroy(stream);
        drop(deferred);
    });
}

/// Only device memory is in the order of a stream: the host may read other memory at once, whoever manages it.
#[test]
fn memory_of_no_device_is_ready_at_once_whatever_the_stream() {
    let session = Session::new();
    let driver = shared(Driver::new());
    let table = table_of(driver.clone());
    let limited = shared(Limited::new(table.clone(), usize::MAX));
    session.each(5, || {
        let stream = sim::stream();
        for manager in [&driver, &table, &limited] {
            for kind in [DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED] {
                let device = Device { kind, id: 0 };
                let on = Some(sim::on(stream));
                let tensor =
                    Tensor::allocate_with(&**manager, device, DType::UINT8, &[N as i64], on).expect("allocated");
                assert!(matches!(tensor.ready(), Ready::Now), "{kind}: {:?}", tensor.ready());
            }
        }
        sim::destroy(stream);
    });
}

/// A manager of a program's own takes memory back in the order of the stream that it was asked for with.
#[test]
fn memory_of_a_programs_own_is_given_back_after_the_work_that_fills_it() {
    let session = Session::new();
    let table = table_of(shared(Driver::new()));
    let limited = shared(Limited::new(table.clone(), usize::MAX));
    for manager in [table, limited] {
        fill_and_drop(&session, SEEDS, |own| {
            let tensor =
                Tensor::allocate_with(&*manager, CUDA0, DType::UINT8, &[N as i64], Some(own)).expect("allocated");
            convert::column(&tensor, "c", Copying::Never).expect("a view")
        });
    }
}

/// A manager of a program's own gives memory back on the stream that it was asked for with, on whatever thread that is: so
/// the default stream of a thread, which has no number on another one, is never asked for.
#[test]
fn the_default_stream_of_a_thread_is_not_asked_of_a_programs_own() {
    struct Block {
        address: u64,
        stream: i64,
    }
    unsafe extern "C" fn free(block: *mut c_void) {
        let block = unsafe { Box::from_raw(block.cast::<Block>()) };
        let (context, mut popped) = (sim::primary(0), 0_u64);
        cu_ok!("cuCtxPushCurrent_v2", context);
        cu_ok!("cuMemFreeAsync", block.address, block.stream);
        cu_ok!("cuCtxPopCurrent_v2", &raw mut popped);
    }
    unsafe extern "C" fn allocate(
        _: *mut c_void,
        request: *const DevxMemoryRequest,
        out: *mut DevxMemory,
        _: *mut DevxError,
    ) -> DevxStatus {
        let DevxMemoryRequest { device_type, device_id, bytes, stream, .. } = unsafe { *request };
        let mut block = Box::new(Block { address: 0, stream });
        cu_ok!("cuMemAllocAsync", &raw mut block.address, bytes as u64, stream);
        let address = block.address as *mut c_void;
        let owner = DevxOwner { context: Box::into_raw(block).cast(), release: Some(free) };
        unsafe { out.write(DevxMemory { address, device_type, device_id, owner }) };
        DEVX_OK
    }
    let session = Session::new();
    let mut table: DevxManagerTable = unsafe { std::mem::zeroed() };
    table.version = DEVX_MANAGER_VERSION;
    table.allocate = Some(allocate);
    let manager = unsafe { Shared::of_table(&table) }.expect("a manager");
    session.each(SEEDS, || {
        let own = sim::on(PER_THREAD as u64);
        let tensor = Tensor::allocate_with(&*manager, CUDA0, DType::UINT8, &[N as i64], Some(own)).expect("allocated");
        sim::fill(tensor.data().expose_provenance() as u64, 1, N as u64, PER_THREAD as u64);
        std::thread::spawn(move || drop(tensor)).join().expect("released");
        sim::synchronize(PER_THREAD as u64);
        sim::synchronize(1);
    });
}

/// Host memory is its owner's again as soon as nobody wants it pinned, who may free it or pin it again.
#[test]
fn pinning_is_not_deferred() {
    let session = Session::new();
    each(&session, 5, |name, manager| {
        let mut mine = vec![0_u8; N].into_boxed_slice();
        let _deferred = Deferred::new(&**manager);
        for _ in 0..2 {
            // SAFETY: the box outlives the owner.
            drop(unsafe { manager.pin(0, mine.as_mut_ptr().cast(), N, HostFlags::default()) }.expect(name));
        }
    });
}

/// What no stream was named for is ready at once, also for streams that wait for no other.
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

/// What managers do has nothing to do with what other streams capture, and leaves it as it is.
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

/// A reset gives back what is still in use; its owners have nothing to do any more, and nothing is given back twice.
#[test]
fn reset_gives_everything_back_once() {
    let session = Session::new();
    each(&session, 5, |name, manager| {
        unsafe { manager.reset(0) }.expect("before anything");
        let kept: Vec<_> = (0..4).map(|_| manager.allocate(&Request::device(0, N)).expect(name)).collect();
        unsafe { manager.reset(0) }.expect("in use");
        sim::settle();
        assert_eq!(manager.statistics().bytes, 0);
        let after = manager.allocate(&Request::device(0, N)).expect("usable again");
        drop(kept);
        assert_eq!(manager.statistics().allocations, 1);
        drop(after);
    });
}

/// What a manager gave outlives it, and is given back from any thread.
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

/// A pool keeps what was freed, gives it to the next one, and to the driver when it is trimmed.
#[test]
fn pools_keep_and_trim() {
    let session = Session::new();
    session.each(5, || {
        let pool = Pool::new(PoolOptions::default()).expect("a manager");
        let stream = sim::stream();
        drop(pool.allocate(&Request::on(sim::on(stream), N)).expect("allocated"));
        sim::synchronize(stream);
        assert!(pool.reserved(0).expect("known") >= N as u64);
        pool.trim(0, 0).expect("trimmed");
        assert_eq!(pool.reserved(0).expect("known"), 0);
        drop(pool);
        sim::destroy(stream);
    });
}

/// Out of memory, the pool trims and tries once more; a second refusal is the caller's.
#[test]
fn pools_try_again_when_memory_is_short() {
    let session = Session::new();
    if sim::skipped("faults are injected into the simulated driver only") {
        return;
    }
    let pool = Pool::new(PoolOptions::default()).expect("a manager");
    let stream = sim::stream();
    // Twice: an allocation asks again by itself, once what was released before is freed.
    sim::fail("cuMemAllocFromPoolAsync", 1, 2, false);
    sim::fail("cuMemAllocFromPoolAsync", 2, 2, false);
    drop(pool.allocate(&Request::on(sim::on(stream), N)).expect("the last try"));
    sim::fail_clear();
    sim::fail("cuMemAllocFromPoolAsync", 1, 2, true);
    let error = pool.allocate(&Request::on(sim::on(stream), N)).expect_err("no memory");
    assert_eq!((error.status(), error.driver_code()), (DEVX_OUT_OF_MEMORY, 2));
    sim::fail_clear();
    let now = pool.statistics();
    assert_eq!((now.bytes, now.refused, now.total_allocations), (0, 1, 1));
    drop(pool);
    sim::synchronize(stream);
    sim::destroy(stream);
    session.check();
}

/// Memory that was given up may still be on its way to the driver when memory runs short, or be held back.
#[test]
fn the_driver_is_asked_again_when_memory_is_short() {
    let session = Session::new();
    if sim::skipped("faults are injected into the simulated driver only") {
        return;
    }
    let manager = Driver::new().expect("a manager");
    let before = sim::stat("live_device");
    let deferred = Deferred::new(&manager);
    drop(manager.allocate(&Request::device(0, N)).expect("allocated"));
    assert_eq!(sim::stat("live_device"), before + 1);
    // Twice: without and with what was held back.
    sim::fail("cuMemAlloc_v2", 1, 2, false);
    sim::fail("cuMemAlloc_v2", 2, 2, false);
    let memory = manager.allocate(&Request::device(0, N)).expect("the last try");
    sim::fail_clear();
    sim::settle();
    assert_eq!(sim::stat("live_device"), before + 1, "what was held back is gone");
    drop((memory, deferred));
    sim::settle();
    session.check();
}

/// When a reset returns, the driver has everything back, also what was given up before: the device itself may be reset.
#[test]
fn a_reset_is_done_when_it_returns() {
    let session = Session::new();
    if sim::skipped("what is live is seen in the simulated driver only") {
        return;
    }
    session.each(5, || {
        let manager = Driver::new().expect("a manager");
        let before = (sim::stat("live_device"), sim::stat("live_host"));
        let held = manager.allocate(&Request::device(0, N)).expect("allocated");
        drop(manager.allocate(&Request::device(0, N)).expect("allocated"));
        drop(manager.allocate(&Request::of(DeviceType::CUDA_HOST, 0, N)).expect("allocated"));
        let tensor = Tensor::allocate_with(&manager, CUDA0, DType::UINT8, &[8], None).expect("allocated");
        tensor.used_on(sim::on(1)).expect("noted");
        drop(tensor);
        sim::settle();
        let kept = kept_events();
        assert!(kept > 0, "there is one for the next time");
        unsafe { manager.reset(0) }.expect("reset");
        assert_eq!((sim::stat("live_device"), sim::stat("live_host")), before);
        assert!(kept_events() < kept, "they would end with the context");
        drop(held);
    });
}

/// The reset of a device takes memory with it. Who has not told the manager before gives back what the driver does not know.
#[test]
fn memory_that_a_device_was_reset_under_counts_as_lost() {
    let _session = Session::new();
    if !sim::is_child() {
        if sim::skipped("a real driver may not survive it") {
            return;
        }
        let output = sim::child("memory_that_a_device_was_reset_under_counts_as_lost", &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let manager = Driver::new().expect("a manager");
    let lost = |is_told: bool| {
        let held = manager.allocate(&Request::device(0, N)).expect("allocated");
        if is_told {
            unsafe { manager.reset(0) }.expect("reset");
        }
        cu_ok!("cuDevicePrimaryCtxReset_v2", 0);
        let before = reaper::leaked();
        drop(held);
        sim::settle();
        reaper::leaked() - before
    };
    assert_eq!((lost(true), lost(false)), (0, 1));
    // The driver has something to say about the latter.
    unsafe { libc::_exit(0) }
}

/// Every call of the driver fails once, in every way: an error, and nothing is lost or given back twice.
#[test]
fn faults() {
    let session = Session::new();
    if sim::skipped("faults are injected into the simulated driver only") {
        return;
    }
    for code in [1, 2, 201, 719, 9999] {
        for nth in 1..40 {
            for (_, manager) in all() {
                sim::fail("*", nth, code, false);
                let device = manager.allocate(&Request::device(0, N));
                let pinned = manager.allocate(&Request::of(DeviceType::CUDA_HOST, 0, N));
                let _ = manager.memory_info(0);
                drop((device, pinned));
                let _ = manager.trim(0, 0);
                let _ = unsafe { manager.reset(0) };
                sim::settle();
                sim::fail_clear();
                assert_eq!(manager.statistics().bytes, 0);
            }
            let findings = sim::take_findings();
            assert!(findings.is_empty(), "call {nth}, code {code}: {findings:?}");
        }
    }
    session.accept();
}

#[test]
fn device_of_the_managed_manager() {
    let session = Session::new();
    session.each(5, || {
        let managed = Driver::managed().expect("a manager");
        let given = managed.allocate(&Request::device(0, N)).expect("allocated");
        assert_eq!(given.device, Device { kind: DeviceType::CUDA_MANAGED, id: 0 });
        drop(given);
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
        // There the driver cannot be asked.
        let refused =
            || pool.reserved(0).is_err_and(|error| error.message().contains("fork")) && pool.trim(0, 0).is_err();
        let ended: Vec<_> = (0..100).map(|_| forked(refused)).collect();
        over.store(true, SeqCst);
        assert!(ended.iter().all(|&status| status == 0), "wait statuses: {ended:?}");
    });
}
