//! The offers of a server: its handle changes them, its thread reads them.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::changes::Changes;
use super::export::Exported;
use crate::fork::Process;
use crate::memory::{Slab, Sorted};

/// What a server's handle and its thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) offers: Mutex<Sorted<String, Slab<Exported>>>,
    /// `None` where the system cannot provide such memory; importers then ask each time.
    pub(super) changes: Option<Changes>,
    pub(super) leases: AtomicI64,
    pub(super) closed: AtomicBool,
    /// Whether the address is in use; `changed` is notified when that changes.
    pub(super) listening: Mutex<bool>,
    pub(super) changed: Condvar,
    pub(super) wake: OwnedFd,
    pub(super) process: Process,
}

impl Shared {
    pub(super) fn new(wake: OwnedFd) -> Self {
        Self {
            offers: Mutex::default(),
            changes: Changes::new().ok(),
            leases: AtomicI64::new(0),
            closed: AtomicBool::new(false),
            listening: Mutex::new(true),
            changed: Condvar::new(),
            wake,
            process: Process::here(),
        }
    }

    /// Whether this process is a fork of the server's. A fork has neither the thread nor the right to change its parent's
    /// offers, and a lock can be held by a thread that does not exist in the fork.
    pub(super) fn is_of_parent(&self) -> bool {
        !self.process.is_here()
    }

    /// Counts a change of the offers. Called before the call that made the change returns, so that nobody who knows of the
    /// change imports the old offer.
    pub(super) fn count_change(&self) {
        self.changes.iter().for_each(Changes::count);
    }

    pub(super) fn offers(&self) -> MutexGuard<'_, Sorted<String, Slab<Exported>>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
