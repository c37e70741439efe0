//! What a server offers: its handle fills it in, and its thread looks there.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::changes::Changes;
use super::export::Exported;
use crate::fork::Process;
use crate::memory::{Slab, Sorted};

/// What the handle of a server and its thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) offers: Mutex<Sorted<String, Slab<Exported>>>,
    /// `None` where the system has no memory for it: importers ask each time then.
    pub(super) changes: Option<Changes>,
    pub(super) leases: AtomicI64,
    pub(super) closed: AtomicBool,
    /// Whether the address is in use, and when that changes.
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

    /// A fork has neither the thread nor the right to change what its parent offers; whoever had a lock may not be there.
    pub(super) fn is_of_parent(&self) -> bool {
        !self.process.is_here()
    }

    /// Before the call that changed the offers returns, so that nobody who knows of it imports what was there before.
    pub(super) fn count_change(&self) {
        self.changes.iter().for_each(Changes::count);
    }

    pub(super) fn offers(&self) -> MutexGuard<'_, Sorted<String, Slab<Exported>>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
