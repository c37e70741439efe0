//! `Borrowed` gives access by shared reference only: the tensor behind it cannot be replaced.

use devexchange_core::{Borrowed, Tensor};

#[expect(unused_mut, reason = "it is not enough")]
fn keep(mut borrowed: Borrowed<'_, Tensor>, other: Tensor) -> Tensor {
    std::mem::replace(&mut *borrowed, other)
}

fn main() {
    let _ = keep;
}
