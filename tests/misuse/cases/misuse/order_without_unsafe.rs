//! Who waits for a stream believes that the data is there then.

use devexchange_core::{Stream, Tensor};

fn early(tensor: &mut Tensor, stream: Stream) {
    let _ = tensor.produced_on(stream);
}

fn main() {
    let _ = early;
}
