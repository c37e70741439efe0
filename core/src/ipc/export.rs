//! The exporting side: where the memory of a tensor or batch lies, as a descriptor with its file descriptors.

#![forbid(unsafe_code)]

use core::ffi::c_void;
use std::os::fd::OwnedFd;

use super::descriptor::{BatchPart, Descriptor, NodePart, Place, Region, RegionKind, Spot, TensorPart, What};
use super::memory::{self, Mapping};
use crate::abi::types::DEVX_COPY_REQUIRED;
use crate::arrow::Batch;
use crate::arrow::format::Buffer;
use crate::convert::Plan;
use crate::device::{Device, DeviceType};
use crate::dlpack::Copying;
use crate::error::{Error, Result, refuse};
use crate::ledger::{Entry, Kind};
use crate::memory::Owner;
use crate::order::Ready;
use crate::runtime::cuda::ipc::{self, How, Shared};
use crate::runtime::cuda::{Event, Stream, info};
use crate::tensor::{Flags, Tensor};

/// A tensor or batch as another process takes it in: the bytes of its descriptor, and the file descriptors that go
/// along. The memory stays valid as long as this lives, which has to be as long as the importer uses it.
#[derive(Debug)]
pub struct Exported {
    descriptor: Vec<u8>,
    fds: Vec<OwnedFd>,
    kind: Kind,
    _event: Option<Event>,
    _kept: Owner,
}

impl Exported {
    /// The bytes that [`super::import_tensor`] or [`super::import_batch`] takes.
    pub fn descriptor(&self) -> &[u8] {
        &self.descriptor
    }

    /// The file descriptors that go with them, in this order.
    pub fn fds(&self) -> &[OwnedFd] {
        &self.fds
    }

    /// One more export of the ledger's, of the kind that this is.
    pub(super) fn entry(&self) -> Entry {
        Entry::open(self.kind)
    }
}

/// How a tensor can be exported: as it is, or only from a copy in memory that can be shared.
pub fn plan_tensor(tensor: &Tensor) -> Plan {
    let mut regions = Regions::of(tensor.device());
    let bytes = tensor.layout().bytes;
    plan(tensor.device(), tensor.ready(), regions.tensor(tensor).map(drop), || Ok(bytes))
}

/// As [`plan_tensor`], for a batch. The last offsets of texts may be read to know the size of a copy.
pub fn plan_batch(batch: &Batch) -> Plan {
    let mut regions = Regions::of(batch.device());
    plan(batch.device(), batch.ready(), regions.batch(batch).map(drop), || batch.bytes_on_host())
}

fn plan(device: Device, ready: &Ready, seen: Result<()>, copy_bytes: impl FnOnce() -> Result<usize>) -> Plan {
    let impossible = |error: Error| Plan::Impossible { reason: error.message().to_owned() };
    match seen {
        Ok(()) => Plan::View,
        Err(error) if device == Device::CPU && error.status() == DEVX_COPY_REQUIRED => {
            match ready.require_now().and_then(|()| copy_bytes()) {
                Ok(bytes) => Plan::Copy { bytes, reason: error.message().to_owned() },
                Err(error) => impossible(error),
            }
        }
        Err(error) => impossible(error),
    }
}

/// Exports a tensor: host memory of [`super::allocate_tensor`] as it is, other host memory as a copy if that is
/// allowed, device memory as it is.
///
/// # Errors
/// `DEVX_COPY_REQUIRED`, `DEVX_IMPOSSIBLE` with the reason; `DEVX_OUT_OF_MEMORY`, `DEVX_DRIVER`, `DEVX_SYSTEM`.
pub fn export_tensor(tensor: &Tensor, copying: Copying) -> Result<Exported> {
    let tensor = if plan_tensor(tensor).allow(copying)? {
        require_host_copy(tensor.device())?;
        tensor.copy_on_host(memory::block)?
    } else {
        tensor.clone()
    };
    let mut regions = Regions::of(tensor.device());
    let spot = regions.tensor(&tensor)?;
    let part = TensorPart {
        dtype: tensor.dtype(),
        flags: tensor.flags(),
        shape: tensor.shape().to_vec(),
        strides: tensor.strides().to_vec(),
        spot,
    };
    let writable = !tensor.flags().has(Flags::READ_ONLY);
    let event = order(tensor.device(), tensor.ready())?;
    // The importer may release the memory without a look at it, while the producer still works on it.
    event.iter().for_each(|event| tensor.used_until(event.clone()));
    regions.finish(event, writable, What::Tensor(part), Owner::boxed(tensor))
}

/// As [`export_tensor`], for a batch. The importer cannot write the memory.
///
/// # Errors
/// As [`export_tensor`].
pub fn export_batch(batch: &Batch, copying: Copying) -> Result<Exported> {
    let batch = if plan_batch(batch).allow(copying)? {
        require_host_copy(batch.device())?;
        copy_batch(batch)?
    } else {
        batch.clone()
    };
    let mut regions = Regions::of(batch.device());
    let nodes = regions.batch(&batch)?;
    let part = BatchPart { schema: batch.schema().clone(), nodes };
    let event = order(batch.device(), batch.ready())?;
    event.iter().for_each(|event| batch.used_until(event.clone()));
    regions.finish(event, false, What::Batch(part), Owner::boxed(batch))
}

/// A copy of a host batch in one block of memory that can be shared.
///
/// # Errors
/// `DEVX_DEVICE` for device memory, `DEVX_INVALID_BUFFERS`, `DEVX_OUT_OF_MEMORY`, `DEVX_SYSTEM`.
pub fn copy_batch(batch: &Batch) -> Result<Batch> {
    batch.copy_on_host(memory::block)
}

fn require_host_copy(device: Device) -> Result<()> {
    if device == Device::CPU {
        return Ok(());
    }
    refuse!(DEVX_UNSUPPORTED, "device is {device}: only host memory is copied to be shared; copy it there first")
}

/// The regions that memory was found in so far.
struct Regions {
    device: Device,
    found: Vec<Found>,
}

enum Found {
    Host(std::sync::Arc<Mapping>),
    Cuda(Shared),
}

impl Found {
    fn range(&self) -> (usize, usize) {
        match self {
            Self::Host(mapping) => (mapping.address().addr(), mapping.bytes()),
            Self::Cuda(shared) => (shared.base, shared.bytes),
        }
    }
}

impl Regions {
    fn of(device: Device) -> Self {
        Self { device, found: Vec::new() }
    }

    /// Where the first byte is, and how many bytes its region has from there.
    ///
    /// # Errors
    /// `DEVX_COPY_REQUIRED` for host memory that is not of ours, `DEVX_UNSUPPORTED`, `DEVX_DEVICE`, `DEVX_DRIVER`.
    fn spot(&mut self, address: *const c_void, bytes: usize) -> Result<(Spot, usize)> {
        let at = address.addr();
        let inside = |found: &Found| {
            let (base, size) = found.range();
            at.checked_sub(base).filter(|&offset| offset <= size && bytes <= size - offset)
        };
        let known = self.found.iter().enumerate().find_map(|(i, found)| Some((i, inside(found)?)));
        let (region, offset) = match known {
            Some(known) => known,
            None => {
                let found = self.look(address, bytes)?;
                let Some(offset) = inside(&found) else {
                    let (base, size) = found.range();
                    return refuse!(
                        DEVX_DEVICE,
                        "data {address:p} needs {bytes} bytes, but its allocation has {size} bytes at {base:#x}"
                    );
                };
                self.found.push(found);
                (self.found.len() - 1, offset)
            }
        };
        let left = self.found.get(region).map_or(0, |found| found.range().1 - offset);
        Ok((Spot { region: region as u32, offset: offset as u64 }, left))
    }

    fn look(&self, address: *const c_void, bytes: usize) -> Result<Found> {
        match self.device.kind {
            DeviceType::CPU => match Mapping::find(address.addr(), bytes) {
                Some((mapping, _)) => Ok(Found::Host(mapping)),
                None => refuse!(DEVX_COPY_REQUIRED, "data {address:p} is in memory of this process alone"),
            },
            DeviceType::CUDA => ipc::share(address).map(Found::Cuda),
            _ => refuse!(DEVX_UNSUPPORTED, "device is {}: its memory cannot be shared between processes", self.device),
        }
    }

    fn tensor(&mut self, tensor: &Tensor) -> Result<Option<Spot>> {
        let layout = tensor.layout();
        if layout.elements == 0 {
            return Ok(None);
        }
        let lowest = tensor.data().wrapping_byte_offset(layout.lowest);
        let (mut spot, _) = self.spot(lowest, (layout.end - layout.lowest) as usize)?;
        spot.offset += layout.lowest.unsigned_abs() as u64;
        Ok(Some(spot))
    }

    fn batch(&mut self, batch: &Batch) -> Result<Vec<NodePart>> {
        let order = batch.schema().depth_first();
        order.into_iter().map(|node| self.node(batch, node)).collect()
    }

    fn node(&mut self, batch: &Batch, node: usize) -> Result<NodePart> {
        let array = batch.array(node);
        let end = array.offset + array.length;
        let addresses = batch.buffers(node);
        let mut buffers = Vec::with_capacity(addresses.len());
        for (index, &address) in addresses.iter().enumerate() {
            // Nothing is read in a buffer of no elements: it may be anywhere.
            if address.is_null() || end == 0 {
                buffers.push(None);
                continue;
            }
            let needed = match batch.kind_of_buffer(node, index) {
                Some(Buffer::ViewSizes) => Some(addresses.len().saturating_sub(3) as u128 * 8),
                Some(buffer) => buffer.bytes(end as u64),
                None => Some(0),
            };
            let (spot, left) = self.spot(address, needed.unwrap_or(0) as usize)?;
            // How much of it the offsets or views use is in the data, which is not read: up to the end of the region.
            buffers.push(Some((spot, needed.map_or(left as u64, |needed| needed as u64))));
        }
        Ok(NodePart { length: array.length, null_count: array.null_count, offset: array.offset, buffers })
    }

    fn finish(self, event: Option<Event>, writable: bool, what: What, kept: Owner) -> Result<Exported> {
        let (mut regions, mut fds) = (Vec::with_capacity(self.found.len()), Vec::new());
        let mut at = self.device;
        for found in self.found {
            let bytes = found.range().1 as u64;
            let kind = match found {
                Found::Host(mapping) => {
                    let writable = writable && mapping.is_writable();
                    fds.push(mapping.descriptor(writable)?);
                    RegionKind::Host { writable }
                }
                Found::Cuda(Shared { how, ordinal, .. }) => {
                    at.id = ordinal;
                    match how {
                        How::Allocation(handle) => RegionKind::Cuda(handle),
                        How::Pool { pool, pointer, fd } => {
                            fds.push(fd);
                            RegionKind::Pool { pool, pointer }
                        }
                    }
                }
            };
            regions.push(Region { bytes, kind });
        }
        let place = if at == Device::CPU { Place::Host } else { Place::Cuda(info::device_info(at.id)?.uuid) };
        let order = event.as_ref().map(Event::ipc_handle).transpose()?;
        let kind = match what {
            What::Tensor(_) => Kind::TensorExport,
            What::Batch(_) => Kind::BatchExport,
        };
        let descriptor = Descriptor { place, order, regions, what }.encode()?;
        Ok(Exported { descriptor, fds, kind, _event: event, _kept: kept })
    }
}

/// The event that another process waits for; none if the data is ready.
fn order(device: Device, ready: &Ready) -> Result<Option<Event>> {
    match ready {
        Ready::Now => Ok(None),
        Ready::Queued(stream) => {
            stream.require_no_capture()?;
            Event::record_shared(*stream).map(Some)
        }
        other => {
            // An event of this process cannot travel: one that can is recorded behind it, on a stream of its own.
            let stream = Stream::create(device.id)?;
            let recorded = other.wait(stream).and_then(|()| Event::record_shared(stream));
            stream.end();
            recorded.map(Some)
        }
    }
}
