//! New memory and copies into it, each with the order in which they may be touched.

use core::ffi::c_void;

use crate::device::{Device, DeviceType};
use crate::error::{Error, Result, refuse};
use crate::memory::{Owner, vector, zeros};
use crate::order::Ready;
use crate::runtime::cuda::Allocation;
use crate::runtime::cuda::copy::{self, Copied};
use crate::runtime::cuda::driver::Driver;
use crate::stream::Stream;

/// New memory, its owner, and when it may be touched.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) address: *mut c_void,
    pub(crate) owner: Owner,
    pub(crate) ready: Ready,
}

/// Allocates uninitialised memory of a device: the caller writes every byte before anyone reads it. On a GPU the memory comes
/// from the device's pool and is ready for work on `stream`; without a stream it is plain device memory, ready at once.
/// Pinned and managed memory is ready at once, too, and is made for the device of the stream.
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

/// The GPU that memory is made for: the device itself, or for pinned and managed memory, that of the stream if there is one.
///
/// # Errors
/// `DEVX_DRIVER`.
pub(crate) fn made_for(device: Device, stream: Option<Stream>) -> Result<i32> {
    match (device.kind, stream) {
        (DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED, Some(stream)) => stream.device(),
        _ => Ok(device.id),
    }
}

/// When the data of a new tensor is ready, whose memory is ready as said. Memory of a GPU for which no stream was named can be
/// filled on the legacy default stream without another word, as if it were the caller's own.
pub(crate) fn filled(device: Device, ready: Ready) -> Ready {
    match ready {
        Ready::Now if device.kind == DeviceType::CUDA => Ready::unknown(device),
        ready => ready,
    }
}

/// Like [`allocate`], but the memory can be read at once. Host memory is zeroed, because reading uninitialised memory is
/// undefined in Rust. Other memory counts as initialised by the driver, with arbitrary content.
///
/// # Errors
/// Same as [`allocate`].
pub(crate) fn allocate_readable(device: Device, bytes: usize, stream: Option<Stream>) -> Result<Memory> {
    if device.kind == DeviceType::CPU { host(bytes, zeros) } else { allocate(device, bytes, stream) }
}

/// The alignment of host memory: DLPack promises it for every tensor (`DLTensor.data`). Arrow recommends 64, and some consumers
/// (JAX) copy data that is aligned to less than that. The driver's memory and mapped files are aligned this way anyway.
const ALIGN: usize = 256;

fn host(bytes: usize, make: fn(usize) -> Result<Vec<u128>>) -> Result<Memory> {
    // Spare room to move the beginning to an aligned address; for no bytes, nothing has to be aligned.
    let spare = if bytes == 0 { 0 } else { ALIGN - align_of::<u128>() };
    let words = bytes.saturating_add(spare).div_ceil(size_of::<u128>());
    let mut memory = make(words).map_err(|_| Error::no_memory(bytes))?;
    let first = memory.as_mut_ptr().cast::<u8>();
    if bytes >= LARGE {
        want_huge_pages(first, bytes);
    }
    let address = first.wrapping_add(first.addr().wrapping_neg() % ALIGN);
    Ok(Memory { address: address.cast(), owner: Owner::try_new(memory)?, ready: Ready::Now })
}

/// The stream to allocate on for a copy to `device` that is queued on `stream`: none if the stream is on another GPU, whose
/// pool cannot hold the copy.
///
/// # Errors
/// `DEVX_DRIVER`.
pub(crate) fn allocating(device: Device, stream: Stream) -> Result<Option<Stream>> {
    Ok((device.kind != DeviceType::CUDA || stream.device()? == device.id).then_some(stream))
}

/// From this size on, memory is asked for in huge pages. Otherwise most of the time of a large copy goes into the first touch
/// of each small page.
const LARGE: usize = 4 << 20;

/// Advises the system to use huge pages, where it leaves that to programs (the setting `madvise` of
/// `/sys/kernel/mm/transparent_hugepage/enabled`).
fn want_huge_pages(first: *mut u8, bytes: usize) {
    // SAFETY: a function without preconditions.
    let Ok(page) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) else { return };
    let before = first.addr().next_multiple_of(page) - first.addr();
    // SAFETY: this is only advice about memory of our own, and changes no content.
    unsafe { libc::madvise(first.wrapping_add(before).cast(), bytes - before, libc::MADV_HUGEPAGE) };
}

impl Memory {
    /// Whether the memory is given back in the order of a stream, and so after the work that is queued on it.
    pub(crate) fn is_in_order(&self) -> bool {
        self.ready.stream().is_some()
    }
}

/// Whether the host itself copies: both sides are host memory, and without a driver no stream has work that comes before.
pub(crate) fn is_by_host(from: Device, to: Device) -> bool {
    from == Device::CPU && to == Device::CPU && Driver::get().is_err()
}

/// Queues copies from memory of `from` into memory of `to` on `stream`. For copies into unpinned host memory, the host waits
/// until they are done. The result says when the copies may be touched.
///
/// # Errors
/// `DEVX_DRIVER`.
///
/// # Safety
/// All ranges are valid until the copies have run. Nobody else uses the targets meanwhile.
pub(crate) unsafe fn fill(to: Device, from: Device, copies: &[copy::Copy], stream: Stream) -> Copied<Ready> {
    // SAFETY: the caller's contract.
    unsafe { copy::queue(to, from, copies.iter().copied(), stream) }?;
    if to == Device::CPU {
        stream.synchronize()?;
        return Ok(Ready::Now);
    }
    Ok(if to.is_host() { Ready::filled(stream) } else { Ready::queued(stream) }?)
}

/// Keeps the memory that copies by [`fill`] use until they are done, even if `filled` is an error, because earlier copies may
/// be running. Returns when the result may be touched. `hold_source` keeps the source. `hold_copy` keeps the target, unless
/// its memory is given back in the order of the stream anyway, or the host has waited for the copies.
///
/// # Errors
/// The error of `filled`, `hold_source` or `hold_copy`.
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
