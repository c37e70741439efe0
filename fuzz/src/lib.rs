//! What the fuzz targets share: producers that count their releases, descriptions of trees that are nearly right, and a
//! consumer that does everything a consumer may do.

pub mod array;
pub mod consumer;
pub mod field;
pub mod oracle;
pub mod producer;
pub mod tensor;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use arbitrary::Unstructured;
use devexchange_core::ledger;

/// Once in each process: no block is kept, so that the sanitizer sees every use of one that was given back.
pub fn init() {
    // SAFETY: libFuzzer has no other thread yet.
    unsafe { std::env::set_var("DEVEXCHANGE_KEEP_BLOCKS", "0") };
}

/// Whether something happens that does so many times of so many; never when the input is used up.
///
/// # Errors
/// As all that takes from the input.
pub fn chance(u: &mut Unstructured<'_>, times: u32, of: u32) -> arbitrary::Result<bool> {
    Ok(u.int_in_range(0..=of - 1)? >= of - times)
}

/// Runs one input, after which nothing may be outstanding.
///
/// # Panics
/// If something is.
pub fn balanced<T>(run: impl FnOnce() -> T) -> T {
    let result = run();
    assert_eq!(ledger::outstanding(), 0, "something was not released: {:?}", ledger::read());
    result
}

/// How often each of several things was released.
#[derive(Debug, Default)]
pub struct Releases(Vec<Arc<AtomicU32>>);

impl Releases {
    /// Counts one thing more, from 0.
    pub fn watch(&mut self) -> Arc<AtomicU32> {
        let count = Arc::new(AtomicU32::new(0));
        self.0.push(Arc::clone(&count));
        count
    }

    /// # Panics
    /// Unless each thing was released so often.
    pub fn require(&self, times: u32) {
        for (number, count) in self.0.iter().enumerate() {
            assert_eq!(count.load(SeqCst), times, "releases of thing {number} of {}", self.0.len());
        }
    }
}
