//! The event of a producer is looked at as long as there is the batch that it came with.

use devexchange_core::Batch;
use devexchange_core::order::Ready;

fn clone(batch: Batch) -> Ready {
    batch.ready().clone()
}

fn copy(batch: Batch) -> Option<Ready> {
    match batch.ready() {
        Ready::Foreign(event) => Some(Ready::Foreign(*event)),
        _ => None,
    }
}

fn main() {
    let _ = (clone, copy);
}
