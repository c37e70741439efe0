//! Managers that are written in Rust, and what goes wrong in them.

use core::ffi::c_void;

use devexchange_core::abi::types::{DEVX_PANIC, DEVX_TOO_DEEP, DEVX_UNSUPPORTED};
use devexchange_core::manager::{
    Allocated, Driver, HostFlags, Limited, Manager, MemoryInfo, Request, Shared, Statistics,
};
use devexchange_core::{DeviceType, Error, Owner, Result};

/// Panics when it is asked for memory.
#[derive(Debug)]
struct Panics;

fn unsupported<T>() -> Result<T> {
    Err(Error::new(DEVX_UNSUPPORTED, "not here"))
}

// SAFETY: it gives no memory.
unsafe impl Manager for Panics {
    fn initialize(&self, _: i32) -> Result<()> {
        Ok(())
    }

    #[expect(clippy::panic, reason = "that is what is tried")]
    fn allocate(&self, _: &Request) -> Result<Allocated> {
        panic!("this text is expected in the output")
    }

    unsafe fn pin(&self, _: i32, _: *mut c_void, _: usize, _: HostFlags) -> Result<Owner> {
        unsupported()
    }

    fn memory_info(&self, _: i32) -> Result<MemoryInfo> {
        unsupported()
    }

    unsafe fn reset(&self, _: i32) -> Result<()> {
        Ok(())
    }

    fn defer_cleanup(&self) {}

    fn resume_cleanup(&self) {}

    fn trim(&self, _: i32, _: usize) -> Result<()> {
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

#[test]
fn a_panic_of_a_manager_takes_nothing_from_the_limit() {
    let limited = Limited::new(Shared::new(Panics).unwrap(), 100).unwrap();
    for _ in 0..3 {
        let request = Request::of(DeviceType::CPU, 0, 60);
        let error = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| limited.allocate(&request).err()));
        assert_eq!(limited.statistics(), Statistics { refused: 0, ..Statistics::default() });
        assert_eq!(error.unwrap().map(|error| error.status()), Some(DEVX_PANIC));
    }
}

/// Plain host memory goes with no device.
#[test]
fn a_reset_leaves_host_memory_alone() {
    let limited = Limited::new(Shared::new(Driver::host_only().unwrap()).unwrap(), 100).unwrap();
    let managers: [&dyn Manager; 2] = [&Driver::host_only().unwrap(), &limited];
    for manager in managers {
        let allocated = manager.allocate(&Request::of(DeviceType::CPU, 0, 60)).unwrap();
        // SAFETY: nobody uses memory of a device.
        unsafe { manager.reset(0) }.unwrap();
        assert_eq!(manager.statistics().bytes, 60);
        // SAFETY: so many bytes are there still.
        unsafe { allocated.address.write_bytes(7, 60) };
        drop(allocated);
        assert_eq!(manager.statistics().bytes, 0);
    }
}

#[test]
fn no_more_than_64_managers_stand_one_over_the_other() {
    let mut top = Shared::new(Panics).unwrap();
    for levels in 2..=64 {
        top = Shared::new(Limited::new(top, 100).unwrap()).unwrap();
        assert_eq!(top.levels(), levels);
    }
    let error = Limited::new(top, 100).unwrap_err();
    assert_eq!(error.status(), DEVX_TOO_DEEP);
    assert_eq!(error.message(), "inner is 64 managers, one over the other: 64 is the most");
}
