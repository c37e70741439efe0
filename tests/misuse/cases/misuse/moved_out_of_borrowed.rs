//! `Borrowed` gives access by reference only: the tensor behind it cannot be moved out.

use devexchange_core::{Borrowed, Tensor};

fn keep(borrowed: Borrowed<'_, Tensor>) -> Tensor {
    *borrowed
}

fn main() {
    let _ = keep;
}
