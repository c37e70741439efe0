//! The releases that wait for work; the reaper looks after them.

use std::sync::atomic::AtomicI64;
use std::sync::{Condvar, Mutex};

use super::driver::Driver;
use super::event::Event;
use super::inbox::{Inbox, New};
use super::lost::Held;
use crate::stream::Stream;

/// A release that waits, and what it waits for.
pub(super) struct Pending {
    pub(super) events: Vec<Event>,
    /// The release also waits until this stream is no longer being captured.
    pub(super) capturing: Option<Stream>,
    pub(super) held: Held,
    pub(super) failures: u32,
}

pub(super) static INBOX: Inbox<Pending> =
    Inbox { new: Mutex::new(New::NONE), arrived: Condvar::new(), settled: Condvar::new(), waiting: AtomicI64::new(0) };

/// The number of releases that wait for work, including those being called. A caller that gets 0 sees what earlier
/// ones have done. In a child of `fork` it is 0, because releases that wait are left to the parent.
#[inline]
pub fn releases_waiting() -> i64 {
    if Driver::loaded().is_some() { INBOX.waiting() } else { 0 }
}

/// A mark after all releases that wait now; see [`is_past`].
pub(crate) fn mark() -> u64 {
    INBOX.mark()
}

/// Whether all releases from before a mark are done, and those that they have caused.
pub(crate) fn is_past(mark: u64) -> bool {
    releases_waiting() == 0 || INBOX.is_past(mark)
}
