//! The importing side: a tensor or batch over memory of another process, out of bytes that are checked first.

use core::ffi::c_void;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::descriptor::{BatchPart, Descriptor, NodePart, Place, Region, RegionKind, Spot, TensorPart, What};
use super::memory::Mapping;
use crate::arrow::Batch;
use crate::arrow::batch::NodeDesc;
use crate::device::{Device, DeviceType};
use crate::error::{Result, refuse};
use crate::ledger::{Entry, Kind};
use crate::memory::{Owner, Vacant, collected, push, vector};
use crate::order::Ready;
use crate::runtime::cuda::ipc::{self, Opening};
use crate::runtime::cuda::{Event, reaper};
use crate::tensor::{Flags, Tensor, TensorDesc};

/// Whose memory it is, and what is given up when it is no longer used.
#[derive(Debug)]
pub struct Peer {
    /// Tells exporters apart whose pools may have the same number; the same one for all imports from an exporter.
    pub id: u64,
    /// Given up when the import is released, after all work that was named with `used_on`.
    pub keep: Owner,
}

/// Takes in a tensor of another process, zero-copy. The descriptor is checked as the untrusted bytes that it is, and
/// the files for the sizes and seals that it says. The data itself is the exporter's, who may still write it.
///
/// # Errors
/// `DEVX_INVALID_ARGUMENT` and others that name the field and the value, `DEVX_VERSION`; `DEVX_DEVICE` for a device
/// that this process does not see; `DEVX_MISMATCH` for a batch; `DEVX_DRIVER`, `DEVX_SYSTEM`. Then `peer.keep` is given
/// up.
pub fn import_tensor(descriptor: &[u8], fds: Vec<OwnedFd>, peer: Peer) -> Result<Tensor> {
    let (Descriptor { place, order, regions, what }, fds) = read(descriptor, fds)?;
    let What::Tensor(part) = what else {
        return refuse!(DEVX_MISMATCH, "kind is 2: a batch, not a tensor");
    };
    Opened::new(place, order, &regions, fds, peer, Kind::TensorImport)?.tensor(&part)
}

/// As [`import_tensor`], for a batch. What its offsets and views point to is data: as with every producer, it is used
/// as it is.
///
/// # Errors
/// As [`import_tensor`]; `DEVX_MISMATCH` for a tensor.
pub fn import_batch(descriptor: &[u8], fds: Vec<OwnedFd>, peer: Peer) -> Result<Batch> {
    let (Descriptor { place, order, regions, what }, fds) = read(descriptor, fds)?;
    let What::Batch(part) = what else {
        return refuse!(DEVX_MISMATCH, "kind is 1: a tensor, not a batch");
    };
    Opened::new(place, order, &regions, fds, peer, Kind::BatchImport)?.batch(&part)
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

/// The regions of a descriptor in this process.
struct Opened {
    device: Device,
    /// Start and end of each.
    ranges: Vec<(usize, usize)>,
    writable: bool,
    ready: Ready,
    owner: Owner,
}

/// What an import holds, in the order in which it is given up: the exporter may free its memory only after all is
/// closed.
struct Held {
    _files: Vec<Arc<Mapping>>,
    _openings: Vec<Opening>,
    _keep: Arc<Owner>,
    _entry: Entry,
}

/// Gives up what it holds on the reaper's thread: closing memory of the driver waits for the device.
struct ByReaper(Option<Held>);

impl Drop for ByReaper {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            reaper::after(Vec::new(), Owner::boxed(held));
        }
    }
}

impl Opened {
    fn new(
        place: Place,
        order: Option<[u8; 64]>,
        regions: &[Region],
        fds: Vec<OwnedFd>,
        peer: Peer,
        kind: Kind,
    ) -> Result<Self> {
        let device = match place {
            Place::Host => Device::CPU,
            Place::Cuda(uuid) => Device { kind: DeviceType::CUDA, id: ipc::ordinal_of(uuid)? },
        };
        let keep = Arc::new(peer.keep);
        let (mut ranges, mut files, mut openings) = (vector(regions.len())?, Vec::new(), Vec::new());
        let (mut fds, mut all_writable) = (fds.into_iter(), true);
        for &Region { bytes, kind } in regions {
            let fd = if kind.has_fd() { fds.next() } else { None };
            let start = match (kind, fd) {
                (RegionKind::Host { writable }, Some(fd)) => {
                    all_writable &= writable;
                    let file = Mapping::open(fd, bytes, writable)?;
                    let start = file.address().addr();
                    push(&mut files, file)?;
                    start
                }
                (RegionKind::Pool { pool, pointer }, Some(fd)) => {
                    push(&mut openings, Opening::of_pool(device.id, peer.id, pool, &fd, pointer)?)?;
                    openings.last().map_or(0, Opening::address)
                }
                (RegionKind::Cuda(handle), _) => {
                    push(&mut openings, Opening::allocation(device.id, handle)?)?;
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
        let ready = match order {
            None => Ready::Now,
            Some(event) => Ready::After(Event::open(device.id, event, || Owner::boxed(Arc::clone(&keep)))?),
        };
        let held = Held { _files: files, _openings: openings, _keep: keep, _entry: Entry::open(kind) };
        let owner = match device {
            Device::CPU => Owner::in_room(Vacant::new()?, held),
            _ => Owner::in_room(Vacant::new()?, ByReaper(Some(held))),
        };
        Ok(Self { device, ranges, writable: all_writable, ready, owner })
    }

    fn address(&self, spot: Option<Spot>) -> *mut c_void {
        let address = spot.and_then(|spot| {
            let (start, _) = self.ranges.get(spot.region as usize)?;
            start.checked_add(spot.offset as usize)
        });
        address.map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut)
    }

    fn tensor(self, part: &TensorPart) -> Result<Tensor> {
        let desc = TensorDesc {
            data: self.address(part.spot),
            device: self.device,
            dtype: part.dtype,
            shape: &part.shape,
            strides: Some(&part.strides),
            byte_offset: 0,
            flags: if self.writable { part.flags } else { part.flags.with(Flags::READ_ONLY) },
        };
        // SAFETY: decoding found all elements to be within the regions, which are open as long as the owner lives; the
        // exporter keeps them.
        let mut tensor = unsafe { Tensor::from_raw_parts(&desc, self.owner) }?;
        tensor.set_ready(self.ready);
        Ok(tensor)
    }

    fn batch(self, part: &BatchPart) -> Result<Batch> {
        let address = |buffer: &Option<(Spot, u64)>| Ok(self.address(buffer.map(|(spot, _)| spot)).cast_const());
        let addresses = collected(part.nodes.iter().map(|node| collected(node.buffers.iter().map(address))))?;
        let nodes = collected((part.nodes.iter().zip(&addresses)).map(|(node, buffers)| {
            let NodePart { length, null_count, offset, .. } = *node;
            Ok(NodeDesc { length, null_count, offset, buffers })
        }))?;
        // SAFETY: decoding found every buffer to be as long as its array needs, within the regions, which are open as
        // long as the owner lives; the exporter keeps them.
        let mut batch = unsafe { Batch::from_raw_parts(&part.schema, self.device, &nodes, self.owner) }?;
        batch.set_ready(self.ready);
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
