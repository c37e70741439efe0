//! A column is a view of its batch, so it cannot outlive it.

use devexchange_core::{Batch, Column};

fn first(batch: Batch) -> Option<Column<'static>> {
    batch.column(0)
}

fn main() {
    let _ = first;
}
