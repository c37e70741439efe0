//! Values, too, lie in the memory of the batch, however they were reached.

use devexchange_core::Batch;

fn last(batch: Batch) -> i32 {
    let values = batch.column(0).unwrap().values::<i32>().unwrap();
    drop(batch);
    values[0]
}

fn main() {
    let _ = last;
}
