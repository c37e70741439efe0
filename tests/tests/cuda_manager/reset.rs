//! A reset gives back everything, once; if a device is reset without one, what is left counts as lost.

use devexchange_core::abi::types::DEVX_DRIVER;
use devexchange_core::manager::{Driver, Manager, Request};
use devexchange_core::runtime::cuda::kept_events;
use devexchange_core::runtime::releases_lost;
use devexchange_core::{DType, DeviceType, Stream, Tensor};
use devexchange_tests::cu_ok;
use devexchange_tests::foreign::CUDA0;
use devexchange_tests::sim::{self, Session};

use super::{N, each};

/// A reset gives back memory that is still in use; the owners then have nothing left to do, and nothing is given back
/// twice.
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

/// When a reset returns, the driver has everything back, including what was given up before: the device itself may be
/// reset.
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

/// The reset of a device destroys its memory. If the manager was not reset before, it later gives back memory that the
/// driver no longer knows.
#[test]
fn memory_that_a_device_was_reset_under_counts_as_lost() {
    let _session = Session::new();
    let test = "reset::memory_that_a_device_was_reset_under_counts_as_lost";
    if sim::skipped("a real driver may not survive it") || !sim::is_apart(test, &[]) {
        return;
    }
    let manager = Driver::new().expect("a manager");
    let lost = |is_told: bool| {
        let held = manager.allocate(&Request::device(0, N)).expect("allocated");
        if is_told {
            unsafe { manager.reset(0) }.expect("reset");
        }
        cu_ok!("cuDevicePrimaryCtxReset_v2", 0);
        let before = releases_lost();
        drop(held);
        sim::settle();
        releases_lost() - before
    };
    assert_eq!((lost(true), lost(false)), (0, 1));
    // The driver has findings about the latter.
    unsafe { libc::_exit(0) }
}

/// Events that are kept for reuse end with the context, too. The next use of one makes another event.
#[test]
fn an_event_that_a_device_was_reset_under_is_replaced() {
    let _session = Session::new();
    let test = "reset::an_event_that_a_device_was_reset_under_is_replaced";
    if sim::skipped("a real driver may not survive it") || !sim::is_apart(test, &[]) {
        return;
    }
    let manager = Driver::new().expect("a manager");
    let used = || {
        let tensor = Tensor::allocate_with(&manager, CUDA0, DType::UINT8, &[8], None).expect("allocated");
        tensor.used_on(sim::on(1)).expect("noted");
        drop(tensor);
        sim::settle();
    };
    used();
    let kept = kept_events();
    assert!(kept > 0, "there is one for the next time");
    cu_ok!("cuDevicePrimaryCtxReset_v2", 0);
    // The program goes on with the device.
    let mut context = 0_u64;
    cu_ok!("cuDevicePrimaryCtxRetain", &raw mut context, 0);
    used();
    assert_eq!((kept_events(), releases_lost()), (1, 0));
    // The driver has findings about the use of what is gone.
    unsafe { libc::_exit(0) }
}

/// Nothing can be done in the context of a device that was reset until somebody retains it anew; a program that uses the
/// device only with this library does not.
#[test]
fn a_device_that_was_reset_can_be_used_again() {
    let _session = Session::new();
    let test = "reset::a_device_that_was_reset_can_be_used_again";
    if sim::skipped("a real driver may not survive it") || !sim::is_apart(test, &[]) {
        return;
    }
    let manager = Driver::new().expect("a manager");
    let use_it = || {
        drop(manager.allocate(&Request::device(0, N))?);
        Stream::create(0)?.synchronize()
    };
    use_it().expect("used");
    let retained = sim::stat("live_contexts");
    for round in 1..=3 {
        unsafe { manager.reset(0) }.expect("reset");
        cu_ok!("cuDevicePrimaryCtxReset_v2", 0);
        use_it().expect("used again");
        use_it().expect("and again");
        assert_eq!(sim::stat("live_contexts"), retained + round, "retained once after each reset");
    }
    // What a reset without a word destroyed is noticed by the first call that fails.
    cu_ok!("cuDevicePrimaryCtxReset_v2", 0);
    assert_eq!(use_it().expect_err("nobody knew").status(), DEVX_DRIVER);
    use_it().expect("used again");
    unsafe { libc::_exit(0) }
}
