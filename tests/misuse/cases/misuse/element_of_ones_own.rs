//! Only the core implements `Element`: a type of another crate cannot be an element type.

use devexchange_core::{DType, Element};

#[derive(Clone, Copy)]
struct Mine;

impl Element for Mine {
    const DTYPE: DType = DType::UINT8;
}

fn main() {}
