//! Which releases wait while cleanup is deferred, and which do not.

use devexchange_core::manager::{Deferred, Driver, HostFlags, Limited, Manager, Pool, PoolOptions, Request, Shared};
use devexchange_core::{DType, DeviceType, Tensor};
use devexchange_tests::foreign::CUDA0;
use devexchange_tests::sim::{self, Session};

use super::{N, each};

/// While cleanup is deferred nothing is given back to the driver; afterwards everything is.
#[test]
fn cleanup_is_deferred() {
    let session = Session::new();
    if sim::skipped("what is live is seen in the simulated driver only") {
        return;
    }
    let managers = || {
        let device = || Driver::new().expect("a manager");
        let limited = Limited::new(Shared::new(device()).expect("shared"), usize::MAX).expect("a manager");
        let pool = Pool::new(PoolOptions::default()).expect("a manager");
        [
            (Shared::new(device()), DeviceType::CUDA, "live_device"),
            (Shared::new(limited), DeviceType::CUDA, "live_device"),
            (Shared::new(pool), DeviceType::CUDA_HOST, "live_host"),
        ]
    };
    session.each(5, || {
        for (manager, kind, live) in managers() {
            let manager = manager.expect("shared");
            let request = Request::of(kind, 0, N);
            let before = sim::stat(live);
            {
                let _outer = Deferred::new(&*manager);
                let inner = Deferred::new(&*manager);
                drop(manager.allocate(&request).expect("allocated"));
                drop(inner);
                drop(manager.allocate(&request).expect("allocated"));
                sim::settle();
                assert_eq!(sim::stat(live), before + 2, "{manager:?}");
                assert_eq!(manager.statistics().bytes, 0, "{manager:?}");
            }
            sim::settle();
            assert_eq!(sim::stat(live), before, "{manager:?}");
        }
    });
}

/// A trim gives back the memory that is held back, too.
#[test]
fn a_trim_gives_back_what_is_deferred() {
    let session = Session::new();
    if sim::skipped("what is live is seen in the simulated driver only") {
        return;
    }
    session.each(5, || {
        let manager = Driver::new().expect("a manager");
        let before = sim::stat("live_device");
        let deferred = Deferred::new(&manager);
        drop(manager.allocate(&Request::device(0, N)).expect("allocated"));
        sim::settle();
        assert_eq!(sim::stat("live_device"), before + 1);
        manager.trim(0, 0).expect("trimmed");
        sim::settle();
        assert_eq!(sim::stat("live_device"), before);
        drop(deferred);
    });
}

/// Memory in the order of a stream goes back on that stream while it exists, even if cleanup is deferred.
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

/// Host memory belongs to its owner again as soon as it is unpinned: the owner may free it or pin it again.
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
