//! A slice of the elements borrows the tensor, so it cannot outlive it.

use devexchange_core::Tensor;

fn main() {
    let tensor = Tensor::from_vec(vec![1.0_f32, 2.0], &[2]).unwrap();
    let values = tensor.as_slice::<f32>().unwrap();
    drop(tensor);
    println!("{values:?}");
}
