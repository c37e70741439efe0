//! Keeps panics inside the functions that others call.

use devexchange_core::error::caught;

/// Runs the body of a function and turns a panic into `otherwise`.
pub(crate) fn guard<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    caught(|| Ok(body())).unwrap_or(otherwise)
}
