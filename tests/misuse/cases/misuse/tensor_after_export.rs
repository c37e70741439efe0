//! What was moved into an export is the consumer's.

use devexchange_core::Tensor;
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::dlpack::{self, Request};

fn main() {
    let tensor = Tensor::from_vec(vec![1_i64], &[1]).unwrap();
    let exported = dlpack::export::<DLManagedTensorVersioned>(tensor, &Request::default());
    println!("{:?} {:?}", exported, tensor.shape());
}
