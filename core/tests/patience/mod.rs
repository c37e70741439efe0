//! How long tests wait for others. The tests of other crates have this file, too.

use std::time::Duration;

/// This long, or as many times that as `DEVX_PATIENCE` says: for a machine that a sanitizer or others slow down.
///
/// # Panics
/// If that is no whole number.
pub(crate) fn patient(time: Duration) -> Duration {
    let factor = std::env::var("DEVX_PATIENCE").map_or(Ok(1), |factor| factor.parse());
    assert!(factor.is_ok(), "DEVX_PATIENCE is a whole number");
    time * factor.unwrap_or(1)
}
