//! When the data is there is said before the tensor is shared, by who has it alone.

use devexchange_core::{Stream, Tensor};

fn late(tensor: &Tensor, stream: Stream) {
    // SAFETY: nothing is written.
    let _ = unsafe { tensor.produced_on(stream) };
}

fn main() {
    let _ = late;
}
