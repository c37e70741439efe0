//! Whole batches copied between devices: one allocation, one stream, one copy for each buffer.

use core::ffi::c_void;

use super::batch::{Batch, NodeDesc};
use super::format::Buffer;
use crate::abi::arrow_data::ArrowArray;
use crate::device::Device;
use crate::error::{Result, refuse};
use crate::memory::entry;
use crate::order::Ready;
use crate::runtime::cuda::{Stream, copy};
use crate::runtime::{self, Memory};

/// Where a buffer starts in the new memory: at a multiple of what Arrow recommends.
const ALIGN: usize = 64;

impl Batch {
    /// A copy on another device (or the same), queued on `stream`, after which it is ready; into host memory that is not
    /// pinned the host waits for it. The source is released only after the copy. Of texts and binary in device memory the
    /// last offset has to be read first, for which the host waits, too.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, `DEVX_INVALID_BUFFERS`, `DEVX_DEVICE`, `DEVX_DRIVER`.
    pub fn copy_to(&self, device: Device, stream: Stream) -> Result<Self> {
        stream.require_no_capture()?;
        self.wait(stream)?;
        let order = self.schema().depth_first();
        let mut sources: Vec<(*const c_void, usize)> = Vec::new();
        let mut total = 0_usize;
        for &node in &order {
            for (index, buffer) in self.buffers_of(node) {
                let bytes = if buffer.is_null() { 0 } else { self.size_of_buffer(node, index, stream)? };
                total = match bytes.checked_next_multiple_of(ALIGN).and_then(|bytes| total.checked_add(bytes)) {
                    Some(total) => total,
                    None => return refuse!(DEVX_OUT_OF_MEMORY, "the buffers have more bytes than can be addressed"),
                };
                sources.push((buffer, bytes));
            }
        }
        let pool = runtime::allocating(device, stream)?;
        let Memory { address, owner, .. } = runtime::allocate(device, total, pool)?;
        let mut next = address.cast::<u8>();
        let mut copies = Vec::with_capacity(sources.len());
        let mut buffers = Vec::with_capacity(sources.len());
        for &(source, bytes) in &sources {
            let present = !source.is_null();
            buffers.push(if present { next.cast::<c_void>().cast_const() } else { std::ptr::null() });
            if bytes > 0 {
                copies.push((next.cast::<c_void>(), source, bytes));
            }
            next = next.wrapping_add(bytes.next_multiple_of(ALIGN));
        }
        let mut rest = buffers.as_slice();
        let nodes: Vec<_> = order
            .iter()
            .map(|&node| {
                let ArrowArray { length, null_count, offset, n_buffers, .. } = *self.array(node);
                let (buffers, others) = rest.split_at_checked(n_buffers as usize).unwrap_or((rest, &[]));
                rest = others;
                NodeDesc { length, null_count, offset, buffers }
            })
            .collect();
        // SAFETY: the buffers are copies of those of this batch, in memory of `device` that the owner keeps.
        let mut copy = unsafe { Self::from_raw_parts(self.schema(), device, &nodes, owner) }?;
        // SAFETY: the new memory has room for all buffers one after the other, and nobody else knows of it; `hold` keeps
        // both alive.
        let filled = unsafe { runtime::fill(device, &copies, stream) };
        // Also if a later copy could not be queued: an earlier one may be running.
        self.hold(stream)?;
        // Memory of the pool is given back in the order of the stream, host memory was waited for.
        if pool.is_none() && (device != Device::CPU || filled.is_err()) {
            copy.hold(stream)?;
        }
        let ready = filled?;
        copy.set_ready(ready);
        Ok(copy)
    }

    fn buffers_of(&self, node: usize) -> impl Iterator<Item = (usize, *const c_void)> {
        let array = self.array(node);
        // SAFETY: the table was checked when the batch was made.
        (0..array.n_buffers as usize).map(|index| (index, unsafe { entry(array.buffers, index) }))
    }

    /// How many bytes of a buffer belong to the array.
    fn size_of_buffer(&self, node: usize, index: usize, stream: Stream) -> Result<usize> {
        let array = self.array(node);
        let end = (array.offset + array.length) as usize;
        Ok(match self.schema().ty(node).buffers().get(index) {
            Some(Buffer::Validity) => end.div_ceil(8),
            Some(Buffer::Values(bits)) => (end as u128 * u128::from(bits)).div_ceil(8) as usize,
            Some(Buffer::Offsets(width)) => (end + 1) * width as usize,
            Some(Buffer::Data) if end > 0 => return self.last_offset(node, end, stream),
            Some(Buffer::Data) | None => 0,
        })
    }

    /// The offset after the last element: the size of the data that the offsets point into.
    fn last_offset(&self, node: usize, end: usize, stream: Stream) -> Result<usize> {
        let width = match self.schema().ty(node).buffers().get(1) {
            Some(Buffer::Offsets(width)) => width as usize,
            _ => return Ok(0),
        };
        // SAFETY: an array with data has an offsets buffer before it, which was checked to be there.
        let offsets = unsafe { entry(self.array(node).buffers, 1) }.cast::<u8>();
        let mut bytes = [0_u8; 8];
        let source = offsets.wrapping_add(end * width);
        if self.device().is_host() && matches!(self.ready(), Ready::Now) {
            // SAFETY: the producer of the array promises one more offset than elements.
            unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(source, width) };
        } else {
            // SAFETY: as above, and the host waits for the copy.
            unsafe { copy::now(bytes.as_mut_ptr().cast(), source.cast(), width, stream) }?;
        }
        let last = if width == 4 {
            i64::from(i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        } else {
            i64::from_ne_bytes(bytes)
        };
        match usize::try_from(last) {
            Ok(last) => Ok(last),
            Err(_) => refuse!(DEVX_INVALID_BUFFERS, "the last offset is {last}"),
        }
    }
}
