//! A `Deferred` borrows its manager, so it cannot outlive it.

use devexchange_core::manager::{Deferred, Manager};

fn begin(manager: Box<dyn Manager>) -> Deferred<'static> {
    Deferred::new(&*manager)
}

fn main() {
    let _ = begin;
}
