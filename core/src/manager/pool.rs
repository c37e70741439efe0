//! A manager of device memory from its own pools, in the order of streams.

use core::ffi::c_void;

use super::books::{Books, Statistics};
use super::{Allocated, HostFlags, Manager, MemoryInfo, Request, driver_info, no_such_kind, pinned};
use crate::abi::types::DEVX_OUT_OF_MEMORY;
use crate::device::DeviceType;
use crate::error::Result;
use crate::fork::Lock;
use crate::memory::{Owner, Slab, Sorted, TailSize};
use crate::order::Ready;
use crate::runtime::cuda::{Allocation, MemoryPool, require_device};
use crate::stream::Stream;

/// How much a pool may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Most bytes in use at a time, over all devices.
    pub limit: usize,
    /// The unused bytes that each device's pool keeps, instead of giving them back to the driver, when a stream is
    /// synchronised.
    pub keep: u64,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { limit: usize::MAX, keep: u64::MAX }
    }
}

/// A manager with a stream-ordered pool for each device, made at its first use. Freed memory is ready at once for
/// allocations on the same stream, and on others when the driver sees that it is free. Besides device memory, it has only
/// pinned memory.
///
/// Without a stream, device memory is given in the order of the legacy default stream. If there is no memory, the manager
/// gives back everything that waits for that, waits for the stream, trims the pool, and tries once more.
#[derive(Debug)]
pub struct Pool {
    options: PoolOptions,
    shareable: bool,
    pools: Lock<Sorted<i32, Slab<MemoryPool>>>,
    books: Books,
}

impl Pool {
    /// A manager without memory yet.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn new(options: PoolOptions) -> Result<Self> {
        Ok(Self { options, shareable: false, pools: Lock::default(), books: Books::with_limit(options.limit)? })
    }

    /// Like [`Pool::new`], but with memory that can be shared with other processes ([`crate::ipc`]).
    ///
    /// # Errors
    /// Same as [`Pool::new`].
    pub fn shareable(options: PoolOptions) -> Result<Self> {
        Ok(Self { shareable: true, ..Self::new(options)? })
    }

    fn of(&self, ordinal: i32) -> Result<Slab<MemoryPool>> {
        if let Some(pool) = self.existing(ordinal) {
            return Ok(pool);
        }
        let make = if self.shareable { MemoryPool::shareable } else { MemoryPool::new };
        // Made without the lock, because the driver takes its time. It is dropped if another thread was first.
        let made = Slab::room(TailSize::default())?.fill(make(ordinal, self.options.keep)?);
        let mut pools = self.pools.lock();
        let pool = match pools.get(&ordinal) {
            Some(first) => first.clone(),
            None => {
                pools.room()?.insert(ordinal, made.clone());
                made.clone()
            }
        };
        drop(pools);
        Ok(pool)
    }

    fn existing(&self, ordinal: i32) -> Option<Slab<MemoryPool>> {
        self.pools.lock().get(&ordinal).cloned()
    }

    /// Bytes that a device's pool holds, in use or not.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn reserved(&self, ordinal: i32) -> Result<u64> {
        self.existing(ordinal).map_or(Ok(0), |pool| pool.header().reserved())
    }

    fn device_memory(&self, ordinal: i32, bytes: usize, stream: Option<Stream>) -> Result<Allocated> {
        let pool = self.of(ordinal)?;
        let pool = pool.header();
        let stream = match stream {
            Some(stream) => stream,
            None => Stream::legacy(ordinal),
        };
        let ready = Ready::queued(stream)?;
        let first = Allocation::of_pool(pool, stream, bytes);
        let made = match first {
            Err(error) if error.status() == DEVX_OUT_OF_MEMORY => {
                self.books.flush();
                stream.synchronize()?;
                pool.trim(0)?;
                Allocation::of_pool(pool, stream, bytes)
            }
            made => made,
        }?;
        let Allocation { address, device, owner } = made;
        Ok(Allocated { address, device, bytes, owner, ready })
    }
}

// SAFETY: the memory is new, from the driver, and its owner gives it back.
unsafe impl Manager for Pool {
    fn initialize(&self, ordinal: i32) -> Result<()> {
        require_device(ordinal)?;
        self.of(ordinal).map(drop)
    }

    fn allocate(&self, request: &Request) -> Result<Allocated> {
        let Request { kind, ordinal, bytes, stream, host } = *request;
        match kind {
            DeviceType::CUDA => self.books.enter(ordinal, bytes, || self.device_memory(ordinal, bytes, stream)),
            DeviceType::CUDA_HOST => {
                self.books.enter(ordinal, bytes, || self.books.insist(|| pinned(ordinal, bytes, host)))
            }
            other => no_such_kind("pool", other),
        }
    }

    unsafe fn pin(&self, ordinal: i32, address: *mut c_void, bytes: usize, flags: HostFlags) -> Result<Owner> {
        // SAFETY: the caller's contract.
        unsafe { self.books.pin(ordinal, address, bytes, flags) }
    }

    fn memory_info(&self, ordinal: i32) -> Result<MemoryInfo> {
        let mut info = driver_info(ordinal)?;
        if let Some(pool) = self.existing(ordinal) {
            // Unused memory of the pool can be allocated, too.
            let pool = pool.header();
            let unused = pool.reserved()?.saturating_sub(pool.used()?);
            info.free = info.total.min(info.free + unused as usize);
        }
        Ok(self.books.within_limit(info))
    }

    unsafe fn reset(&self, ordinal: i32) -> Result<()> {
        self.books.reset(ordinal);
        let pool = self.pools.lock().remove(&ordinal);
        // The pool is destroyed when its last allocation is given back.
        drop(pool);
        Ok(())
    }

    fn defer_cleanup(&self) {
        self.books.defer();
    }

    fn resume_cleanup(&self) -> Result<()> {
        self.books.resume()
    }

    fn trim(&self, ordinal: i32, keep: usize) -> Result<()> {
        self.books.flush();
        self.existing(ordinal).map_or(Ok(()), |pool| pool.header().trim(keep))
    }

    fn statistics(&self) -> Statistics {
        self.books.statistics()
    }
}
