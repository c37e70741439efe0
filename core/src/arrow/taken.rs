//! What a copy takes of each array: the rows that can be seen. Those in front of them are left out, so that a slice does
//! not cost what the whole does, as far as that needs no bits moved and no buffer read.

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

impl Taken {
    /// Of all arrays, by their nodes.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(super) fn of(batch: &Batch) -> Result<Vec<Self>> {
        let nodes = batch.schema().nodes();
        let mut columns = collected((0..nodes).map(|node| Ok(Column::whole(batch, node))))?;
        let mut all = vector(nodes)?;
        while let Some(&column) = columns.get(all.len()) {
            let (node, taken) = (all.len(), Self::rows(column));
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

    fn rows(column: Column<'_>) -> Self {
        let (start, end) = (column.offset(), column.offset() + column.length());
        let first = match column.ty() {
            // Its offset is that of the runs, which are its children's affair.
            Type::RunEndEncoded => 0,
            _ if has_bits(column) => start & !7,
            _ => start,
        };
        Self { first, end, offset: start - first, null_count: column.known_null_count() }
    }

    pub(super) fn length(self) -> i64 {
        self.end - self.first - self.offset
    }

    /// Of how many bytes of a buffer nothing is taken, and how many follow, if that depends on nothing but the number of
    /// elements.
    pub(super) fn bytes(self, buffer: Buffer) -> Option<(usize, usize)> {
        let before = match buffer {
            Buffer::Offsets(width) => self.first as u128 * u128::from(width),
            _ => buffer.bytes(self.first as u64)?,
        };
        Some((before as usize, buffer.bytes((self.end - self.first) as u64)? as usize))
    }
}

/// Whether some elements share a byte, so that only whole bytes of them can be left out.
fn has_bits(column: Column<'_>) -> bool {
    let buffers = column.buffers();
    let is_of_bits = |index| match column.ty().buffers().get(index, buffers.len()) {
        Some(Buffer::Validity) => true,
        Some(Buffer::Values(bits)) => bits % 8 != 0,
        _ => false,
    };
    buffers.iter().enumerate().any(|(index, address)| !address.is_null() && is_of_bits(index))
}
