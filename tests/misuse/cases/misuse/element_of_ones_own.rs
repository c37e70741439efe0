//! Which types may be elements is not for others to say.

use devexchange_core::{DType, Element};

#[derive(Clone, Copy)]
struct Mine;

impl Element for Mine {
    const DTYPE: DType = DType::UINT8;
}

fn main() {}
