//! Where the memory of a tensor or batch lies: the pieces that are shared as a whole, and the places in them.

#![forbid(unsafe_code)]

use core::ffi::c_void;

use super::descriptor::{MAX_REGIONS, NodePart, Spot};
use super::memory::Mapping;
use crate::abi::types::{DEVX_COPY_REQUIRED, DEVX_UNSUPPORTED};
use crate::arrow::Batch;
use crate::device::{Device, DeviceType};
use crate::error::{Result, refuse};
use crate::memory::{Counted, collected, push, vector};
use crate::runtime::cuda::ipc::{self, Shared};
use crate::tensor::Tensor;

/// The regions that memory was found in so far.
pub(super) struct Regions {
    pub(super) device: Device,
    pub(super) found: Vec<Found>,
}

/// A piece of memory that can be shared.
pub(super) enum Found {
    Host(Counted<Mapping>),
    Cuda(Shared),
}

impl Found {
    /// Its first byte, and how many there are.
    pub(super) fn range(&self) -> (usize, usize) {
        match self {
            Self::Host(mapping) => (mapping.address().addr(), mapping.bytes()),
            Self::Cuda(shared) => (shared.base, shared.bytes),
        }
    }
}

impl Regions {
    pub(super) fn of(device: Device) -> Self {
        Self { device, found: Vec::new() }
    }

    /// Where the first byte is, and how many bytes its region has from there.
    ///
    /// # Errors
    /// `DEVX_COPY_REQUIRED` for memory that cannot be shared but copied, or lies in too many regions, with the reason;
    /// `DEVX_UNSUPPORTED` for a device without either; `DEVX_DEVICE`, `DEVX_DRIVER`.
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
                // A copy lies in one. No more are looked at, each of which may take a file descriptor or a handle.
                if self.found.len() >= MAX_REGIONS {
                    return refuse!(
                        DEVX_COPY_REQUIRED,
                        "the memory lies in more than {MAX_REGIONS} regions, which is how many can be handed over at once"
                    );
                }
                let found = self.look(address, bytes)?;
                let Some(offset) = inside(&found) else {
                    let (base, size) = found.range();
                    return refuse!(
                        DEVX_DEVICE,
                        "data {address:p} needs {bytes} bytes, but its allocation has {size} bytes at {base:#x}"
                    );
                };
                push(&mut self.found, found)?;
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
            DeviceType::CUDA => match ipc::share(address, "data") {
                // Of a pool for this process only, for example: what lies there can be copied elsewhere.
                Err(error) if error.status() == DEVX_UNSUPPORTED => Err(error.with_status(DEVX_COPY_REQUIRED)),
                shared => shared.map(Found::Cuda),
            },
            DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED => {
                refuse!(DEVX_COPY_REQUIRED, "device is {}: its memory cannot be shared between processes", self.device)
            }
            _ => refuse!(DEVX_UNSUPPORTED, "device is {}: its memory cannot be shared between processes", self.device),
        }
    }

    /// Where the first element is; nowhere if there is none.
    ///
    /// # Errors
    /// As [`Regions::spot`].
    pub(super) fn tensor(&mut self, tensor: &Tensor) -> Result<Option<Spot>> {
        let layout = tensor.layout();
        if layout.elements == 0 {
            return Ok(None);
        }
        let lowest = tensor.data().wrapping_byte_offset(layout.lowest);
        let (mut spot, _) = self.spot(lowest, (layout.end - layout.lowest) as usize)?;
        spot.offset += layout.lowest.unsigned_abs() as u64;
        Ok(Some(spot))
    }

    /// Where the buffers are, array by array.
    ///
    /// # Errors
    /// As [`Regions::spot`].
    pub(super) fn batch(&mut self, batch: &Batch) -> Result<Vec<NodePart>> {
        let order = batch.schema().depth_first()?;
        collected(order.into_iter().map(|node| self.node(batch, node)))
    }

    fn node(&mut self, batch: &Batch, node: usize) -> Result<NodePart> {
        let array = batch.array(node);
        let end = array.offset + array.length;
        let addresses = batch.buffers(node);
        let mut buffers = vector(addresses.len())?;
        for (index, &address) in addresses.iter().enumerate() {
            // Nothing is read in a buffer of no elements: it may be anywhere.
            if address.is_null() || end == 0 {
                buffers.push(None);
                continue;
            }
            let known = match batch.kind_of_buffer(node, index) {
                Some(buffer) => buffer.bytes_at(index, end as u64),
                None => Some(0),
            };
            // How much of it the offsets or views use is in the data, which is not read: a byte at least, as an address behind the end
            // of a region is that of something else; at most up to the end of the region.
            let (spot, left) = self.spot(address, known.unwrap_or(1) as usize)?;
            buffers.push(Some((spot, known.map_or(left as u64, |known| known as u64))));
        }
        Ok(NodePart { length: array.length, null_count: array.null_count, offset: array.offset, buffers })
    }
}
