//! All columns of a batch as one table, for a binding that asks once and then reads the table itself.
//!
//! The columns of most batches have nearly everything in common: the number of rows, the offset 0, no nulls. So a table
//! has one row with what all columns have in common, and then for each column only the members in which it may differ
//! from the others.

use super::batch::Batch;
use super::column::Column;
use super::format::Type;
use crate::abi::arrow_data::ArrowArray;
use crate::memory::{entry, set_entry};

/// Number of 64-bit words in a row.
pub const WIDTH: usize = 8;

/// Number of buffer addresses in a row.
const FEW: usize = 3;

/// Number of words for each column if only the addresses of values (`buffers[1]`) differ.
pub const VALUES: usize = 1;

/// Number of words for each column if `null_count` and everything after it differ: there are nulls, or texts.
pub const NULLS_AND_BUFFERS: usize = 5;

/// One column of a batch, as it lies in a table: [`WIDTH`] words.
#[repr(C)]
#[derive(Clone, Copy)]
struct Row {
    /// Number of rows of its array that the column sees.
    length: i64,
    /// Index of row 0 in the buffers.
    offset: i64,
    /// The node of the first child. The other children follow it, and the dictionary follows them.
    below: i64,
    /// Number of nulls, or −1 if it is not known.
    null_count: i64,
    /// Number of buffers in the lower 32 bits, number of children in the upper 32.
    counts: i64,
    /// The addresses of the buffers, in memory of the batch's device. Only views may have more of them: then the last
    /// of these addresses is that of the table of all buffers.
    buffers: [i64; FEW],
}

impl Row {
    #[inline]
    fn of(column: Column<'_>, node: usize) -> Self {
        let (all, links) = (column.buffers(), column.batch().schema().links(node));
        let buffers = match *all {
            [] => [0; FEW],
            [first] => [word(first), 0, 0],
            [first, second] => [word(first), word(second), 0],
            [first, second, third] => [word(first), word(second), word(third)],
            [first, second, ..] => [word(first), word(second), word(all.as_ptr())],
        };
        Self {
            length: column.length(),
            offset: column.offset(),
            null_count: column.known_null_count(),
            counts: all.len() as i64 | (links.n_children() as i64) << 32,
            below: i64::from(links.first_child),
            buffers,
        }
    }

    /// The row of an array whose field is [plain](super::record::Record::plain), in a struct with this offset and
    /// length.
    ///
    /// # Safety
    /// The array belongs to a batch.
    #[inline]
    unsafe fn of_plain(array: &ArrowArray, struct_offset: i64, length: i64) -> Self {
        let buffer = |index| {
            // SAFETY: a plain array has at least two buffers, and the third is asked for only if it exists.
            unsafe { entry(array.buffers.cast_const(), index) }
        };
        let validity = buffer(0);
        let null_count = match array.null_count {
            0 => 0,
            _ if validity.is_null() || length == 0 => 0,
            count if struct_offset == 0 && length == array.length => count,
            _ => -1,
        };
        let third = if array.n_buffers > 2 { word(buffer(2)) } else { 0 };
        let buffers = [word(validity), word(buffer(1)), third];
        Self { length, offset: array.offset + struct_offset, null_count, counts: array.n_buffers, below: 0, buffers }
    }

    /// Splits off the address of the values. Returns the rest of the row, then that address.
    #[inline]
    fn split_values(self) -> (Self, [i64; VALUES]) {
        let [validity, values, third] = self.buffers;
        (Self { buffers: [validity, 0, third], ..self }, [values])
    }

    /// Splits off everything about nulls and buffers. Returns the rest of the row, then those words.
    #[inline]
    fn split_buffers(self) -> (Self, [i64; NULLS_AND_BUFFERS]) {
        let Self { null_count, counts, buffers: [validity, values, third], .. } = self;
        let rest = Self { null_count: 0, counts: 0, buffers: [0; FEW], ..self };
        (rest, [null_count, counts, validity, values, third])
    }

    /// Whether both rows are equal. Compares the members as numbers in registers: to compare memory, they would first
    /// have to be written there.
    #[inline]
    fn is(self, other: Self) -> bool {
        let ([a, b, c], [d, e, f]) = (self.buffers, other.buffers);
        let differ = (self.length ^ other.length) | (self.offset ^ other.offset) | (self.below ^ other.below);
        let differ = differ | (self.null_count ^ other.null_count) | (self.counts ^ other.counts);
        differ | (a ^ d) | (b ^ e) | (c ^ f) == 0
    }
}

#[inline]
fn word<T>(address: *const T) -> i64 {
    address.expose_provenance() as i64
}

/// The most words that a table can have, for a batch with `nodes` nodes.
pub fn room(nodes: usize) -> usize {
    (nodes + 1) * WIDTH
}

impl Batch {
    /// Writes the table of all columns, by their nodes. The addresses are valid as long as the batch. Nothing is
    /// allocated, and no buffer is read.
    ///
    /// The table begins with a row of what all columns have in common, and the row of the root, which is not a column.
    /// Then come, for each other node, the words of its own. Returns how many these are: [`VALUES`],
    /// [`NULLS_AND_BUFFERS`] or, if anything else differs, [`WIDTH`]. In the last case they are a whole row, and the
    /// row of what is common is not written.
    ///
    /// # Safety
    /// `table` has room for as many words as [`room`] says for the nodes of the schema.
    pub unsafe fn write_table(&self, table: *mut i64) -> usize {
        let rows = table.cast::<Row>();
        // SAFETY: the caller's contract; a schema has a root.
        unsafe { rows.wrapping_add(1).write(Row::of(self.root(), 0)) };
        if self.schema().ty(0) == Type::Struct && self.schema().plain_from() == 1 {
            // SAFETY: as above, and the columns have nothing below them.
            if unsafe { self.write_flat(rows, Row::split_values) } {
                return VALUES;
            }
            // SAFETY: as above.
            if unsafe { self.write_flat(rows, Row::split_buffers) } {
                return NULLS_AND_BUFFERS;
            }
        }
        // SAFETY: as above.
        unsafe { self.write_tree(rows.wrapping_add(1)) };
        WIDTH
    }

    /// Writes what plain columns have in common, and for each column the words that `split` takes out of its row.
    /// Returns `false` if the rows differ in anything else.
    ///
    /// # Safety
    /// Same as [`Batch::write_table`]; the root is a struct, and all other fields are plain.
    #[inline]
    unsafe fn write_flat<const N: usize>(&self, rows: *mut Row, split: impl Fn(Row) -> (Row, [i64; N])) -> bool {
        let (offset, length) = (self.root().offset(), self.root().length());
        let row = |&array: &*const ArrowArray| {
            // SAFETY: the source keeps the struct alive and in place.
            let array = unsafe { &*array };
            // SAFETY: the caller's contract.
            split(unsafe { Row::of_plain(array, offset, length) })
        };
        let Some((first, others)) = self.arrays().get(1..).and_then(<[_]>::split_first) else { return false };
        let (common, own) = row(first);
        let place = rows.wrapping_add(2).cast::<[i64; N]>();
        // SAFETY: the caller's contract.
        unsafe { rows.write(common) };
        // SAFETY: as above.
        unsafe { place.write(own) };
        for (array, i) in others.iter().zip(1..) {
            let (rest, own) = row(array);
            if !rest.is(common) {
                return false;
            }
            // SAFETY: as above.
            unsafe { set_entry(place, i, own) };
        }
        true
    }

    /// Writes the whole row of each node, behind that of the root.
    ///
    /// # Safety
    /// `rows` has room for as many rows as the schema has nodes, and the first one is written.
    unsafe fn write_tree(&self, rows: *mut Row) {
        for node in 0..self.schema().nodes() {
            let links = self.schema().links(node);
            if links.below() == 0 {
                continue;
            }
            // SAFETY: a node below another one has a higher number, so this row is written already.
            let Row { offset, length, .. } = unsafe { *rows.wrapping_add(node) };
            let column = Column::rows_of(self, node, offset, length);
            let first = links.first_child as usize;
            for (node, column) in (first..).zip(column.below(links)) {
                // SAFETY: the caller's contract.
                unsafe { rows.wrapping_add(node).write(Row::of(column, node)) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row([length, offset, below, null_count, counts, a, b, c]: [i64; WIDTH]) -> Row {
        Row { length, offset, below, null_count, counts, buffers: [a, b, c] }
    }

    /// Two members that differ in the same bits must not cancel out.
    #[test]
    fn a_row_is_another_one_if_no_member_differs() {
        let members = [5; WIDTH];
        assert!(row(members).is(row(members)));
        for (i, j) in (0..WIDTH).flat_map(|i| (0..=i).map(move |j| (i, j))) {
            for bit in [0, 1, 63] {
                let mut others = members;
                for at in [i, j] {
                    others[at] = members[at] ^ 1 << bit;
                }
                assert!(!row(members).is(row(others)), "members {i} and {j}, bit {bit}");
            }
        }
    }
}
