//! What a copy takes of each array: the rows that can be seen. Those in front of them are left out, so that a slice does
//! not cost what the whole does, as far as that needs no buffer read and, if not the host copies, no bits moved.

use super::batch::Batch;
use super::column::Column;
use super::format::{Buffer, Type};
use crate::error::Result;
use crate::memory::{collected, vector};

/// The elements that are taken of one array, and where its rows are among them.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    /// Index of the first one in the buffers.
    pub(super) first: i64,
    /// Index behind the last one.
    pub(super) end: i64,
    /// Index of row 0, counted from `first`.
    pub(super) offset: i64,
    pub(super) null_count: i64,
}

/// A part of a buffer.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// Bytes in front of it.
    pub(super) before: usize,
    pub(super) bytes: usize,
    /// Bits of its first byte that are in front of it.
    pub(super) shift: u32,
}

impl Span {
    /// The first so many bytes.
    pub(super) fn first(bytes: usize) -> Self {
        Self { before: 0, bytes, shift: 0 }
    }
}

impl Taken {
    /// Of all arrays, by their nodes; of elements that share a byte with others in front of them those, too, unless who copies
    /// can move bits.
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
            // Where the rows of children are is told by the offset of a struct, which is another one in the copy. What hangs
            // somewhere has a higher number.
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
            // Its offset is that of the runs, which are its children's affair.
            Type::RunEndEncoded => 0,
            _ if !moves_bits && has_bits(column) => start & !7,
            _ => start,
        };
        Self { first, end, offset: start - first, null_count: column.known_null_count() }
    }

    pub(super) fn length(self) -> i64 {
        self.end - self.first - self.offset
    }

    /// What is taken of a buffer, if that depends on nothing but the number of elements.
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

/// Whether elements share a byte. Those of fewer bits than a byte have one.
fn is_of_bits(buffer: Buffer) -> bool {
    matches!(buffer, Buffer::Validity | Buffer::Values(1))
}

/// Whether some elements share a byte, so that only whole bytes of them can be left out.
fn has_bits(column: Column<'_>) -> bool {
    let buffers = column.buffers();
    let kind = |index| column.ty().buffers().get(index, buffers.len());
    buffers.iter().enumerate().any(|(index, address)| !address.is_null() && kind(index).is_some_and(is_of_bits))
}
