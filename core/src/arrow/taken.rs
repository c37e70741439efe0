//! What a copy takes of each array: the rows that can be seen, and what their offsets refer to.
//!
//! Whatever is in front of them is left out, so that a slice does not cost as much as the whole. Bits and offsets are
//! then different ones in the copy, and it is the host that changes them. So in a copy that the host does not wait for,
//! some rows in front of a slice of bits are taken, too, and everything that is in front of what the offsets refer to.
//!
//! Data of views and children of list views, dense unions and run-end encoded arrays are taken whole, and so are
//! dictionaries.

use super::batch::Batch;
use super::check::in_array;
use super::column::Column;
use super::format::{Buffer, Type};
use super::offsets::Referred;
use crate::error::Result;
use crate::memory::{collected, vector};
use crate::stream::Stream;

/// The elements that are taken of one array, and the place of its rows among them.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    /// Index of the first element in the buffers.
    pub(super) first: i64,
    /// Index behind the last element.
    pub(super) end: i64,
    /// Index of row 0, counted from `first`.
    pub(super) offset: i64,
    pub(super) null_count: i64,
    /// The bytes of data, or the elements of the child, that are taken with them; `None` if that is all.
    referred: Option<Referred>,
}

/// What is different in the copy of a part of a buffer, because it is copied without what is in front of it.
#[derive(Clone, Copy)]
pub(super) enum Change {
    /// This many bits of the first byte are in front.
    Bits(u32),
    /// The offsets, of `width` bytes, are less by `first`.
    Offsets { width: u32, first: i64 },
}

/// A part of a buffer.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// Number of bytes in front of the part.
    pub(super) before: usize,
    pub(super) bytes: usize,
    pub(super) change: Option<Change>,
}

impl Span {
    /// The first `bytes` bytes.
    pub(super) fn first(bytes: usize) -> Self {
        Self { before: 0, bytes, change: None }
    }
}

impl Taken {
    /// What is taken of all arrays, by their nodes. `by_host` says whether the host copies or waits for the copy, and so
    /// can change it. Without a stream, the host must be able to read the batch; with one, the host waits for what has
    /// to be read.
    ///
    /// # Errors
    /// `DEVX_INVALID_BUFFERS`, `DEVX_DRIVER`, `DEVX_OUT_OF_MEMORY`.
    pub(super) fn of(batch: &Batch, by_host: bool, stream: Option<Stream>) -> Result<Vec<Self>> {
        let nodes = batch.schema().nodes();
        let mut columns = collected((0..nodes).map(|node| Ok(Column::whole(batch, node))))?;
        let mut all = vector(nodes)?;
        while let Some(&column) = columns.get(all.len()) {
            let (node, mut taken) = (all.len(), Self::rows(column, by_host));
            taken.referred = Referred::of(batch, node, taken, by_host, stream)
                .map_err(|error| in_array(batch.schema(), node, error))?;
            all.push(taken);
            let links = batch.schema().links(node);
            // The offset of a struct, which is another one in the copy, says where the rows of its children are. Nodes
            // below have higher numbers, so their columns are replaced before they are used.
            let seen = Column::rows_of(batch, node, taken.first, taken.end - taken.first);
            for (place, child) in columns.iter_mut().skip(links.first_child as usize).zip(seen.below(links)) {
                *place = match taken.referred {
                    Some(Referred { first, end }) => child.slice(first, end - first)?,
                    None => child,
                };
            }
        }
        Ok(all)
    }

    fn rows(column: Column<'_>, by_host: bool) -> Self {
        let (start, end) = (column.offset(), column.offset() + column.length());
        let first = match column.ty() {
            // Its offset applies to the runs, which are in its children, so nothing is left out here.
            Type::RunEndEncoded => 0,
            _ if !by_host && has_bits(column) => start & !7,
            _ => start,
        };
        Self { first, end, offset: start - first, null_count: column.known_null_count(), referred: None }
    }

    pub(super) fn length(self) -> i64 {
        self.end - self.first - self.offset
    }

    /// The part of a buffer that is taken, if it depends on nothing but the elements and their offsets.
    pub(super) fn span(self, buffer: Buffer) -> Option<Span> {
        if buffer == Buffer::Data {
            let Referred { first, end } = self.referred?;
            return Some(Span { before: first as usize, bytes: (end - first) as usize, change: None });
        }
        let skipped = if is_of_bits(buffer) { self.first & 7 } else { 0 };
        let first = self.first - skipped;
        let before = match buffer {
            Buffer::Offsets(width) => first as u128 * u128::from(width),
            _ => buffer.bytes(first as u64)?,
        };
        let bytes = buffer.bytes((self.end - first) as u64)?;
        let change = match (buffer, self.referred) {
            (Buffer::Offsets(width), Some(Referred { first: first @ 1.., .. })) => {
                Some(Change::Offsets { width, first })
            }
            _ => (skipped > 0).then_some(Change::Bits(skipped as u32)),
        };
        Some(Span { before: before as usize, bytes: bytes as usize, change })
    }
}

/// Whether elements share a byte. Elements smaller than a byte have one bit.
fn is_of_bits(buffer: Buffer) -> bool {
    matches!(buffer, Buffer::Validity | Buffer::Values(1))
}

/// Whether some elements of the column share a byte, so that only whole bytes of them can be left out.
fn has_bits(column: Column<'_>) -> bool {
    let buffers = column.buffers();
    let kind = |index| column.ty().buffers().get(index, buffers.len());
    buffers.iter().enumerate().any(|(index, address)| !address.is_null() && kind(index).is_some_and(is_of_bits))
}
