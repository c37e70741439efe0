//! When the data is there is said before the tensor is shared, by who has it alone.

use devexchange_core::Tensor;
use devexchange_core::runtime::cuda::Stream;

fn late(tensor: &Tensor, stream: Stream) {
    // SAFETY: nothing is written.
    let _ = unsafe { tensor.produced_on(stream) };
}

fn main() {
    let _ = late;
}
