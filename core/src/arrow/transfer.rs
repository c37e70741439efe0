//! Copies of whole batches between devices: one allocation, one stream, one copy for each buffer.

use core::ffi::c_void;

use super::batch::{Batch, NodeDesc};
use super::bitmap;
use super::check::in_array;
use super::format::Buffer;
use super::node::no_offset;
use super::offsets;
use super::taken::{Change, Span, Taken};
use crate::device::{Device, DeviceType};
use crate::error::{Result, refuse};
use crate::memory::{InOrder, Owner, Vacant, collected, push, repeated, vector};
use crate::order::Ready;
use crate::runtime::cuda::copy;
use crate::stream::Stream;
use crate::transfer::{self, Memory};

/// The alignment of buffers in the new memory, which Arrow recommends.
const ALIGN: usize = 64;

/// A buffer that has to be copied.
struct Part {
    source: *const c_void,
    bytes: usize,
    change: Option<Change>,
    known: Option<Known>,
}

/// What the host knows of a buffer before it is copied.
enum Known {
    /// The offset before the first element, of an array without elements. Its source belongs to this library, in host
    /// memory.
    FirstOffset,
    /// The sizes of view data.
    Sizes(Vec<i64>),
}

/// New memory that is handed out piece by piece.
struct Room {
    first: *mut u8,
    next: *mut u8,
    bytes: usize,
}

impl Room {
    const NONE: Self = Self { first: std::ptr::null_mut(), next: std::ptr::null_mut(), bytes: 0 };

    fn reserve(&mut self, bytes: usize) -> Result<()> {
        match bytes.checked_next_multiple_of(ALIGN).and_then(|bytes| self.bytes.checked_add(bytes)) {
            Some(total) => self.bytes = total,
            None => return refuse!(DEVX_OUT_OF_MEMORY, "the buffers have more bytes than can be addressed"),
        }
        Ok(())
    }

    /// Sets the address of the memory.
    fn begin(&mut self, address: *mut c_void) {
        (self.first, self.next) = (address.cast(), address.cast());
    }

    fn take(&mut self, bytes: usize) -> *mut c_void {
        if bytes == 0 {
            // Not behind what was handed out already: the memory may end there, and other memory begin.
            return self.first.cast();
        }
        let place = self.next;
        self.next = place.wrapping_add(bytes.next_multiple_of(ALIGN));
        place.cast()
    }
}

impl Batch {
    /// Copies the batch to another device (or the same). The copy is queued on `stream` and ready after it; for a copy
    /// from or into host memory that is not pinned, the host waits. The source is released only after the copy.
    ///
    /// For texts and binary in device memory, offsets or the sizes of the view data have to be read first, for which the
    /// host waits, too.
    ///
    /// A copy in host memory that is not pinned has of a slice what [`Batch::copy`] has, and begins at row 0. Any other copy
    /// also has the texts and elements of lists in front of those of the slice (in device memory, all elements of the
    /// lists), and up to seven rows in front of a slice that has bits.
    ///
    /// If the copy is on a GPU, the sizes of view data are in pinned memory: some consumers read them on the host,
    /// others on the device.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, `DEVX_INVALID_BUFFERS`, `DEVX_DEVICE`, `DEVX_DRIVER`.
    pub fn copy_to(&self, device: Device, stream: Stream) -> Result<Self> {
        let device = device.checked()?;
        if transfer::is_by_host(self.device(), device) {
            return self.copy();
        }
        stream.require_no_capture()?;
        self.copy_parts(device, stream, transfer::allocating(device, stream)?, device.kind == DeviceType::CUDA)
    }

    /// Like [`Batch::copy_to`], but into one block of plain device memory, including the sizes of view data, so that
    /// another process can open it.
    ///
    /// # Errors
    /// Same as [`Batch::copy_to`].
    pub(crate) fn copy_to_one_block(&self, device: Device, stream: Stream) -> Result<Self> {
        self.copy_parts(device, stream, None, false)
    }

    /// Makes the copy, in memory that [`transfer::allocate`] returns for `on`. The sizes of view data are in pinned
    /// memory or with the rest.
    fn copy_parts(&self, device: Device, stream: Stream, on: Option<Stream>, pin_sizes: bool) -> Result<Self> {
        self.wait(stream)?;
        // The host waits for a copy into memory that is not pinned, and can then change bits and offsets.
        let by_host = device == Device::CPU;
        let taken = Taken::of(self, by_host, Some(stream))?;
        let parts = self.parts(&taken, Some(stream))?;
        let (mut room, mut readable) = (Room::NONE, Room::NONE);
        let apart = |part: &Part| matches!(part.known, Some(Known::Sizes(_))) && pin_sizes;
        for part in &parts {
            if apart(part) { &mut readable } else { &mut room }.reserve(part.bytes)?;
        }
        let memory = transfer::allocate(device, room.bytes, on)?;
        let is_in_order = memory.is_in_order();
        let Memory { address, mut owner, .. } = memory;
        room.begin(address);
        if readable.bytes > 0 {
            let pinned = Device { kind: DeviceType::CUDA_HOST, ..device };
            let memory = transfer::allocate(pinned, readable.bytes, None)?;
            readable.begin(memory.address);
            let in_order = InOrder::of_all([owner.in_order()]);
            owner = Owner::in_room(Vacant::new()?, (owner, memory.owner)).given_back(in_order);
        }
        let (mut copies, mut first_offsets) = (vector(parts.len())?, vector(parts.len())?);
        let (mut buffers, mut changes) = (vector(parts.len())?, vector(parts.len())?);
        for part in &parts {
            if part.source.is_null() {
                buffers.push(std::ptr::null());
                continue;
            }
            let place = if apart(part) { &mut readable } else { &mut room }.take(part.bytes);
            buffers.push(place.cast_const());
            if let Some(change) = part.change {
                changes.push((place, part.bytes, change));
            }
            match &part.known {
                // SAFETY: the room is for this many sizes, in memory that the host can write and that nobody knows of
                // yet.
                Some(Known::Sizes(sizes)) if device.is_host() || pin_sizes => unsafe {
                    place.cast::<i64>().copy_from_nonoverlapping(sizes.as_ptr(), sizes.len())
                },
                Some(Known::FirstOffset) => first_offsets.push((place, part.source, part.bytes)),
                _ if part.bytes > 0 => copies.push((place, part.source, part.bytes)),
                _ => {}
            }
        }
        let nodes = self.with_buffers(&taken, &buffers)?;
        // SAFETY: the buffers are copies of those of this batch, in memory of `device` that the owner keeps.
        let mut copy = unsafe { Self::from_raw_parts(self.schema(), device, &nodes, owner) }?;
        let queued = match first_offsets.is_empty() {
            true => Ok(()),
            // Not together with the others: all sources of one call of `fill` are on one device, and these are in host
            // memory.
            // SAFETY: the new memory has room for all buffers one after the other, and nobody else knows of it; `kept` keeps
            // it alive.
            false => unsafe { transfer::fill(device, Device::CPU, &first_offsets, stream) }.map(drop),
        };
        let filled = queued.and_then(|()| {
            // SAFETY: as above; `kept` keeps this batch alive, too.
            unsafe { transfer::fill(device, self.device(), &copies, stream) }
        });
        let (source, own) = (|filled: &_| self.hold(stream, filled), |filled: &_| copy.hold(stream, filled));
        let ready = transfer::kept(filled, device, is_in_order, source, own)?;
        for (place, bytes, change) in changes {
            // SAFETY: the host has waited until these bytes were written, and nobody knows of them yet.
            change.make(unsafe { std::slice::from_raw_parts_mut(place.cast(), bytes) });
        }
        copy.set_ready(ready);
        copy.set_in_one_block();
        Ok(copy)
    }

    /// Copies the batch into one block of this library's host memory. The host copies, without a driver, and nothing of
    /// the copy belongs to the producer.
    ///
    /// Of a slice it has the rows, with their texts and elements of lists. What views, list views, dense unions, run-end
    /// encoded arrays and indices of dictionaries refer to is copied whole. The copy begins at row 0: no array has an
    /// offset, except run-end encoded ones. This is for consumers that ignore offsets.
    ///
    /// # Errors
    /// `DEVX_DEVICE` and `DEVX_NOT_READY` if the host cannot read the batch, `DEVX_INVALID_BUFFERS`, `DEVX_OUT_OF_MEMORY`.
    pub fn copy(&self) -> Result<Self> {
        self.copy_on_host(|bytes| transfer::allocate(Device::CPU, bytes, None))
    }

    /// Like [`Batch::copy`], but in host memory that `allocate` returns.
    ///
    /// # Errors
    /// `DEVX_DEVICE` and `DEVX_NOT_READY` if the host cannot read the batch, `DEVX_INVALID_BUFFERS`, and those of `allocate`.
    pub(crate) fn copy_on_host(&self, allocate: impl FnOnce(usize) -> Result<Memory>) -> Result<Self> {
        self.require_host()?;
        let taken = Taken::of(self, true, None)?;
        let parts = self.parts(&taken, None)?;
        let mut room = Room::NONE;
        parts.iter().try_for_each(|part| room.reserve(part.bytes))?;
        let Memory { address, owner, .. } = allocate(room.bytes)?;
        room.begin(address);
        let mut buffers = vector(parts.len())?;
        for Part { source, bytes, change, .. } in &parts {
            if source.is_null() {
                buffers.push(std::ptr::null());
                continue;
            }
            let place = room.take(*bytes);
            buffers.push(place.cast_const());
            if *bytes > 0 {
                // SAFETY: the producer of the batch promises this many bytes, and the room was made for all buffers one
                // after the other.
                unsafe { place.cast::<u8>().copy_from_nonoverlapping(source.cast(), *bytes) };
            }
            if let Some(change) = change {
                // SAFETY: the bytes were written just now, and nobody knows of them yet.
                change.make(unsafe { std::slice::from_raw_parts_mut(place.cast(), *bytes) });
            }
        }
        let nodes = self.with_buffers(&taken, &buffers)?;
        // SAFETY: the buffers are copies of those of this batch, in host memory that the owner keeps.
        let mut copy = unsafe { Self::from_raw_parts(self.schema(), Device::CPU, &nodes, owner) }?;
        copy.set_in_one_block();
        Ok(copy)
    }

    /// Describes the arrays with what was taken of them, in other buffers, which follow each other.
    fn with_buffers<'a>(&self, taken: &[Taken], mut buffers: &'a [*const c_void]) -> Result<Vec<NodeDesc<'a>>> {
        let describe = |node| {
            let rows = taken_of(taken, node);
            let (length, null_count, offset) = (rows.length(), rows.null_count, rows.offset);
            let (own, others) = buffers.split_at_checked(self.buffers(node).len()).unwrap_or((buffers, &[]));
            buffers = others;
            Ok(NodeDesc { length, null_count, offset, buffers: own })
        };
        collected(self.schema().depth_first().map(describe))
    }

    /// The number of bytes in a copy of all buffers. Without a stream, the host must be able to read the batch; with one,
    /// the host waits for what has to be read.
    ///
    /// # Errors
    /// `DEVX_DEVICE` and `DEVX_NOT_READY` without a stream, if the host cannot read the batch; `DEVX_INVALID_BUFFERS`,
    /// `DEVX_DRIVER`.
    pub(crate) fn copy_bytes(&self, stream: Option<Stream>) -> Result<usize> {
        match stream {
            Some(stream) => self.wait(stream)?,
            None => self.require_host()?,
        }
        let parts = self.parts(&Taken::of(self, stream.is_none(), stream)?, stream)?;
        let mut room = Room::NONE;
        parts.iter().try_for_each(|part| room.reserve(part.bytes))?;
        Ok(room.bytes)
    }

    /// All buffers, node by node, with the bytes that belong to the arrays. Without a stream, the host must be able to
    /// read what has to be read.
    fn parts(&self, taken: &[Taken], stream: Option<Stream>) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        for node in self.schema().depth_first() {
            let rows = taken_of(taken, node);
            let named = |error| in_array(self.schema(), node, error);
            let sizes = self.view_sizes(node, stream).map_err(named)?;
            for (index, &source) in self.buffers(node).iter().enumerate() {
                let kind = self.kind_of_buffer(node, index);
                if let Some(Buffer::Offsets(width)) = kind
                    && rows.first == rows.end
                {
                    // If there is no element at all, there may be no buffer of offsets.
                    let known = Some(Known::FirstOffset);
                    push(&mut parts, Part { source: no_offset(), bytes: width as usize, change: None, known })?;
                    continue;
                }
                let span = match source.is_null() {
                    true => Span::first(0),
                    false => self.span_of_buffer(node, rows, index, &sizes).map_err(named)?,
                };
                let is_sizes = kind == Some(Buffer::ViewSizes) && !source.is_null();
                let known = if is_sizes { Some(Known::Sizes(collected(sizes.iter().copied().map(Ok))?)) } else { None };
                let Span { before, bytes, change } = span;
                push(&mut parts, Part { source: source.wrapping_byte_add(before), bytes, change, known })?;
            }
        }
        Ok(parts)
    }

    pub(crate) fn kind_of_buffer(&self, node: usize, index: usize) -> Option<Buffer> {
        self.schema().ty(node).buffers().get(index, self.buffers(node).len())
    }

    /// The part of a buffer that is taken.
    fn span_of_buffer(&self, node: usize, rows: Taken, index: usize, sizes: &[i64]) -> Result<Span> {
        let kind = self.kind_of_buffer(node, index);
        if let Some(span) = kind.and_then(|kind| rows.span(kind)) {
            return Ok(span);
        }
        // Views count from the beginning of their data, which is copied whole.
        let all = match kind {
            Some(Buffer::ViewSizes) => size_of_val(sizes),
            Some(Buffer::ViewData) => {
                let size = index.checked_sub(2).and_then(|index| sizes.get(index)).copied().unwrap_or(0);
                match usize::try_from(size) {
                    Ok(size) => size,
                    Err(_) => {
                        return refuse!(
                            DEVX_INVALID_BUFFERS,
                            "the size of buffers[{index}] is {size}: it must not be negative"
                        );
                    }
                }
            }
            _ => 0,
        };
        Ok(Span::first(all))
    }

    /// The sizes of the data buffers of a node of views; empty for any other node.
    fn view_sizes(&self, node: usize, stream: Option<Stream>) -> Result<Vec<i64>> {
        let Some((&source, others)) = self.buffers(node).split_last() else { return Ok(Vec::new()) };
        if source.is_null() || self.kind_of_buffer(node, others.len()) != Some(Buffer::ViewSizes) {
            return Ok(Vec::new());
        }
        let mut sizes = repeated(0_i64, others.len().saturating_sub(2))?;
        // SAFETY: the producer of the array promises a size for each data buffer, wherever the sizes are; a caller
        // without a stream has checked that the host can read them.
        unsafe { self.read(sizes.as_mut_ptr().cast(), source.cast(), size_of_val(sizes.as_slice()), stream) }?;
        Ok(sizes)
    }

    /// Whether [`Batch::read`] needs no wait.
    pub(super) fn is_readable_at_once(&self, stream: Option<Stream>) -> bool {
        stream.is_none() || self.device().is_host() && matches!(self.ready(), Ready::Now)
    }

    /// Reads bytes of a buffer into host memory; the host waits for them.
    ///
    /// # Safety
    /// Both ranges are valid. Without a stream, the host can read the buffer now.
    pub(super) unsafe fn read(&self, to: *mut u8, from: *const u8, bytes: usize, stream: Option<Stream>) -> Result<()> {
        let Some(stream) = stream.filter(|_| !self.is_readable_at_once(stream)) else {
            // SAFETY: the caller's contract.
            unsafe { to.copy_from_nonoverlapping(from, bytes) };
            return Ok(());
        };
        // SAFETY: the caller's contract.
        let fetched = unsafe { self.fetch(from.cast(), bytes, stream) }?;
        // SAFETY: this many bytes were fetched; `to` is valid by the caller's contract.
        unsafe { to.copy_from_nonoverlapping(fetched.as_ptr(), bytes) };
        Ok(())
    }

    /// Fetches bytes of a buffer with a copy on `stream`; the host waits for it.
    ///
    /// # Errors
    /// `DEVX_DRIVER`, `DEVX_OUT_OF_MEMORY`.
    ///
    /// # Safety
    /// There are this many bytes at `from`, in memory of the batch.
    pub(super) unsafe fn fetch(&self, from: *const c_void, bytes: usize, stream: Stream) -> Result<Vec<u8>> {
        // SAFETY: the caller's contract; `hold` keeps the memory if the copy may still run.
        let fetched = unsafe { copy::fetch(self.device(), from, bytes, stream) };
        if fetched.is_err() {
            let _ = self.hold(stream, &fetched);
        }
        Ok(fetched?)
    }
}

impl Change {
    /// Makes the change in the copied bytes.
    fn make(self, bytes: &mut [u8]) {
        match self {
            Self::Bits(shift) => bitmap::move_to_front(bytes, shift),
            Self::Offsets { width, first } => offsets::begin_at_0(bytes, width, first),
        }
    }
}

#[expect(clippy::indexing_slicing, reason = "there is one for each node of the schema")]
fn taken_of(taken: &[Taken], node: usize) -> Taken {
    taken[node]
}
