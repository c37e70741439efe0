//! The values of a column borrow the batch, also through a temporary `Column`, so they cannot outlive it.

use devexchange_core::Batch;

fn last(batch: Batch) -> i32 {
    let values = batch.column(0).unwrap().values::<i32>().unwrap();
    drop(batch);
    values[0]
}

fn main() {
    let _ = last;
}
