//! The correct form of some of the misuses: this program must compile and run.

use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::dlpack::{self, Request};
use devexchange_core::{Owner, Tensor};

fn main() {
    let tensor = Tensor::from_vec(vec![1.0_f32, 2.0], &[2]).unwrap();
    // The clone is moved into the export, so `tensor` stays usable.
    let exported = dlpack::export::<DLManagedTensorVersioned>(tensor.clone(), &Request::default()).unwrap();
    let consumer = std::thread::spawn(move || exported.import().unwrap());
    assert_eq!(tensor.as_slice::<f32>().unwrap(), [1.0, 2.0]);
    let imported = consumer.join().unwrap();
    drop(tensor);
    assert_eq!(imported.as_slice::<f32>().unwrap(), [1.0, 2.0]);

    let (sender, released) = std::sync::mpsc::channel();
    drop(Owner::on_release(move || sender.send(1).unwrap()));
    assert_eq!(released.recv(), Ok(1));
}
