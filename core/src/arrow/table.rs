//! All columns of a batch as one table, for a binding that asks once and then reads by itself.

use core::ffi::c_void;

use super::batch::Batch;
use super::column::Column;

/// How many addresses of buffers stand in a row.
const FEW: usize = 3;

/// One column of a batch, as it lies in a table: eight words of 64 bits.
#[repr(C)]
#[derive(Debug)]
pub struct Row {
    /// Number of rows that the column sees of its array.
    pub length: i64,
    /// Index of row 0 in the buffers.
    pub offset: i64,
    /// Number of nulls, or −1 if it is not known.
    pub null_count: i64,
    /// Number of buffers and, above 32 bits, number of children.
    pub counts: i64,
    /// The node of the first child. The other children follow it, and the dictionary follows them.
    pub below: i64,
    /// The addresses of the buffers, in memory of the batch's device. Only views may have more than these: then the
    /// last one is that of the table of all of them.
    pub buffers: [*const c_void; FEW],
}

impl Row {
    #[inline]
    fn of(column: Column<'_>, node: usize) -> Self {
        let (all, links) = (column.buffers(), column.batch().schema().links(node));
        let buffers = match *all {
            [] => [std::ptr::null(); FEW],
            [first] => [first, std::ptr::null(), std::ptr::null()],
            [first, second] => [first, second, std::ptr::null()],
            [first, second, third] => [first, second, third],
            [first, second, ..] => [first, second, all.as_ptr().cast()],
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
}

impl Batch {
    /// Writes a row for each node of the schema, the root's first; the pointers are valid as long as the batch.
    /// Nothing is allocated, and no buffer is read.
    ///
    /// # Safety
    /// `rows` has room for as many rows as the schema has nodes.
    pub unsafe fn write_table(&self, rows: *mut Row) {
        // SAFETY: the caller's contract; a schema has a root.
        unsafe { rows.write(Row::of(self.root(), 0)) };
        for node in 0..self.schema().nodes() {
            let links = self.schema().links(node);
            if links.below() == 0 {
                continue;
            }
            // SAFETY: what hangs somewhere has a higher number, so this row is written.
            let row = unsafe { &*rows.wrapping_add(node) };
            let column = Column::rows_of(self, node, row.offset, row.length);
            let first = links.first_child as usize;
            for (node, column) in (first..).zip(column.below(links)) {
                // SAFETY: the caller's contract.
                unsafe { rows.wrapping_add(node).write(Row::of(column, node)) };
            }
        }
    }
}
