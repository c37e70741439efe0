//! What a copy takes of each array: the rows that can be seen.
//!
//! Rows in front of them are left out, so that a slice does not cost as much as the whole, but only if that needs no
//! buffer to be read and, unless the copy is in host memory that is not pinned, no bits to be moved.

use super::batch::Batch;
use super::column::Column;
use super::format::{Buffer, Type};
use crate::error::Result;
use crate::memory::{collected, vector};

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
}

/// A part of a buffer.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// Number of bytes in front of the part.
    pub(super) before: usize,
    pub(super) bytes: usize,
    /// Number of bits of its first byte that are in front of the part.
    pub(super) shift: u32,
}

impl Span {
    /// The first `bytes` bytes.
    pub(super) fn first(bytes: usize) -> Self {
        Self { before: 0, bytes, shift: 0 }
    }
}

impl Taken {
    /// What is taken of all arrays, by their nodes. Unless the copy moves bits, elements in front that share a byte
    /// with the first row are taken, too.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(super) fn of(batch: &Batch, moves_bits: bool) -> Result<Vec<Self>> {
        let nodes = batch.schema().nodes();
        let mut columns = collected((0..nodes).map(|node| Ok(Column::whole(batch, node))))?;
        let mut all = vector(nodes)?;
        while let Some(&column) = columns.get(all.len()) {
            let (node, taken) = (all.len(), Self::rows(column, moves_bits));
            all.push(taken);
            let links = batch.schema().links(node);
            // The offset of a struct, which is another one in the copy, says where the rows of its children are. Nodes
            // below have higher numbers, so their columns are replaced before they are used.
            let seen = Column::rows_of(batch, node, taken.first, taken.end - taken.first);
            for (place, child) in columns.iter_mut().skip(links.first_child as usize).zip(seen.below(links)) {
                *place = child;
            }
        }
        Ok(all)
    }

    fn rows(column: Column<'_>, moves_bits: bool) -> Self {
        let (start, end) = (column.offset(), column.offset() + column.length());
        let first = match column.ty() {
            // Its offset applies to the runs, which are in its children, so nothing is left out here.
            Type::RunEndEncoded => 0,
            _ if !moves_bits && has_bits(column) => start & !7,
            _ => start,
        };
        Self { first, end, offset: start - first, null_count: column.known_null_count() }
    }

    pub(super) fn length(self) -> i64 {
        self.end - self.first - self.offset
    }

    /// The part of a buffer that is taken, if it depends on nothing but the number of elements.
    pub(super) fn span(self, buffer: Buffer) -> Option<Span> {
        let bits = if is_of_bits(buffer) { self.first & 7 } else { 0 };
        let first = self.first - bits;
        let before = match buffer {
            Buffer::Offsets(width) => first as u128 * u128::from(width),
            _ => buffer.bytes(first as u64)?,
        };
        let bytes = buffer.bytes((self.end - first) as u64)?;
        Some(Span { before: before as usize, bytes: bytes as usize, shift: bits as u32 })
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
