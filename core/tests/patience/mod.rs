//! How long tests wait for others. The tests of other crates use this file, too.

use std::time::Duration;

/// This time, multiplied by `DEVX_PATIENCE` if that is set: for a machine that a sanitizer or other work slows down.
///
/// # Panics
/// If that is no whole number.
pub(crate) fn patient(time: Duration) -> Duration {
    let factor = std::env::var("DEVX_PATIENCE").map_or(Ok(1), |factor| factor.parse());
    assert!(factor.is_ok(), "DEVX_PATIENCE is a whole number");
    time * factor.unwrap_or(1)
}
