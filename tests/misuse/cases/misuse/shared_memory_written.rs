//! The elements of a tensor may be read by others at the same time: nothing writes them through it.

use devexchange_core::Tensor;

fn main() {
    let tensor = Tensor::from_vec(vec![1.0_f32], &[1]).unwrap();
    tensor.as_slice::<f32>().unwrap()[0] = 2.0;
}
