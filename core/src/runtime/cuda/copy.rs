//! Copies between host and devices, in the order of a stream.

use core::ffi::c_void;

use cudarc::driver::sys::CUdeviceptr;

use super::context::Current;
use super::driver::Driver;
use super::stream::Stream;
use crate::error::Result;

/// Queues a copy of `bytes` bytes on `stream`. Both addresses may be host or device memory of any device: the driver
/// knows which (unified addressing).
///
/// # Errors
/// `DEVX_DRIVER`.
///
/// # Safety
/// Both ranges are valid until the copy has run; nobody else uses the target meanwhile.
pub unsafe fn queue(to: *mut c_void, from: *const c_void, bytes: usize, stream: Stream) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let driver = Driver::get()?;
    let _current = Current::enter(driver, stream.context()?)?;
    let (to, from) = (to.expose_provenance() as CUdeviceptr, from.expose_provenance() as CUdeviceptr);
    // SAFETY: the caller's contract.
    driver.check("cuMemcpyAsync", unsafe { (driver.memcpy_async)(to, from, bytes, stream.raw()) })
}

/// As [`queue`], and blocks the host until it is done: for reading and writing host memory that is not pinned.
///
/// # Errors
/// `DEVX_DRIVER`.
///
/// # Safety
/// As [`queue`].
pub unsafe fn now(to: *mut c_void, from: *const c_void, bytes: usize, stream: Stream) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { queue(to, from, bytes, stream) }?;
    // If this fails, the copy may still run and the memory not be used: one more try before that is the caller's problem.
    stream.synchronize().or_else(|error| stream.synchronize().and(Err(error)))
}
