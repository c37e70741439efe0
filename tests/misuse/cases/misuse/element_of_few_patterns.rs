//! Not every byte is a `bool`, so the memory of others is never seen as such.

use devexchange_core::Tensor;

fn flags(tensor: &Tensor) -> &[bool] {
    tensor.as_slice::<bool>().unwrap()
}

fn main() {
    let _ = flags;
}
