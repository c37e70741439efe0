//! Not every byte is a valid `bool`, so the memory of a tensor cannot be read as `bool` elements.

use devexchange_core::Tensor;

fn flags(tensor: &Tensor) -> &[bool] {
    tensor.as_slice::<bool>().unwrap()
}

fn main() {
    let _ = flags;
}
