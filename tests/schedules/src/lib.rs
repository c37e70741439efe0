//! The parts of the core that threads share, and one of the Java binding, built from their own files with the atomics and
//! locks of loom instead of those of std. Each test is a small model of how threads use a part; loom runs it in every order
//! that its memory model allows.

#![cfg(test)]

mod alone;
mod bell;
mod counted;
mod inbox;
mod kept;
mod lazy;
mod linger;
mod list;
mod parts;
mod queue;
mod slab;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use devexchange_core::{abi, trace};

/// A point that threads can pass in either order, which orders nothing else. loom branches only at the last operation on an
/// atomic: if a thread changes an atomic after a load of it, loom does not try another thread's load between the two.
fn meet(point: &sync::atomic::AtomicU32) {
    point.fetch_add(1, sync::atomic::Ordering::Relaxed);
}

/// Runs a model in every order of its threads. Fails if there is only one order.
fn in_every_order(model: impl Fn() + Send + Sync + 'static) {
    run(loom::model::Builder::new(), model);
}

/// Like [`in_every_order`], for a model with too many orders: runs the orders with at most `interruptions` switches between
/// threads besides those where a thread waits.
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

/// The counterpart of `core/src/error.rs`, whose macro is not exported from its crate.
mod error {
    pub(crate) use devexchange_core::error::{Refused, Result, caught};

    macro_rules! refuse {
        ($status:ident, $($text:tt)*) => {
            Err(devexchange_core::Error::new(devexchange_core::abi::types::$status, format!($($text)*)))
        };
    }
    pub(crate) use refuse;
}
