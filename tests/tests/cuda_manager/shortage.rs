//! Limits, memory that a pool keeps, memory that runs short, and failing calls of the driver.

use devexchange_core::DeviceType;
use devexchange_core::abi::types::*;
use devexchange_core::manager::{Deferred, Driver, Limited, Manager, Pool, PoolOptions, Request};
use devexchange_tests::sim::{self, Session};

use super::{N, all, shared};

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
        let info = limited.memory_info(0).expect("known");
        assert_eq!((info.free, info.total), (0, 2 * N));
        drop(first);
        drop(limited.allocate(&Request::device(0, N)).expect("within again"));
        assert_eq!(
            limited.allocate(&Request::device(0, usize::MAX)).expect_err("overflow").status(),
            DEVX_OUT_OF_MEMORY
        );
        let now = limited.statistics();
        assert_eq!((now.bytes, now.refused, now.total_allocations, now.total_bytes), (N, 2, 3, 3 * N as u64));
        drop(second);
    });
}

/// A pool keeps freed memory, gives it to the next allocation, and gives it to the driver when it is trimmed.
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

/// Memory that a pool holds and nobody uses is free for its next allocation, although the driver counts it as used.
#[test]
fn what_a_pool_keeps_is_free() {
    let session = Session::new();
    if sim::skipped("others use memory of a real device meanwhile") {
        return;
    }
    session.each(5, || {
        let pool = Pool::new(PoolOptions::default()).expect("a manager");
        let (driver, stream) = (Driver::new().expect("a manager"), sim::stream());
        let held = pool.allocate(&Request::on(sim::on(stream), N)).expect("allocated");
        drop(pool.allocate(&Request::on(sim::on(stream), N)).expect("allocated"));
        sim::synchronize(stream);
        let (others, kept) = (driver.memory_info(0).expect("known"), pool.reserved(0).expect("known") as usize - N);
        assert!(kept > 0 && others.free + kept < others.total, "{kept} {others:?}");
        assert_eq!(pool.memory_info(0).expect("known").free, others.free + kept);
        drop(held);
        drop(pool);
        sim::settle();
        sim::destroy(stream);
    });
}

/// When memory is short, the pool trims and tries once more; a second refusal is returned to the caller.
#[test]
fn pools_try_again_when_memory_is_short() {
    let session = Session::new();
    if sim::skipped("faults are injected into the simulated driver only") {
        return;
    }
    let pool = Pool::new(PoolOptions::default()).expect("a manager");
    let stream = sim::stream();
    // Two failures, because an allocation asks again by itself, once what was released before is freed.
    sim::fail("cuMemAllocFromPoolAsync", 1, 2, false);
    sim::fail("cuMemAllocFromPoolAsync", 2, 2, false);
    drop(pool.allocate(&Request::on(sim::on(stream), N)).expect("the last try"));
    sim::fail_clear();
    sim::fail("cuMemAllocFromPoolAsync", 1, 2, true);
    let error = pool.allocate(&Request::on(sim::on(stream), N)).expect_err("no memory");
    assert_eq!((error.status(), error.driver_code()), (DEVX_OUT_OF_MEMORY, 2));
    sim::fail_clear();
    // Another error does not mean a lack of memory.
    sim::fail("cuMemAllocFromPoolAsync", 1, 1, false);
    let error = pool.allocate(&Request::on(sim::on(stream), N)).expect_err("an invalid value");
    assert_eq!((error.status(), error.driver_code()), (DEVX_DRIVER, 1));
    sim::fail_clear();
    let now = pool.statistics();
    assert_eq!((now.bytes, now.refused, now.total_allocations), (0, 1, 1));
    drop(pool);
    sim::synchronize(stream);
    sim::destroy(stream);
    session.check();
}

/// When memory runs short, memory that was given up may still be on its way to the driver, or be held back.
#[test]
fn the_driver_is_asked_again_when_memory_is_short() {
    let session = Session::new();
    if sim::skipped("faults are injected into the simulated driver only") {
        return;
    }
    let (driver, pool) = (|| shared(Driver::new()), || shared(Pool::new(PoolOptions::default())));
    let (device, pinned) = (Request::device(0, N), Request::of(DeviceType::CUDA_HOST, 0, N));
    for (manager, request, call, stat) in [
        (driver(), device, "cuMemAlloc_v2", "live_device"),
        (driver(), pinned, "cuMemHostAlloc", "live_host"),
        (pool(), pinned, "cuMemHostAlloc", "live_host"),
    ] {
        let before = sim::stat(stat);
        let deferred = Deferred::new(&*manager);
        drop(manager.allocate(&request).expect("allocated"));
        assert_eq!(sim::stat(stat), before + 1, "{call}");
        // Two failures: without and with the memory that was held back.
        sim::fail(call, 1, 2, false);
        sim::fail(call, 2, 2, false);
        let memory = manager.allocate(&request).expect("the last try");
        sim::fail_clear();
        sim::settle();
        assert_eq!(sim::stat(stat), before + 1, "{call}: what was held back is gone");
        drop((memory, deferred));
        sim::settle();
    }
    session.check();
}

/// Every call of the driver fails once, in every way: the result is an error, and nothing is lost or given back twice.
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
