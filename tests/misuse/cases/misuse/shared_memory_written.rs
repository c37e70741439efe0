//! Other holders of a tensor may read its elements at the same time, so `as_slice` gives no write access.

use devexchange_core::Tensor;

fn main() {
    let tensor = Tensor::from_vec(vec![1.0_f32], &[1]).unwrap();
    tensor.as_slice::<f32>().unwrap()[0] = 2.0;
}
