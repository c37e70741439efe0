//! The core trusts the memory that a manager returns, so implementing `Manager` needs `unsafe`.

use devexchange_core::manager::{Allocated, Manager, Request, Statistics};
use devexchange_core::order::Ready;
use devexchange_core::{Device, Owner, Result};

#[derive(Debug)]
struct Nowhere;

impl Manager for Nowhere {
    fn allocate(&self, request: &Request) -> Result<Allocated> {
        let address = std::ptr::without_provenance_mut(64);
        Ok(Allocated { address, device: Device::CPU, bytes: request.bytes, owner: Owner::none(), ready: Ready::Now })
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

fn main() {
    let _ = Nowhere;
}
