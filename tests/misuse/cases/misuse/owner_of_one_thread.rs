//! An owner may be released on any thread, so the value that it drops must be `Send`.

use std::rc::Rc;

use devexchange_core::Owner;

fn main() {
    Owner::new(Rc::new(1));
}
