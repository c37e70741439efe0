//! One consumer gets the exported struct and calls its deleter once, so `into_raw` consumes the export.

use devexchange_core::abi::dlpack::DLManagedTensor;
use devexchange_core::dlpack::Owned;

fn both(exported: Owned<DLManagedTensor>) -> [*mut DLManagedTensor; 2] {
    [exported.into_raw(), exported.into_raw()]
}

fn main() {
    let _ = both;
}
