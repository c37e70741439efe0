//! Copies between host and devices, in the order of a stream.
//!
//! The driver knows where an address is (unified addressing). But if memory of a pool is on another device than the stream,
//! `cuMemcpyAsync` refuses it, unless the pool gives that device access; only `cuMemcpyPeerAsync` can copy it. A producer does
//! not say whether its memory is from a pool, so all memory of other devices is copied as if it were.

use core::ffi::c_void;

use cudarc::driver::sys::CUdeviceptr;

use super::context;
use super::driver::Driver;
use super::event::Event;
use super::lost;
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result};
use crate::memory::{Owner, repeated};
use crate::stream::Stream;

/// A copy: the target, the source, and the number of bytes.
pub(crate) type Copy = (*mut c_void, *const c_void, usize);

/// The result of copies.
pub(crate) type Copied<T = ()> = std::result::Result<T, Failed>;

/// Why some or all copies were not queued, or cannot be waited for.
#[derive(Debug)]
pub(crate) struct Failed {
    error: Error,
    /// Whether some copies may run on another stream than the caller's, where nobody can know when they are done. The memory
    /// that they read and write must then never be given up.
    pub(crate) is_astray: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, is_astray: false }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// Queues copies on `stream`, all of them from memory of `from` to memory of `to`. Work that is queued there afterwards comes
/// after them, including those that were queued before one failed.
///
/// # Errors
/// `DEVX_DRIVER`.
///
/// # Safety
/// All ranges are valid until the copies have run. Nobody else uses the targets meanwhile.
pub(crate) unsafe fn queue(to: Device, from: Device, copies: impl Iterator<Item = Copy>, stream: Stream) -> Copied {
    let mut copies = copies.filter(|&(_, _, bytes)| bytes > 0).peekable();
    if copies.peek().is_none() {
        return Ok(());
    }
    match (ordinal(to), ordinal(from)) {
        // SAFETY: the caller's contract.
        (Some(target), Some(source)) if target != source => unsafe { queue_between(target, source, copies, stream) }?,
        (Some(own), _) | (None, Some(own)) if !stream.is_of(own)? => {
            let aside = Stream::create(own)?;
            // SAFETY: as above.
            let queued = unsafe { queue_aside(aside, copies, stream) };
            aside.end();
            queued?;
        }
        // SAFETY: as above.
        _ => unsafe { queue_here(copies, stream) }?,
    }
    Ok(())
}

/// The GPU that the memory is on, if it is on one.
fn ordinal(device: Device) -> Option<i32> {
    (device.kind == DeviceType::CUDA).then_some(device.id)
}

/// # Safety
/// Same as [`queue`].
unsafe fn queue_here(mut copies: impl Iterator<Item = Copy>, stream: Stream) -> Result<()> {
    let driver = Driver::get()?;
    let _current = stream.enter()?;
    copies.try_for_each(|(to, from, bytes)| {
        // SAFETY: the caller's contract.
        let code = unsafe { (driver.memcpy_async)(number(to), number(from.cast_mut()), bytes, stream.raw()) };
        driver.check("cuMemcpyAsync", code)
    })
}

/// Copies between two GPUs, on a stream of either.
///
/// # Safety
/// Same as [`queue`].
unsafe fn queue_between(
    target: i32,
    source: i32,
    mut copies: impl Iterator<Item = Copy>,
    stream: Stream,
) -> Result<()> {
    let driver = Driver::get()?;
    let (target, source) = (context::primary(driver, target)?, context::primary(driver, source)?);
    let _current = stream.enter()?;
    copies.try_for_each(|(to, from, bytes)| {
        let (to, from) = (number(to), number(from.cast_mut()));
        // SAFETY: the caller's contract.
        let code = unsafe { (driver.memcpy_peer_async)(to, target.0, from, source.0, bytes, stream.raw()) };
        driver.check("cuMemcpyPeerAsync", code)
    })
}

/// Copies on `aside`, a stream of the memory's device: after the work queued on `stream` until now, and before later
/// work.
///
/// # Safety
/// Same as [`queue`].
unsafe fn queue_aside(aside: Stream, copies: impl Iterator<Item = Copy>, stream: Stream) -> Copied {
    Event::record(stream)?.wait(aside)?;
    // SAFETY: the caller's contract.
    let queued = unsafe { queue_here(copies, aside) };
    let done = Event::record(aside).and_then(|event| event.wait(stream));
    // If `stream` cannot wait for the copies, the host does.
    done.or_else(|_| aside.synchronize()).map_err(|error| Failed { error, is_astray: true })?;
    Ok(queued?)
}

fn number(address: *mut c_void) -> CUdeviceptr {
    address.expose_provenance() as CUdeviceptr
}

/// Like [`queue`], but for one copy, and blocks the host until it is done. For reading and writing unpinned host memory.
///
/// # Errors
/// `DEVX_DRIVER`.
///
/// # Safety
/// Same as [`queue`].
pub(crate) unsafe fn now(to: Device, from: Device, copy: Copy, stream: Stream) -> Copied {
    // SAFETY: the caller's contract.
    unsafe { queue(to, from, std::iter::once(copy), stream) }?;
    // If this fails, the copy may still run, and the memory must not be used. So it is tried once more before the caller has
    // to deal with that.
    Ok(stream.synchronize().or_else(|error| stream.synchronize().and(Err(error)))?)
}

/// Like [`now`], but into new host memory. If nobody can know when the copy is done, that memory is never freed.
///
/// # Errors
/// `DEVX_DRIVER`, `DEVX_OUT_OF_MEMORY`.
///
/// # Safety
/// The bytes at `source` are valid until the copy has run.
pub(crate) unsafe fn fetch(from: Device, source: *const c_void, bytes: usize, stream: Stream) -> Copied<Vec<u8>> {
    let mut target = repeated(0_u8, bytes)?;
    // SAFETY: the new memory has `bytes` bytes, and is kept if the copy may still run; the rest is the caller's contract.
    let copied = unsafe { now(Device::CPU, from, (target.as_mut_ptr().cast(), source, bytes), stream) };
    if let Err(failed) = copied {
        if failed.is_astray || stream.synchronize().is_err() {
            std::mem::forget(target);
            lost::abandon(Owner::none());
        }
        return Err(failed);
    }
    Ok(target)
}
