//! `produced_on` needs exclusive access, so it must come before the tensor is shared.

use devexchange_core::{Stream, Tensor};

fn late(tensor: &Tensor, stream: Stream) {
    // SAFETY: no queued work writes the data.
    let _ = unsafe { tensor.produced_on(stream) };
}

fn main() {
    let _ = late;
}
