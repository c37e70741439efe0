//! Callbacks that fail: the nth one of a producer or a consumer of this library.
//!
//! The callbacks and their answers are in `stream`, `asynchronous` and `consumer`; this module decides whose turn it
//! is. The callbacks can come on any thread, so all of this is for the whole process.

use core::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use devexchange_core::abi::types::{DEVX_CALLBACK, DEVX_INVALID_CHILDREN, DEVX_INVALID_LENGTH, DevxStatus};

/// The code of a callback that fails.
pub(crate) const CODE: c_int = libc::EIO;
/// The text of a callback that gives a reason.
pub(crate) const TEXT: &str = "as asked";
/// A number that is wrong for every field.
pub(crate) const WRONG: i32 = -77;

/// How a callback fails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// With a code.
    Code,
    /// With a code and, where there is a place for it, a text.
    Text,
    /// It succeeds, but gives or requests something wrong.
    Wrong,
    /// It succeeds, but calls `cancel` within; only a consumer does this.
    Cancel,
}

/// The error that the final consumer must get.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// The status of the error.
    pub status: DevxStatus,
    /// A part of its text.
    pub says: &'static str,
}

struct Armed {
    /// How many callbacks still succeed; negative if none is to fail.
    left: i64,
    how: How,
    told: Option<Told>,
}

static ARMED: Mutex<Armed> = Mutex::new(Armed { left: -1, how: How::Code, told: None });

fn armed() -> MutexGuard<'static, Armed> {
    ARMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the `nth` callback from now on fail (1: the next one): with a code (0), with a text, too (1), by giving or
/// requesting something wrong (2), or by cancelling (3).
///
/// # Panics
/// If there is no such way.
pub fn arm(nth: i64, how: c_int) {
    let how = [How::Code, How::Text, How::Wrong, How::Cancel].get(how as usize).copied().expect("a way to fail");
    *armed() = Armed { left: nth - 1, how, told: None };
}

/// Lets no more callbacks fail. Returns the error that must result from the one that failed.
pub fn disarm() -> Option<Told> {
    let mut armed = armed();
    armed.left = -1;
    armed.told
}

/// Whether this callback is the one that fails, and how.
pub(crate) fn turn() -> Option<How> {
    let mut armed = armed();
    let is_its = armed.left == 0;
    armed.left = (armed.left - 1).max(-1);
    is_its.then_some(armed.how)
}

/// Records the error that must result from the failure.
pub(crate) fn is_told(status: DevxStatus, says: &'static str) {
    armed().told = Some(Told { status, says });
}

/// Like [`is_told`], with [`CODE`].
pub(crate) fn code_is_told(how: How, without_text: &'static str) {
    is_told(DEVX_CALLBACK, if how == How::Text { TEXT } else { without_text });
}

/// The edit of an array that makes it wrong.
pub(crate) fn wrong_array() -> String {
    is_told(DEVX_INVALID_LENGTH, "length is -77");
    format!("length = {WRONG}")
}

/// The edit of a schema that makes it wrong.
pub(crate) fn wrong_schema() -> String {
    is_told(DEVX_INVALID_CHILDREN, "n_children is -77");
    format!("n_children = {WRONG}")
}
