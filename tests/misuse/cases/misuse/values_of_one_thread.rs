//! Shared values may be dropped on any thread.

use std::rc::Rc;

use devexchange_core::Tensor;

fn main() {
    let values: Rc<[f32]> = Rc::new([1.0, 2.0]);
    let _ = Tensor::from_shared(values, &[2]);
}
