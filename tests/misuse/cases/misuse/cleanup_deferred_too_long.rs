//! Cleanup is deferred at most as long as there is a manager.

use devexchange_core::manager::{Deferred, Manager};

fn begin(manager: Box<dyn Manager>) -> Deferred<'static> {
    Deferred::new(&*manager)
}

fn main() {
    let _ = begin;
}
