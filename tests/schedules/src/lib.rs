//! The lock-free parts of the core, built from their own files with the atomics and locks of loom instead of those of
//! std. The tests below run small models of how threads use them, in every order that the memory model allows.

#![cfg(test)]

mod alone;
mod bell;
mod counted;
mod inbox;
mod kept;
mod lazy;
mod list;
mod parts;
mod queue;
mod slab;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use devexchange_core::{abi, trace};

/// A point at which threads can meet in either order, without learning anything of each other. loom looks for such
/// points only at the last operation on an atomic: if a thread follows a load by a change, loom does not see that
/// another thread's load could come in between.
fn meet(point: &sync::atomic::AtomicU32) {
    point.fetch_add(1, sync::atomic::Ordering::Relaxed);
}

/// Runs a model in every order of its threads; there must be several orders.
fn in_every_order(model: impl Fn() + Send + Sync + 'static) {
    run(loom::model::Builder::new(), model);
}

/// Like [`in_every_order`], for a model with too many orders: runs those in which threads are interrupted at most this
/// often, apart from the points where they wait.
fn in_orders_with(interruptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    run(builder, model);
}

fn run(builder: loom::model::Builder, model: impl Fn() + Send + Sync + 'static) {
    let orders = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&orders);
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        model();
    });
    let orders = orders.load(Relaxed);
    println!("{orders} orders");
    assert!(orders > 1, "the threads never meet");
}

/// The counterpart of `core/src/sync.rs`.
mod sync {
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};

    pub(crate) fn with_mut<T, R>(pointer: &mut atomic::AtomicPtr<T>, look: impl FnOnce(&mut *mut T) -> R) -> R {
        pointer.with_mut(look)
    }
}

/// The counterpart of `core/src/error.rs`, whose macro stays in its crate.
mod error {
    pub(crate) use devexchange_core::error::{Refused, Result, caught};

    macro_rules! refuse {
        ($status:ident, $($text:tt)*) => {
            Err(devexchange_core::Error::new(devexchange_core::abi::types::$status, format!($($text)*)))
        };
    }
    pub(crate) use refuse;
}
