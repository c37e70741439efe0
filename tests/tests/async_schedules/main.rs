//! Asynchronous streams in many schedules: a seed decides what each side does next, even from within the callbacks of
//! the other side, whether it keeps the contract, and where it stops.
//!
//! A failure prints its seed; `DEVX_ASYNC_SEED=<seed>` runs only that one, `DEVX_ASYNC_SCHEDULES=<n>` sets the number
//! of schedules in each test.
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "a test plays the part of a foreign program")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

/// An enum, and a list of all its values.
macro_rules! listed {
    ($(#[$about:meta])* enum $name:ident in $all:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$about])*
        pub(crate) enum $name {
            $($(#[$doc])* $variant,)*
        }

        pub(crate) const $all: &[$name] = &[$($name::$variant),*];
    };
}

mod batches;
mod both;
mod consumer;
mod producer;
mod reader;
mod wake;
mod writer;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use devexchange_core::ledger;
use devexchange_tests::patient;

/// The number of schedules in each test.
const SCHEDULES: u64 = 50_000;
/// A schedule takes microseconds; one that takes this long hangs.
const HANGS: Duration = Duration::from_secs(30);

/// The maximum number of steps of a schedule: more than any active peer needs.
const STEPS: usize = 400;

/// A pseudo-random sequence determined by a seed (splitmix64).
pub(crate) struct Rng(std::cell::Cell<u64>);

impl Rng {
    /// Makes the sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(std::cell::Cell::new(seed))
    }

    fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut z = self.0.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `n` − 1.
    pub(crate) fn below(&self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of these values.
    pub(crate) fn choose<T: Copy>(&self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// The ledger belongs to the process, so one schedule runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn explore(name: &str, schedule: impl Fn(u64)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let number = |variable: &str| std::env::var(variable).ok().map(|text| text.parse::<u64>().unwrap());
    let only = number("DEVX_ASYNC_SEED");
    let count = number("DEVX_ASYNC_SCHEDULES").unwrap_or(SCHEDULES);
    let current = Arc::new(std::sync::atomic::AtomicU64::new(0));
    // Printed by a hook, because a panic in a callback ends the process.
    let (told, hook) = ((Arc::clone(&current), name.to_owned()), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        hook(panic);
        eprintln!("{}: run again with DEVX_ASYNC_SEED={}", told.1, told.0.load(SeqCst));
    }));
    let over = Arc::new(AtomicBool::new(false));
    let watched = (Arc::clone(&current), Arc::clone(&over), name.to_owned());
    let watchdog = std::thread::spawn(move || {
        let (current, over, name) = watched;
        let (mut seen, mut since) = (u64::MAX, Instant::now());
        while !over.load(SeqCst) {
            std::thread::park_timeout(Duration::from_millis(200));
            if current.load(SeqCst) != seen {
                (seen, since) = (current.load(SeqCst), Instant::now());
            } else if since.elapsed() > patient(HANGS) {
                eprintln!("{name}: the schedule of DEVX_ASYNC_SEED={seen} hangs");
                std::process::abort();
            }
        }
    });
    let begun = Instant::now();
    let seeds = only.map_or(0..count, |seed| seed..seed + 1);
    let ran = seeds.end - seeds.start;
    for seed in seeds {
        current.store(seed, SeqCst);
        schedule(seed);
        assert_eq!(ledger::outstanding(), 0, "{:?}", ledger::read());
    }
    over.store(true, SeqCst);
    watchdog.thread().unpark();
    watchdog.join().unwrap();
    drop(std::panic::take_hook());
    println!("{name}: {ran} schedules in {:.2?}", begun.elapsed());
}
