//! Memory managers on CUDA: what they give, count, limit and take back, on every schedule and with every fault.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests reset what nobody uses but they")]

mod deferred;
mod memory;
mod own;
mod reset;
mod shortage;

use devexchange_core::Result;
use devexchange_core::manager::{Driver, Limited, Manager, Pool, PoolOptions, Shared};
use devexchange_tests::sim::Session;

const N: usize = 4096;
const SEEDS: u64 = 50;

fn shared(manager: Result<impl Manager + 'static>) -> Shared {
    manager.and_then(Shared::new).expect("room for a manager")
}

fn all() -> Vec<(&'static str, Shared)> {
    let pool = shared(Pool::new(PoolOptions::default()));
    vec![
        ("driver", shared(Driver::new())),
        ("managed", shared(Driver::managed())),
        ("pool", pool.clone()),
        ("limited", shared(Limited::new(pool, 1 << 30))),
    ]
}

/// Accepts what the managers keep for themselves, because a pool lives as long as its manager.
fn each(session: &Session, seeds: u64, mut scenario: impl FnMut(&str, &Shared)) {
    for (name, manager) in all() {
        session.each(seeds, || {
            scenario(name, &manager);
            unsafe { manager.reset(0) }.expect("reset");
        });
    }
}
