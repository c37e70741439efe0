//! How often the offers of a server have changed: a number in memory that the exporter writes and its importers read. From it,
//! the holder of an import knows, without asking, that the import is still what is offered under its name.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

use super::memory::Mapping;
use crate::error::Result;
use crate::memory::Counted;

const BYTES: usize = size_of::<u64>();

/// The exporter's side.
#[derive(Debug)]
pub(super) struct Changes(Counted<Mapping>);

impl Changes {
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, `DEVX_SYSTEM`, also on a system that cannot prevent importers from writing the number.
    pub(super) fn new() -> Result<Self> {
        Mapping::written_here_only(BYTES).map(Self)
    }

    /// Counts a change that was made. An importer that reads the new number and then asks sees the change.
    pub(super) fn count(&self) {
        number(&self.0).fetch_add(1, Release);
    }
}

/// The file that importers get.
impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The importer's side.
#[derive(Debug)]
pub(super) struct Watched(Counted<Mapping>);

impl Watched {
    /// # Errors
    /// Same as [`Mapping::open`].
    pub(super) fn open(fd: OwnedFd) -> Result<Self> {
        Mapping::open(fd, BYTES as u64, false).map(Self)
    }

    /// Returns how often the offers have changed.
    pub(super) fn read(&self) -> u64 {
        // In memory that cannot be written, only relaxed loads are certain to be plain loads.
        let number = number(&self.0).load(Relaxed);
        fence(Acquire);
        number
    }
}

fn number(mapping: &Mapping) -> &AtomicU64 {
    // SAFETY: the mapping has the size of the number, begins at a page, and stays as long as the reference. Every process uses
    // it only as an atomic number, and readers only load it.
    unsafe { AtomicU64::from_ptr(mapping.address().cast()) }
}
