//! A manager that only counts and limits what another one gives.

use core::ffi::c_void;

use super::books::{Books, Statistics};
use super::depth::Depth;
use super::{Allocated, HostFlags, IpcHandle, Manager, MemoryInfo, Request, Shared};
use crate::error::{Result, refuse};
use crate::memory::Owner;
use crate::trace;

/// The most managers in a stack of managers: each calls the next one, all on one call stack.
const MAX_LEVELS: usize = 64;

/// A manager that lets another one allocate, up to a limit of bytes in use at a time, over all devices. Memory ceases to count
/// when it is given up; the other manager may give it back later, such as one in Java, which only queues its release. Cleanup
/// that this one defers is deferred in the other one, until it resumes it or is dropped.
#[derive(Debug)]
pub struct Limited {
    inner: Shared,
    books: Books,
    /// The deferrals of this manager among those of the other one.
    deferred: Depth,
}

impl Limited {
    /// Allows at most `limit` bytes in use; with `usize::MAX` the manager only counts.
    ///
    /// # Errors
    /// `DEVX_TOO_DEEP` for more than 64 managers in a stack, `DEVX_OUT_OF_MEMORY`.
    pub fn new(inner: Shared, limit: usize) -> Result<Self> {
        let levels = inner.levels();
        if levels >= MAX_LEVELS {
            return refuse!(
                DEVX_TOO_DEEP,
                "inner is a chain of {levels} managers: there may be at most {MAX_LEVELS} in all"
            );
        }
        Ok(Self { inner, books: Books::with_limit(limit)?, deferred: Depth::default() })
    }
}

// SAFETY: the memory of the other manager is handed on unchanged.
unsafe impl Manager for Limited {
    fn initialize(&self, ordinal: i32) -> Result<()> {
        self.inner.initialize(ordinal)
    }

    fn allocate(&self, request: &Request) -> Result<Allocated> {
        self.books.enter(request.ordinal, request.bytes, || self.inner.allocate(request))
    }

    unsafe fn pin(&self, ordinal: i32, address: *mut c_void, bytes: usize, flags: HostFlags) -> Result<Owner> {
        // SAFETY: the caller's contract.
        unsafe { self.inner.pin(ordinal, address, bytes, flags) }
    }

    fn memory_info(&self, ordinal: i32) -> Result<MemoryInfo> {
        self.inner.memory_info(ordinal).map(|info| self.books.within_limit(info))
    }

    fn ipc_handle(&self, address: *const c_void) -> Result<IpcHandle> {
        self.inner.ipc_handle(address)
    }

    unsafe fn reset(&self, ordinal: i32) -> Result<()> {
        self.books.reset(ordinal);
        // SAFETY: the caller's contract, which covers both managers.
        unsafe { self.inner.reset(ordinal) }
    }

    fn defer_cleanup(&self) {
        // Not as one who shares the manager, who then could end the deferral.
        (*self.inner).defer_cleanup();
        self.deferred.begin();
    }

    fn resume_cleanup(&self) -> Result<()> {
        self.deferred.end()?;
        (*self.inner).resume_cleanup()
    }

    fn trim(&self, ordinal: i32, keep: usize) -> Result<()> {
        self.inner.trim(ordinal, keep)
    }

    fn statistics(&self) -> Statistics {
        self.books.statistics()
    }

    fn levels(&self) -> usize {
        self.inner.levels().saturating_add(1)
    }
}

/// Nobody else could end the deferrals that are left.
impl Drop for Limited {
    fn drop(&mut self) {
        for _ in 0..self.deferred.get_mut() {
            if let Err(error) = (*self.inner).resume_cleanup() {
                trace::say(format_args!("{error}"));
            }
        }
    }
}
