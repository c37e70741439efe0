//! Blocks of memory that a thread keeps when they are given back, and takes again.
//!
//! Allocations are the main cost of an exchange: free gives the pages of a large block back to the system each time. So
//! each thread keeps up to [`MOST`] bytes, sorted by size. A block that is given back on another thread returns to the
//! thread that took it, which uses it when it has no other block of that size. So a producer whose consumers release on
//! other threads allocates nothing, and a thread that only releases hoards nothing. `DEVEXCHANGE_KEEP_BLOCKS=0` in the
//! environment turns this off, for tools that watch malloc.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::setting::Setting;

/// Alignment of every block.
pub(crate) const ALIGN: usize = 16;

/// Most bytes that a thread keeps.
pub(crate) const MOST: usize = 8 << 20;

/// Sizes are multiples of this up to `SMALL`, and have four steps for each power of two up to `LARGE`.
const STEP: usize = 64;
pub(crate) const SMALL: usize = 1 << 10;
pub(crate) const LARGE: usize = 4 << 20;
const SMALL_BINS: usize = SMALL / STEP;
const BINS: usize = SMALL_BINS + 4 * (LARGE.ilog2() - SMALL.ilog2()) as usize;

/// The blocks that a thread keeps.
pub(crate) struct Blocks {
    bins: [Cell<*mut Free>; BINS],
    bytes: Cell<usize>,
    most: usize,
}

/// The beginning of a block that nobody uses.
struct Free {
    next: *mut Free,
    size: Size,
}

/// The blocks that a thread took and other threads gave back: they push to a list, which the thread takes as a whole.
///
/// Everything that those threads access is here, on a cache line apart from what the thread itself writes all the time.
#[repr(align(64))]
pub(crate) struct Returned {
    first: AtomicPtr<Free>,
    bytes: AtomicUsize,
    most: usize,
}

/// The size of a block, together with its bin, which is in the bits that are zero in all sizes that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(usize);

const BIN_BITS: usize = BINS - 1;
const _: () = assert!(BINS.is_power_of_two() && BINS <= STEP);

impl Size {
    /// The size of a block for `bytes` bytes; `None` for more than can be addressed.
    #[inline]
    pub(crate) fn of(bytes: usize) -> Option<Self> {
        if bytes <= SMALL {
            return Some(Self::of_small(bytes));
        }
        if bytes > LARGE {
            let rounded = bytes.checked_next_multiple_of(STEP)?;
            return Layout::from_size_align(rounded, ALIGN).is_ok().then_some(Self(rounded));
        }
        // Four steps above a power of two, in quarters of it: 5/4, 6/4, 7/4, 8/4.
        let power = (bytes - 1).ilog2() as usize;
        let quarter = power - 2;
        let quarters = ((bytes - 1) >> quarter) + 1;
        let bin = SMALL_BINS + 4 * (power - SMALL.ilog2() as usize) + quarters - 5;
        Some(Self((quarters << quarter) + bin))
    }

    /// The size of a block for `bytes` bytes, which are at most [`SMALL`].
    #[inline]
    pub(crate) fn of_small(bytes: usize) -> Self {
        let bin = bytes.saturating_sub(1) / STEP;
        Self((bin + 1) * STEP + bin)
    }

    fn of_bin(bin: usize) -> Self {
        let bytes = match bin.checked_sub(SMALL_BINS) {
            None => (bin + 1) * STEP,
            Some(quarters) => (quarters % 4 + 5) << (quarters / 4 + SMALL.ilog2() as usize - 2),
        };
        Self(bytes + bin)
    }

    #[inline]
    pub(crate) fn bytes(self) -> usize {
        self.0 & !BIN_BITS
    }

    #[inline]
    fn bin(self) -> usize {
        self.0 & BIN_BITS
    }

    fn layout(self) -> Layout {
        // SAFETY: a power of two, and `of` made sure that the size can be addressed.
        unsafe { Layout::from_size_align_unchecked(self.bytes(), ALIGN) }
    }
}

/// The most bytes that a thread keeps in this process.
fn most() -> usize {
    static KEPT_NONE: Setting = Setting::new("DEVEXCHANGE_KEEP_BLOCKS");
    if KEPT_NONE.get(|value| value == "0") { 0 } else { MOST }
}

impl Blocks {
    /// The number of bytes that are kept.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    pub(crate) fn new() -> Self {
        let bins = [const { Cell::new(ptr::null_mut()) }; BINS];
        Self { bins, bytes: Cell::new(0), most: most() }
    }

    #[expect(clippy::indexing_slicing, reason = "a bin is a number of so many bits")]
    #[inline]
    fn bin(&self, size: Size) -> &Cell<*mut Free> {
        &self.bins[size.bin()]
    }

    /// Takes a block of this size, if there is one.
    #[inline]
    pub(crate) fn take(&self, size: Size) -> Option<NonNull<u8>> {
        let bin = self.bin(size);
        let block = NonNull::new(bin.get())?;
        // SAFETY: the block is in a bin, so nobody else has it, and `give` wrote it.
        bin.set(unsafe { block.as_ref() }.next);
        self.bytes.set(self.bytes.get() - size.bytes());
        Some(block.cast())
    }

    /// Keeps a block, if there is room; otherwise the block stays the caller's.
    ///
    /// # Safety
    /// The block is the caller's, and of this size.
    #[inline]
    pub(crate) unsafe fn give(&self, size: Size, block: NonNull<u8>) -> bool {
        let bytes = self.bytes.get() + size.bytes(); // some MiB do not overflow
        if bytes > self.most {
            return false;
        }
        let (bin, free) = (self.bin(size), block.cast::<Free>());
        // SAFETY: a block is large enough and aligned, and the caller gives it up.
        unsafe { free.write(Free { next: bin.get(), size }) };
        bin.set(free.as_ptr());
        self.bytes.set(bytes);
        true
    }

    /// Frees all blocks that are kept.
    pub(crate) fn free(&self) {
        for size in (0..BINS).map(Size::of_bin) {
            while let Some(block) = self.take(size) {
                // SAFETY: from `fresh`, with this size, and nobody uses it.
                unsafe { release(block, size) };
            }
        }
    }
}

impl Returned {
    /// The number of bytes in the list.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub(crate) fn new() -> Self {
        Self { first: AtomicPtr::new(ptr::null_mut()), bytes: AtomicUsize::new(0), most: most() }
    }

    /// Keeps a block for the thread that took it, if there is room; otherwise the block stays the caller's.
    ///
    /// # Safety
    /// The block is the caller's, and of this size.
    pub(crate) unsafe fn give(&self, size: Size, block: NonNull<u8>) -> bool {
        // Counted first: reading before writing would fetch the cache line from the other thread twice.
        let bytes = self.bytes.fetch_add(size.bytes(), Relaxed).saturating_add(size.bytes());
        if bytes > self.most {
            self.bytes.fetch_sub(size.bytes(), Relaxed);
            return false;
        }
        let free = block.cast::<Free>();
        let mut next = self.first.load(Relaxed);
        loop {
            // SAFETY: a block is large enough and aligned, and the caller gives it up.
            unsafe { free.write(Free { next, size }) };
            match self.first.compare_exchange_weak(next, free.as_ptr(), Release, Relaxed) {
                Ok(_) => return true,
                Err(other) => next = other,
            }
        }
    }

    /// Takes all blocks out of the list and passes each of them to `keep`.
    pub(crate) fn take(&self, mut keep: impl FnMut(NonNull<u8>, Size)) {
        let mut next = self.first.swap(ptr::null_mut(), Acquire);
        let mut bytes = 0;
        while let Some(free) = NonNull::new(next) {
            // SAFETY: the block was in the list, so nobody else has it, and `give` wrote it.
            let Free { next: following, size } = unsafe { free.read() };
            next = following;
            bytes += size.bytes();
            keep(free.cast(), size);
        }
        // Once for all blocks: each write makes the threads that give blocks back wait.
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Relaxed);
        }
    }
}

/// A new block from the system; `None` if there is no memory.
pub(crate) fn fresh(size: Size) -> Option<NonNull<u8>> {
    // SAFETY: sizes are not zero.
    NonNull::new(unsafe { alloc(size.layout()) })
}

/// Gives a block back to the system.
///
/// # Safety
/// The block is from [`fresh`], with this size, and nobody uses it any more.
pub(crate) unsafe fn release(block: NonNull<u8>, size: Size) {
    // SAFETY: the caller's contract.
    unsafe { dealloc(block.as_ptr(), size.layout()) };
}

#[cfg(test)]
mod tests;
