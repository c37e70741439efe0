//! Who looks at a thing through somebody else's reference cannot keep it.

use devexchange_core::{Borrowed, Tensor};

fn keep(borrowed: Borrowed<'_, Tensor>) -> Tensor {
    *borrowed
}

fn main() {
    let _ = keep;
}
