//! Functions that trust an address, write to memory, destroy a stream or reset a manager need `unsafe`.

use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::manager::Manager;
use devexchange_core::{Batch, Owner, Schema, Stream, Tensor, TensorDesc, dlpack};

fn import(managed: *mut DLManagedTensorVersioned, schema: &Schema, desc: &TensorDesc<'_>, stream: Stream) {
    let _ = dlpack::import(managed);
    let _ = Batch::import(std::ptr::null_mut(), schema);
    let tensor = Tensor::from_raw_parts(desc, Owner::none()).unwrap();
    let _ = tensor.write(&[1], Some(stream));
    let _ = stream.destroy();
}

fn end(manager: &dyn Manager) {
    let _ = manager.reset(0);
}

fn main() {
    let _ = (import, end);
}
