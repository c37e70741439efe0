//! The importing side: makes a tensor or batch over memory of another process from bytes, which are checked first.

use core::ffi::c_void;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;

use super::descriptor::{BatchPart, Descriptor, NodePart, Place, Region, RegionKind, Spot, TensorPart, What};
use super::memory::Mapping;
use crate::arrow::Batch;
use crate::arrow::batch::NodeDesc;
use crate::arrow::format::Buffer;
use crate::device::{Device, DeviceType};
use crate::error::{Result, refuse};
use crate::ledger::{Entry, Kind};
use crate::memory::{Counted, Owner, Slab, TailSize, Vacant, collected, push, vector};
use crate::order::Ready;
use crate::runtime::cuda::Event;
use crate::runtime::cuda::ipc::{self, Opening};
use crate::runtime::cuda::reaper::Later;
use crate::tensor::{Flags, Tensor, TensorDesc};
use crate::transfer;

/// The process that the memory belongs to, and what to give up when the memory is no longer used.
#[derive(Debug)]
pub struct Peer {
    /// Distinguishes exporters whose pools have the same number; the same for all imports from one exporter.
    pub id: u64,
    /// Given up when the import is released, after all work that was named with `used_on`.
    pub keep: Owner,
}

/// Imports a tensor of another process, zero-copy. The descriptor is checked as untrusted bytes, and the files for the sizes
/// and seals that it requires. The data itself belongs to the exporter, which can still write it.
///
/// # Errors
/// `DEVX_INVALID_ARGUMENT` and others that name the field and the value, `DEVX_VERSION`; `DEVX_DEVICE` for a device that this
/// process does not see; `DEVX_MISMATCH` for a batch; `DEVX_DRIVER`, `DEVX_SYSTEM`. On any error `peer.keep` is given up.
///
/// # Safety
/// Host memory that is read here (see [`Tensor::as_slice`]) is not written meanwhile: not by the exporter, not by other
/// importers, not through any file descriptor of the memory. No check can find that.
pub unsafe fn import_tensor(descriptor: &[u8], fds: Vec<OwnedFd>, peer: Peer) -> Result<Tensor> {
    Held::open::<Tensor>(descriptor, fds, peer)?.import()
}

/// Like [`import_tensor`], but for a batch. What its offsets and views point to is data: as from every producer, it is used as
/// it is.
///
/// # Errors
/// Those of [`import_tensor`]; `DEVX_MISMATCH` for a tensor.
///
/// # Safety
/// The exporter keeps to Arrow's format, as required of the producer in [`Batch::import`]: the buffers hold what the schema
/// says, offsets, sizes and views lead into buffers, and texts are UTF-8. Nobody writes the buffers while they are used.
pub unsafe fn import_batch(descriptor: &[u8], fds: Vec<OwnedFd>, peer: Peer) -> Result<Batch> {
    Held::open::<Batch>(descriptor, fds, peer)?.import()
}

fn read(bytes: &[u8], fds: Vec<OwnedFd>) -> Result<(Descriptor, Vec<OwnedFd>)> {
    let descriptor = Descriptor::decode(bytes)?;
    let wanted = descriptor.fds();
    if fds.len() != wanted {
        return refuse!(
            DEVX_INVALID_ARGUMENT,
            "there are {} file descriptors, the regions have {wanted} (a process at its limit of open files gets none)",
            fds.len()
        );
    }
    Ok((descriptor, fds))
}

/// A descriptor whose regions are open in this process. All imports of the descriptor share this.
#[derive(Debug)]
pub(super) struct Opened {
    device: Device,
    what: What,
    /// Start and end of each region.
    ranges: Vec<(usize, usize)>,
    writable: bool,
    _first_offset: Option<Owner>,
    // The fields from here on are given up in this order: the exporter may free its memory only after everything is closed.
    ready: Ready,
    _files: Vec<Counted<Mapping>>,
    _openings: Vec<Opening>,
    _keep: Slab<Owner>,
}

impl Opened {
    fn new(descriptor: Descriptor, fds: Vec<OwnedFd>, peer: Peer) -> Result<Self> {
        let Descriptor { place, order, regions, mut what } = descriptor;
        let device = match place {
            Place::Host => Device::CPU,
            Place::Cuda(uuid) => Device { kind: DeviceType::CUDA, id: ipc::ordinal_of(uuid)? },
        };
        let keep = Slab::new(peer.keep, TailSize::default())?;
        let (files, openings) = if device == Device::CPU { (regions.len(), 0) } else { (0, regions.len()) };
        let (mut ranges, mut files, mut openings) = (vector(regions.len())?, vector(files)?, vector(openings)?);
        let (mut fds, mut writable) = (fds.into_iter(), true);
        for Region { bytes, kind } in regions {
            let fd = if kind.has_fd() { fds.next() } else { None };
            let start = match (kind, fd) {
                (RegionKind::Host { writable: this }, Some(fd)) => {
                    writable &= this;
                    let file = Mapping::open(fd, bytes, this)?;
                    let start = file.address().addr();
                    files.push(file);
                    start
                }
                (RegionKind::Pool { pool, pointer }, Some(fd)) => {
                    openings.push(Opening::of_pool(device.id, peer.id, pool, &fd, pointer)?);
                    openings.last().map_or(0, Opening::address)
                }
                (RegionKind::Cuda(handle), _) => {
                    openings.push(Opening::allocation(device.id, handle)?);
                    openings.last().map_or(0, Opening::address)
                }
                (_, None) => return refuse!(DEVX_INVALID_ARGUMENT, "a region has no file descriptor"),
            };
            let Some(end) = start.checked_add(bytes as usize) else {
                return refuse!(DEVX_INVALID_ARGUMENT, "region.bytes is {bytes}: more than can be addressed");
            };
            ranges.push((start, end));
        }
        require_sizes(device, &ranges)?;
        let first_offset = add_first_offset(device, &mut what, &mut ranges)?;
        let ready = match order {
            None => Ready::Now,
            Some(event) => Ready::After(Event::open(device.id, event, || Owner::of_slab(keep.clone()))?),
        };
        Ok(Self {
            device,
            what,
            ranges,
            writable,
            _first_offset: first_offset,
            ready,
            _files: files,
            _openings: openings,
            _keep: keep,
        })
    }

    fn address(&self, spot: Option<Spot>) -> *mut c_void {
        let address = spot.and_then(|spot| {
            let (start, _) = self.ranges.get(spot.region as usize)?;
            start.checked_add(spot.offset as usize)
        });
        address.map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut)
    }
}

/// A reference to something opened: of an import, which the ledger counts, or of code that only looks at it.
#[derive(Debug)]
pub(super) struct Held {
    opened: ManuallyDrop<Counted<Opened>>,
    entry: Option<Entry>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let opened = unsafe { ManuallyDrop::take(&mut self.opened) };
        // Only the last of all that share it goes on.
        let Some(last) = opened.into_inner() else { return };
        let on_host = last.device == Device::CPU;
        let all = (last, self.entry.take());
        // Closing device memory waits for the device. This thread closes it if there is no memory to hand it to the reaper.
        match if on_host { None } else { Later::new().ok().zip(Vacant::find()) } {
            Some((later, room)) => later.release(Owner::in_room(room, all)),
            None => drop(all),
        }
    }
}

impl Held {
    pub(super) fn new(opened: Counted<Opened>) -> Self {
        Self { opened: ManuallyDrop::new(opened), entry: None }
    }

    /// Opens what a peer describes, if it is of the type `T`.
    ///
    /// # Errors
    /// Same as [`import_tensor`].
    pub(super) fn open<T: Importable>(bytes: &[u8], fds: Vec<OwnedFd>, peer: Peer) -> Result<Self> {
        let (descriptor, fds) = read(bytes, fds)?;
        T::part(&descriptor.what)?;
        let room = Counted::room()?;
        Ok(Self::new(room.fill(Opened::new(descriptor, fds, peer)?)))
    }

    /// Makes one more import.
    ///
    /// # Errors
    /// `DEVX_MISMATCH` if it is of another type.
    pub(super) fn import<T: Importable>(&self) -> Result<T> {
        let part = T::part(&self.opened.what)?;
        let room = Vacant::new()?;
        let mut share = Self::new(Counted::clone(&self.opened));
        share.entry = Some(Entry::open(T::KIND));
        T::over(&self.opened, part, Owner::in_room(room, share))
    }

    pub(super) fn opened(&self) -> &Counted<Opened> {
        &self.opened
    }
}

/// A tensor or a batch.
pub(super) trait Importable: Sized {
    const KIND: Kind;
    type Part;
    /// # Errors
    /// `DEVX_MISMATCH`.
    fn part(what: &What) -> Result<&Self::Part>;
    /// Makes a value over opened memory, which stays open as long as `owner` lives.
    fn over(opened: &Opened, part: &Self::Part, owner: Owner) -> Result<Self>;
}

impl Importable for Tensor {
    const KIND: Kind = Kind::TensorImport;
    type Part = TensorPart;

    fn part(what: &What) -> Result<&TensorPart> {
        match what {
            What::Tensor(part) => Ok(part),
            What::Batch(_) => refuse!(DEVX_MISMATCH, "it is a batch, not a tensor"),
        }
    }

    fn over(opened: &Opened, part: &TensorPart, owner: Owner) -> Result<Self> {
        // The exporter has the memory, too, and possibly other importers.
        let flags = part.flags.shared();
        let desc = TensorDesc {
            data: opened.address(part.spot),
            device: opened.device,
            dtype: part.dtype,
            shape: &part.shape,
            strides: Some(&part.strides),
            byte_offset: 0,
            flags: if opened.writable { flags } else { flags.with(Flags::READ_ONLY) },
        };
        // SAFETY: decoding verified that all elements are within the regions. The regions are open as long as the owner lives,
        // and the exporter keeps their memory.
        let mut tensor = unsafe { Self::from_raw_parts(&desc, owner) }?;
        tensor.set_ready(opened.ready.again());
        Ok(tensor)
    }
}

impl Importable for Batch {
    const KIND: Kind = Kind::BatchImport;
    type Part = BatchPart;

    fn part(what: &What) -> Result<&BatchPart> {
        match what {
            What::Batch(part) => Ok(part),
            What::Tensor(_) => refuse!(DEVX_MISMATCH, "it is a tensor, not a batch"),
        }
    }

    fn over(opened: &Opened, part: &BatchPart, owner: Owner) -> Result<Self> {
        let address = |buffer: &Option<(Spot, u64)>| Ok(opened.address(buffer.map(|(spot, _)| spot)).cast_const());
        let addresses = collected(part.nodes.iter().map(|node| collected(node.buffers.iter().map(address))))?;
        let nodes = collected((part.nodes.iter().zip(&addresses)).map(|(node, buffers)| {
            let NodePart { length, null_count, offset, .. } = *node;
            Ok(NodeDesc { length, null_count, offset, buffers })
        }))?;
        // SAFETY: decoding verified that every buffer is as long as its array needs and within the regions. The regions are
        // open as long as the owner lives, and the exporter keeps their memory.
        let mut batch = unsafe { Self::from_raw_parts(&part.schema, opened.device, &nodes, owner) }?;
        batch.set_ready(opened.ready.again());
        Ok(batch)
    }
}

/// Checks with the driver that opened memory is as large as the descriptor says.
fn require_sizes(device: Device, ranges: &[(usize, usize)]) -> Result<()> {
    if device == Device::CPU {
        return Ok(());
    }
    for &(start, end) in ranges {
        let address = std::ptr::with_exposed_provenance::<c_void>(start);
        crate::runtime::cuda::pointer::require(address, end - start, device)?;
    }
    Ok(())
}

/// Gives lists and texts without elements on a device the first offset that Arrow requires. Their buffers are not transferred,
/// because nothing is read there, but some consumers do read the first offset. It is a region of its own, in pinned memory,
/// which no stream has to fill. ([`Batch::from_raw_parts`] has a first offset for the host.)
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`, `DEVX_DRIVER`.
fn add_first_offset(device: Device, what: &mut What, ranges: &mut Vec<(usize, usize)>) -> Result<Option<Owner>> {
    const BYTES: usize = size_of::<u64>();
    let What::Batch(BatchPart { schema, nodes }) = what else { return Ok(None) };
    if device.is_host() {
        return Ok(None);
    }
    let (mut owner, region) = (None, ranges.len() as u32);
    for (node, number) in nodes.iter_mut().zip(schema.depth_first()) {
        let kind = schema.ty(number).buffers().get(1, node.buffers.len());
        let (Some(Buffer::Offsets(_)), Some(missing @ None)) = (kind, node.buffers.get_mut(1)) else { continue };
        // If there are elements, missing offsets are an error.
        if node.length > 0 || node.offset > 0 {
            continue;
        }
        if owner.is_none() {
            let pinned = Device { kind: DeviceType::CUDA_HOST, ..device };
            let memory = transfer::allocate(pinned, BYTES, None)?;
            // SAFETY: new memory of that many bytes, which the host can write.
            unsafe { memory.address.cast::<u64>().write(0) };
            let start = memory.address.expose_provenance();
            push(ranges, (start, start + BYTES))?;
            owner = Some(memory.owner);
        }
        *missing = Some((Spot { region, offset: 0 }, BYTES as u64));
    }
    Ok(owner)
}
