//! Who looks at a thing through somebody else's reference cannot put another one in its place.

use devexchange_core::{Borrowed, Tensor};

#[expect(unused_mut, reason = "it is not enough")]
fn keep(mut borrowed: Borrowed<'_, Tensor>, other: Tensor) -> Tensor {
    std::mem::replace(&mut *borrowed, other)
}

fn main() {
    let _ = keep;
}
