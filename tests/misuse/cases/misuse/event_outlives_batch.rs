//! A producer's event is valid only as long as its batch, so it can be neither cloned nor copied out of the batch.

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
