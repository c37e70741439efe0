//! The releases that wait for work, which the reaper sees to.

use std::sync::atomic::AtomicI64;
use std::sync::{Condvar, Mutex};

use super::event::Event;
use super::inbox::{Inbox, New};
use super::lost::Held;
use crate::stream::Stream;

/// A release that waits, and for what.
pub(super) struct Pending {
    pub(super) events: Vec<Event>,
    /// Not before this stream is no longer being captured.
    pub(super) capturing: Option<Stream>,
    pub(super) held: Held,
    pub(super) failures: u32,
}

pub(super) static INBOX: Inbox<Pending> =
    Inbox { new: Mutex::new(New::NONE), arrived: Condvar::new(), settled: Condvar::new(), waiting: AtomicI64::new(0) };

/// Releases that wait for work, those being called included. Who sees none sees what those before have done.
#[inline]
pub fn releases_waiting() -> i64 {
    INBOX.waiting()
}

/// A mark after all releases that wait now.
pub(crate) fn mark() -> u64 {
    INBOX.mark()
}

/// Whether no release from before a mark waits any more, nor one that such a release has brought about.
pub(crate) fn is_past(mark: u64) -> bool {
    releases_waiting() == 0 || INBOX.is_past(mark)
}
