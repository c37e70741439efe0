//! Consumers trust that the data is ready after the producer's stream, so `produced_on` needs `unsafe`.

use devexchange_core::{Stream, Tensor};

fn early(tensor: &mut Tensor, stream: Stream) {
    let _ = tensor.produced_on(stream);
}

fn main() {
    let _ = early;
}
