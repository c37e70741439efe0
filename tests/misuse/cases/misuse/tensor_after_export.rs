//! A tensor that was moved into an export belongs to the consumer: the producer cannot use it any more.

use devexchange_core::Tensor;
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::dlpack::{self, Request};

fn main() {
    let tensor = Tensor::from_vec(vec![1_i64], &[1]).unwrap();
    let exported = dlpack::export::<DLManagedTensorVersioned>(tensor, &Request::default());
    println!("{:?} {:?}", exported, tensor.shape());
}
