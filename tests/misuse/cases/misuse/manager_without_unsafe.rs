//! What a manager gives is taken at its word, and that takes `unsafe`.

use core::ffi::c_void;

use devexchange_core::manager::{Allocated, HostFlags, Manager, MemoryInfo, Request, Statistics};
use devexchange_core::order::Ready;
use devexchange_core::{Device, Owner, Result};

#[derive(Debug)]
struct Nowhere;

impl Manager for Nowhere {
    fn initialize(&self, _: i32) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, request: &Request) -> Result<Allocated> {
        let address = std::ptr::without_provenance_mut(64);
        Ok(Allocated { address, device: Device::CPU, bytes: request.bytes, owner: Owner::none(), ready: Ready::Now })
    }

    unsafe fn pin(&self, _: i32, _: *mut c_void, _: usize, _: HostFlags) -> Result<Owner> {
        Ok(Owner::none())
    }

    fn memory_info(&self, _: i32) -> Result<MemoryInfo> {
        Ok(MemoryInfo { free: 0, total: 0 })
    }

    fn reset(&self, _: i32) -> Result<()> {
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

fn main() {
    let _ = Nowhere;
}
