//! The parts that the fuzz targets share: producers that count their releases, descriptions of trees with occasional errors,
//! and a consumer that does what a consumer may do.

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

/// Makes the library keep no freed blocks, so that the sanitizer reports every use of one. Called once in each process.
pub fn init() {
    // SAFETY: libFuzzer has not started another thread yet.
    unsafe { std::env::set_var("DEVEXCHANGE_KEEP_BLOCKS", "0") };
}

/// Returns true for `times` of `of` values that it takes from the input, and false once the input is used up.
///
/// # Errors
/// Those of [`Unstructured::int_in_range`].
pub fn chance(u: &mut Unstructured<'_>, times: u32, of: u32) -> arbitrary::Result<bool> {
    Ok(u.int_in_range(0..=of - 1)? >= of - times)
}

/// Runs one input, and checks that nothing is outstanding afterwards.
///
/// # Panics
/// If something is outstanding.
pub fn balanced<T>(run: impl FnOnce() -> T) -> T {
    let result = run();
    assert_eq!(ledger::outstanding(), 0, "something was not released: {:?}", ledger::read());
    result
}

/// Counts how often each of several things was released.
#[derive(Debug, Default)]
pub struct Releases(Vec<Arc<AtomicU32>>);

impl Releases {
    /// Adds a count of releases, which begins at 0.
    pub fn watch(&mut self) -> Arc<AtomicU32> {
        let count = Arc::new(AtomicU32::new(0));
        self.0.push(Arc::clone(&count));
        count
    }

    /// # Panics
    /// Unless each thing was released `times` times.
    pub fn require(&self, times: u32) {
        for (number, count) in self.0.iter().enumerate() {
            assert_eq!(count.load(SeqCst), times, "releases of thing {number} of {}", self.0.len());
        }
    }
}
