//! A release comes on any thread, so what it gives up must be able to go there.

use std::rc::Rc;

use devexchange_core::Owner;

fn main() {
    Owner::new(Rc::new(1));
}
