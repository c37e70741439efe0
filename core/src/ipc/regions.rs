//! Where the memory of a tensor or batch is: the pieces that are shared as a whole, and the positions in them.

#![forbid(unsafe_code)]

use core::ffi::c_void;

use super::descriptor::{MAX_REGIONS, NodePart, Spot};
use super::memory::Mapping;
use crate::abi::types::{DEVX_COPY_REQUIRED, DEVX_UNSUPPORTED};
use crate::arrow::Batch;
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result, refuse};
use crate::memory::{Counted, collected, push, vector};
use crate::runtime::cuda::ipc::{self, Shared};
use crate::tensor::Tensor;

/// The regions in which memory was found so far.
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
    /// Returns the address of the first byte, and the number of bytes.
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

    /// Finds the position of a range's first byte, and how many bytes its region has from there on.
    ///
    /// # Errors
    /// `DEVX_COPY_REQUIRED`, with the reason, for memory that cannot be shared but can be copied, or that is in too many
    /// regions; `DEVX_UNSUPPORTED` for a device whose memory can be neither shared nor copied; `DEVX_DEVICE`, `DEVX_DRIVER`.
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
                // A copy needs a single region. The search stops here, because each further region may take a file descriptor
                // or a handle.
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
        if self.device == Device::CPU {
            return match Mapping::find(address.addr(), bytes) {
                Some((mapping, _)) => Ok(Found::Host(mapping)),
                None => refuse!(DEVX_COPY_REQUIRED, "data {address:p} is in memory of this process alone"),
            };
        }
        match ipc::share(address, "data") {
            // Memory of a pool for this process only, for example. It can be copied elsewhere.
            Err(error) if error.status() == DEVX_UNSUPPORTED => Err(error.with_status(DEVX_COPY_REQUIRED)),
            shared => shared.map(Found::Cuda),
        }
    }

    /// Refuses devices whose memory cannot be shared, even if there is none.
    fn require_shareable(&self) -> Result<()> {
        let status = match self.device.kind {
            DeviceType::CPU | DeviceType::CUDA => return Ok(()),
            DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED => DEVX_COPY_REQUIRED,
            _ => DEVX_UNSUPPORTED,
        };
        let text = format_args!("device is {}: its memory cannot be shared between processes", self.device);
        Err(Error::new(status, text))
    }

    /// Finds the position of the first element; `None` if there are no elements.
    ///
    /// # Errors
    /// Same as [`Regions::spot`].
    pub(super) fn tensor(&mut self, tensor: &Tensor) -> Result<Option<Spot>> {
        self.require_shareable()?;
        let layout = tensor.layout();
        if layout.elements == 0 {
            return Ok(None);
        }
        let lowest = tensor.data().wrapping_byte_offset(layout.lowest);
        let (mut spot, _) = self.spot(lowest, (layout.end - layout.lowest) as usize)?;
        spot.offset += layout.lowest.unsigned_abs() as u64;
        Ok(Some(spot))
    }

    /// Finds the positions of the buffers, array by array.
    ///
    /// # Errors
    /// Same as [`Regions::spot`].
    pub(super) fn batch(&mut self, batch: &Batch) -> Result<Vec<NodePart>> {
        self.require_shareable()?;
        collected(batch.schema().depth_first().map(|node| self.node(batch, node)))
    }

    fn node(&mut self, batch: &Batch, node: usize) -> Result<NodePart> {
        let array = batch.array(node);
        let end = array.offset + array.length;
        let addresses = batch.buffers(node);
        let mut buffers = vector(addresses.len())?;
        for (index, &address) in addresses.iter().enumerate() {
            // Nothing is read in a buffer without elements, so it can be anywhere.
            if address.is_null() || end == 0 {
                buffers.push(None);
                continue;
            }
            let known = match batch.kind_of_buffer(node, index) {
                Some(buffer) => buffer.bytes_at(index, end as u64),
                None => Some(0),
            };
            // Only the data says how much of this buffer the offsets or views use, and it is not read. At least one byte,
            // because an address behind the end of a region belongs to something else; at most all up to the end of the region.
            let (spot, left) = self.spot(address, known.unwrap_or(1) as usize)?;
            buffers.push(Some((spot, known.map_or(left as u64, |known| known as u64))));
        }
        Ok(NodePart { length: array.length, null_count: array.null_count, offset: array.offset, buffers })
    }
}
