//! New memory, and copies into it, with when they may be touched.

use core::ffi::c_void;

use crate::device::{Device, DeviceType};
use crate::error::{Error, Result, refuse};
use crate::memory::{Owner, vector, zeros};
use crate::order::Ready;
use crate::runtime::cuda::Allocation;
use crate::runtime::cuda::copy::{self, Copied};
use crate::runtime::cuda::driver::Driver;
use crate::stream::Stream;

/// New memory, what frees it, and when it may be touched.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) address: *mut c_void,
    pub(crate) owner: Owner,
    pub(crate) ready: Ready,
}

/// Memory of a device, not initialised: for who writes all that can be read of it. On a GPU it comes from the device's
/// pool, ready for work on `stream`; without a stream it is plain device memory, ready at once. Pinned and managed memory
/// is ready at once, too, and made for the device of the stream.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`, `DEVX_DEVICE`, `DEVX_DRIVER`.
pub(crate) fn allocate(device: Device, bytes: usize, stream: Option<Stream>) -> Result<Memory> {
    let (allocation, ready) = match (device.kind, stream) {
        (DeviceType::CPU, _) => return host(bytes, vector),
        (DeviceType::CUDA, Some(stream)) => {
            let ready = Ready::queued(stream)?;
            (Allocation::pool(device.id, stream, bytes)?, ready)
        }
        (DeviceType::CUDA, None) => (Allocation::device(device.id, bytes)?, Ready::Now),
        (DeviceType::CUDA_HOST, _) => (Allocation::pinned(made_for(device, stream)?, bytes)?, Ready::Now),
        (DeviceType::CUDA_MANAGED, _) => (Allocation::managed(made_for(device, stream)?, bytes)?, Ready::Now),
        _ => return refuse!(DEVX_DEVICE, "device is {device}: this library has no memory of it"),
    };
    Ok(Memory { address: allocation.address, owner: allocation.owner, ready })
}

/// The GPU that memory is made for: the device itself, or that of the stream, where memory belongs to none.
///
/// # Errors
/// `DEVX_DRIVER`.
pub(crate) fn made_for(device: Device, stream: Option<Stream>) -> Result<i32> {
    match (device.kind, stream) {
        (DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED, Some(stream)) => stream.device(),
        _ => Ok(device.id),
    }
}

/// As [`allocate`], for who may read it at once: memory of the host is zero, as reading what Rust has not initialised is
/// undefined. Other memory is initialised by the driver, with whatever it is.
///
/// # Errors
/// As [`allocate`].
pub(crate) fn allocate_readable(device: Device, bytes: usize, stream: Option<Stream>) -> Result<Memory> {
    if device.kind == DeviceType::CPU { host(bytes, zeros) } else { allocate(device, bytes, stream) }
}

/// Memory of the host begins at a multiple of this: DLPack promises it of every tensor (`DLTensor.data`), Arrow recommends 64, and
/// there are consumers that copy what is aligned to less than that (JAX). The driver's memory and files begin so anyway.
const ALIGN: usize = 256;

fn host(bytes: usize, make: fn(usize) -> Result<Vec<u128>>) -> Result<Memory> {
    // To begin further behind, if need be; of no bytes there is nothing to align.
    let spare = if bytes == 0 { 0 } else { ALIGN - align_of::<u128>() };
    let words = bytes.saturating_add(spare).div_ceil(size_of::<u128>());
    let mut memory = make(words).map_err(|_| Error::no_memory(bytes))?;
    let first = memory.as_mut_ptr().cast::<u8>();
    let address = first.wrapping_add(first.addr().wrapping_neg() % ALIGN);
    Ok(Memory { address: address.cast(), owner: Owner::try_new(memory)?, ready: Ready::Now })
}

/// The stream to allocate on for a copy to `device` that is queued on `stream`: none if that belongs to another GPU, whose
/// pool is no place for it.
///
/// # Errors
/// `DEVX_DRIVER`.
pub(crate) fn allocating(device: Device, stream: Stream) -> Result<Option<Stream>> {
    Ok((device.kind != DeviceType::CUDA || stream.device()? == device.id).then_some(stream))
}

impl Memory {
    /// Whether it is given back in the order of a stream, and so after what is queued there.
    pub(crate) fn is_in_order(&self) -> bool {
        self.ready.stream().is_some()
    }
}

/// Whether the host copies between its own memory: without a driver no stream has work that would come before.
pub(crate) fn is_by_host(from: Device, to: Device) -> bool {
    from == Device::CPU && to == Device::CPU && Driver::get().is_err()
}

/// Copies from memory of `from` into memory of `to`: queued on `stream`, except that the host waits for copies into its own
/// unpinned memory. Returns when the copy may be touched.
///
/// # Errors
/// `DEVX_DRIVER`.
///
/// # Safety
/// All ranges are valid until the copies have run; nobody else uses the targets meanwhile.
pub(crate) unsafe fn fill(to: Device, from: Device, copies: &[copy::Copy], stream: Stream) -> Copied<Ready> {
    let ready = if to == Device::CPU { Ready::Now } else { Ready::queued(stream)? };
    // SAFETY: the caller's contract.
    unsafe { copy::queue(to, from, copies.iter().copied(), stream) }?;
    if to == Device::CPU {
        stream.synchronize()?;
    }
    Ok(ready)
}

/// When a copy may be touched that [`fill`] made, if `filled` says so. What it uses is kept until it is done, also if a later
/// part could not be queued, as an earlier one may be running: the source by `hold_source`, the copy by `hold_copy`, unless its
/// memory is given back in the order of the stream anyway, or the host has waited for it.
///
/// # Errors
/// That of `filled`, or of who holds.
pub(crate) fn kept(
    filled: Copied<Ready>,
    to: Device,
    is_in_order: bool,
    hold_source: impl FnOnce(&Copied<Ready>) -> Result<()>,
    hold_copy: impl FnOnce(&Copied<Ready>) -> Result<()>,
) -> Result<Ready> {
    let source = hold_source(&filled);
    if !is_in_order && (to != Device::CPU || filled.is_err()) {
        hold_copy(&filled)?;
    }
    source?;
    Ok(filled?)
}
