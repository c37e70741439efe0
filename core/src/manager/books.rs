//! The books of a manager: they count and limit what it has given out, and give it back exactly once, now or later.

use core::ffi::c_void;
use std::collections::HashMap;

use super::depth::not_deferred;
use super::{Allocated, HostFlags, MemoryInfo};
use crate::abi::types::DEVX_OUT_OF_MEMORY;
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result, caught, refuse};
use crate::fork::{Lock, Locked};
use crate::memory::{Owner, Slab, TailSize, Vacant};
use crate::order::Ready;
use crate::runtime::cuda::allocation::pin_host;
use crate::runtime::cuda::before_reset;

/// Counts of what was allocated and given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes in use now.
    pub bytes: usize,
    /// Most bytes that were in use at a time.
    pub peak_bytes: usize,
    /// Allocations in use now.
    pub allocations: usize,
    /// Allocations since the beginning.
    pub total_allocations: u64,
    /// Bytes allocated since the beginning.
    pub total_bytes: u64,
    /// Requests that were refused because there was not enough memory.
    pub refused: u64,
}

/// The books of one manager. Memory holds them, and so can outlive the manager.
#[derive(Clone, Debug)]
pub(super) struct Books(Slab<Lock<State>>);

#[derive(Debug, Default)]
struct State {
    live: HashMap<u64, Live>,
    next: u64,
    /// How often cleanup was deferred.
    depth: usize,
    /// The last allocation that is given back later; each one names the one before it.
    later: Option<u64>,
    limit: Option<usize>,
    /// Bytes of requests that are not answered yet.
    asked: usize,
    statistics: Statistics,
}

#[derive(Debug)]
struct Live {
    /// The device that the memory goes with; none for plain host memory.
    ordinal: Option<i32>,
    bytes: usize,
    owner: Owner,
    /// Whether giving it back may wait for the end of a deferral.
    may_wait: bool,
    /// Its user has given the memory up, or it was reset: it only waits to be given back.
    is_over: bool,
    /// The allocation that waited before this one.
    before: Option<u64>,
}

impl Live {
    /// Counts the allocation as no longer in use.
    fn end(&mut self, statistics: &mut Statistics) {
        self.is_over = true;
        statistics.bytes -= self.bytes;
        statistics.allocations -= 1;
    }
}

impl State {
    /// Takes out one of the allocations that are given back later.
    fn take(&mut self) -> Option<Owner> {
        let Live { owner, before, .. } = self.live.remove(&self.later?)?;
        self.later = before;
        Some(owner)
    }
}

impl Books {
    /// Books without a limit.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(Slab::new(Lock::new(State::default()), TailSize::default())?))
    }

    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(super) fn with_limit(limit: usize) -> Result<Self> {
        let books = Self::new()?;
        books.lock().limit = Some(limit);
        Ok(books)
    }

    fn lock(&self) -> Locked<'_, State> {
        self.0.header().lock()
    }

    pub(super) fn statistics(&self) -> Statistics {
        self.lock().statistics
    }

    /// The part of a device's memory that the limit leaves.
    pub(super) fn within_limit(&self, info: MemoryInfo) -> MemoryInfo {
        let books = self.lock();
        let limit = books.limit.unwrap_or(usize::MAX);
        let left = limit.saturating_sub(books.statistics.bytes);
        MemoryInfo { free: info.free.min(left), total: info.total.min(limit) }
    }

    /// Runs `allocate` within the limit, and enters what it returns. The bytes count before it runs, so that two threads cannot
    /// exceed the limit together.
    pub(super) fn enter(
        &self,
        ordinal: i32,
        bytes: usize,
        allocate: impl FnOnce() -> Result<Allocated>,
    ) -> Result<Allocated> {
        self.enter_as(true, ordinal, bytes, allocate)
    }

    fn enter_as(
        &self,
        may_wait: bool,
        ordinal: i32,
        bytes: usize,
        allocate: impl FnOnce() -> Result<Allocated>,
    ) -> Result<Allocated> {
        self.reserve(bytes)?;
        let made = Vacant::new().and_then(|room| Ok((room, caught(allocate)?)));
        let mut state = self.lock();
        state.asked -= bytes;
        let (room, mut allocated) = match (made, state.live.try_reserve(1)) {
            (Ok(made), Ok(())) => made,
            (made, _) => {
                let error = made.as_ref().err().cloned().unwrap_or_else(|| Error::no_memory(size_of::<Live>()));
                state.statistics.refused += u64::from(error.status() == DEVX_OUT_OF_MEMORY);
                drop(state);
                // Without the lock: giving the memory back may call the manager.
                drop(made);
                return Err(error);
            }
        };
        let number = state.next;
        state.next += 1;
        let now = &mut state.statistics;
        now.allocations += 1;
        now.bytes += bytes;
        now.total_allocations += 1;
        now.total_bytes = now.total_bytes.saturating_add(bytes as u64);
        now.peak_bytes = now.peak_bytes.max(now.bytes);
        let books = self.clone();
        let give_back = move || books.give_back(number);
        let outer = Owner::releasing(room, None, give_back).given_back(allocated.owner.in_order());
        let owner = std::mem::replace(&mut allocated.owner, outer);
        let ordinal = (allocated.device != Device::CPU).then_some(ordinal);
        state.live.insert(number, Live { ordinal, bytes, owner, may_wait, is_over: false, before: None });
        Ok(allocated)
    }

    /// Pins host memory, and enters it as 0 bytes, because the memory is the caller's. The caller may free it or pin it
    /// again as soon as the owner is gone, so unpinning never waits for the end of a deferral.
    ///
    /// # Safety
    /// Same as [`super::Manager::pin`].
    pub(super) unsafe fn pin(
        &self,
        ordinal: i32,
        address: *mut c_void,
        bytes: usize,
        flags: HostFlags,
    ) -> Result<Owner> {
        if flags.write_combined {
            return refuse!(
                DEVX_INVALID_ARGUMENT,
                "write_combined is true: memory that is there already cannot become so"
            );
        }
        let pinned = self.enter_as(false, ordinal, 0, || {
            // SAFETY: the caller's contract.
            let owner = unsafe { pin_host(ordinal, address, bytes, flags.bits()) }?;
            let device = Device { kind: DeviceType::CUDA_HOST, id: 0 };
            Ok(Allocated { address, device, bytes: 0, owner, ready: Ready::Now })
        })?;
        Ok(pinned.owner)
    }

    fn reserve(&self, bytes: usize) -> Result<()> {
        let mut state = self.lock();
        let limit = state.limit.unwrap_or(usize::MAX);
        let used = state.statistics.bytes + state.asked;
        match used.checked_add(bytes).filter(|sum| *sum <= limit) {
            Some(_) => state.asked += bytes,
            None => {
                state.statistics.refused += 1;
                return refuse!(
                    DEVX_OUT_OF_MEMORY,
                    "{bytes} bytes with {used} in use are more than the limit of {limit}"
                );
            }
        }
        Ok(())
    }

    /// Gives an allocation back; its owner calls this. After a reset there is nothing left to give back.
    fn give_back(&self, number: u64) {
        let mut state = self.lock();
        let State { live, depth, later, statistics, .. } = &mut *state;
        let Some(ended) = live.get_mut(&number).filter(|live| !live.is_over) else { return };
        ended.end(statistics);
        // Giving memory back in the order of a stream costs nothing now, and the stream may be gone later.
        if *depth > 0 && ended.may_wait && ended.owner.in_order().is_none() {
            ended.before = later.replace(number);
            return;
        }
        let owner = live.remove(&number);
        drop(state);
        // Without the lock: giving back calls the driver, or another manager.
        drop(owner);
    }

    pub(super) fn defer(&self) {
        self.lock().depth += 1;
    }

    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` if there is no deferral to end.
    pub(super) fn resume(&self) -> Result<()> {
        let left = {
            let mut state = self.lock();
            let Some(left) = state.depth.checked_sub(1) else { return not_deferred() };
            state.depth = left;
            left
        };
        if left == 0 {
            self.flush();
        }
        Ok(())
    }

    /// Runs `allocate`, and if there is no memory, once more, after everything that waits for the end of a deferral was given
    /// back.
    pub(super) fn insist<T>(&self, allocate: impl Fn() -> Result<T>) -> Result<T> {
        match allocate() {
            Err(error) if error.status() == DEVX_OUT_OF_MEMORY => {
                self.flush();
                allocate()
            }
            made => made,
        }
    }

    /// Gives back everything that waits for the end of a deferral, without waiting for that end: memory is needed.
    pub(super) fn flush(&self) {
        loop {
            let due = self.lock().take();
            // Dropped without the lock, for the same reason.
            if due.is_none() {
                return;
            }
        }
    }

    /// Gives back all memory that goes with a device. When this returns, the driver has the memory, and the device may
    /// be reset.
    pub(super) fn reset(&self, ordinal: i32) {
        // Not with what is given back later: another thread could take some of it, and give it back after this returns.
        let mut last = None;
        let mut state = self.lock();
        let State { live, statistics, .. } = &mut *state;
        for (number, live) in live.iter_mut().filter(|(_, live)| live.ordinal == Some(ordinal) && !live.is_over) {
            live.end(statistics);
            live.before = last.replace(*number);
        }
        drop(state);
        while let Some(ended) = last.and_then(|number| self.lock().live.remove(&number)) {
            last = ended.before;
            // Without the lock, as everywhere.
            drop(ended);
        }
        self.flush();
        before_reset(ordinal);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Otherwise the reset could return while another thread is still giving some of it back.
    #[test]
    fn what_is_reset_is_given_back_by_no_other_thread() {
        let (books, threads) = (Books::new().expect("memory"), Arc::new(Mutex::new(Vec::new())));
        let (began, begun) = channel();
        let (end, ended) = channel();
        let first = Arc::new(Mutex::new(Some((began, ended))));
        let held = [(); 2].map(|()| {
            let (threads, first) = (Arc::clone(&threads), Arc::clone(&first));
            let owner = Owner::on_release(move || {
                threads.lock().expect("not poisoned").push(std::thread::current().id());
                let is_first = first.lock().expect("not poisoned").take();
                if let Some((began, ended)) = is_first {
                    began.send(()).expect("heard");
                    ended.recv().expect("told");
                }
            });
            let device = Device { kind: DeviceType::CUDA_HOST, id: 0 };
            let allocated = Allocated { address: std::ptr::null_mut(), device, bytes: 1, owner, ready: Ready::Now };
            books.enter(0, 1, || Ok(allocated)).expect("entered")
        });
        let flushed = books.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                begun.recv().expect("told");
                flushed.flush();
                end.send(()).expect("heard");
            });
            books.reset(0);
        });
        assert_eq!(*threads.lock().expect("not poisoned"), [std::thread::current().id(); 2]);
        drop(held);
        assert_eq!(threads.lock().expect("not poisoned").len(), 2);
    }
}
