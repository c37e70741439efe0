//! Blocks of memory that a thread keeps when they are given back, and takes again.
//!
//! What an exchange costs is its allocations: malloc and free of a large block give its pages back to the system each time.
//! Each thread keeps up to [`MOST`] bytes, sorted by size; a block may be given back on another thread than the one that
//! took it. `DEVEXCHANGE_KEEP_BLOCKS=0` in the environment turns it off, for tools that watch malloc.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::{Cell, OnceCell};
use std::ptr::{self, NonNull};

use crate::local;

/// Alignment of every block.
pub(super) const ALIGN: usize = 16;

/// Most bytes that a thread keeps.
const MOST: usize = 8 << 20;

/// Sizes are multiples of this up to `SMALL`, and have four steps for each power of two up to `LARGE`.
const STEP: usize = 64;
const SMALL: usize = 1 << 10;
const LARGE: usize = 4 << 20;
const SMALL_BINS: usize = SMALL / STEP;
const BINS: usize = SMALL_BINS + 4 * (LARGE.ilog2() - SMALL.ilog2()) as usize;

/// What a thread keeps.
pub(crate) struct Blocks {
    bins: [Cell<*mut Free>; BINS],
    bytes: Cell<usize>,
    most: OnceCell<usize>,
}

/// A block that nobody uses.
struct Free {
    next: *mut Free,
}

impl Blocks {
    pub(crate) const fn new() -> Self {
        Self { bins: [const { Cell::new(ptr::null_mut()) }; BINS], bytes: Cell::new(0), most: OnceCell::new() }
    }

    fn most(&self) -> usize {
        *self.most.get_or_init(|| match std::env::var_os("DEVEXCHANGE_KEEP_BLOCKS") {
            Some(value) if value == "0" => 0,
            _ => MOST,
        })
    }

    fn take(&self, bin: usize, size: usize) -> Option<NonNull<u8>> {
        let bin = self.bins.get(bin)?;
        let block = NonNull::new(bin.get())?;
        // SAFETY: in a bin, so nobody else's, and written by `give`.
        bin.set(unsafe { block.as_ref() }.next);
        self.bytes.set(self.bytes.get() - size);
        Some(block.cast())
    }

    /// Keeps a block, if there is room; otherwise it is the caller's as before.
    ///
    /// # Safety
    /// The block is the caller's, and has the size of the bin.
    unsafe fn give(&self, bin: usize, size: usize, block: NonNull<u8>) -> bool {
        let (Some(bin), bytes) = (self.bins.get(bin), self.bytes.get() + size) else { return false };
        if bytes > self.most() {
            return false;
        }
        let free = block.cast::<Free>();
        // SAFETY: a block is large enough and aligned, and the caller's, who gives it up.
        unsafe { free.write(Free { next: bin.get() }) };
        bin.set(free.as_ptr());
        self.bytes.set(bytes);
        true
    }

    /// Frees all that is kept.
    pub(crate) fn free(&self) {
        for (index, bin) in self.bins.iter().enumerate() {
            let size = size_of_bin(index);
            while let Some(block) = self.take(index, size) {
                // SAFETY: allocated by `allocate` with this size.
                unsafe { dealloc(block.as_ptr(), layout(size)) };
            }
            debug_assert!(bin.get().is_null());
        }
    }
}

/// The bin for so many bytes, and the size of its blocks; `None` for what is not kept.
#[inline]
fn bin_of(bytes: usize) -> Option<(usize, usize)> {
    if bytes <= SMALL {
        let bin = bytes.saturating_sub(1) / STEP;
        return Some((bin, (bin + 1) * STEP));
    }
    if bytes > LARGE {
        return None;
    }
    // A power of two and above it, in quarters: 5/4, 6/4, 7/4, 8/4.
    let power = (bytes - 1).ilog2() as usize;
    let quarter = power - 2;
    let quarters = ((bytes - 1) >> quarter) + 1;
    Some((SMALL_BINS + 4 * (power - SMALL.ilog2() as usize) + quarters - 5, quarters << quarter))
}

fn size_of_bin(bin: usize) -> usize {
    match bin.checked_sub(SMALL_BINS) {
        None => (bin + 1) * STEP,
        Some(quarters) => (quarters % 4 + 5) << (quarters / 4 + SMALL.ilog2() as usize - 2),
    }
}

fn layout(size: usize) -> Layout {
    // SAFETY: a power of two; sizes come from `allocate`, which made sure of the rest.
    unsafe { Layout::from_size_align_unchecked(size, ALIGN) }
}

/// A block of at least so many bytes, uninitialised, and how many it has; `None` if there is no memory.
#[inline]
pub(super) fn allocate(bytes: usize) -> Option<(NonNull<u8>, usize)> {
    let Some((bin, size)) = bin_of(bytes) else {
        Layout::from_size_align(bytes, ALIGN).ok()?;
        return fresh(bytes);
    };
    match local::here().and_then(|local| local.blocks.take(bin, size)) {
        Some(block) => Some((block, size)),
        None => fresh(size),
    }
}

#[cold]
fn fresh(size: usize) -> Option<(NonNull<u8>, usize)> {
    // SAFETY: not zero, and checked by `allocate`.
    let block = unsafe { alloc(layout(size)) };
    Some((NonNull::new(block)?, size))
}

/// Gives a block back.
///
/// # Safety
/// `block` is from [`allocate`], with this size, and nobody uses it any more.
#[inline]
pub(super) unsafe fn free(block: NonNull<u8>, size: usize) {
    if let Some((bin, size)) = bin_of(size)
        && let Some(local) = local::here()
        // SAFETY: the caller's contract; a size that `allocate` gave is that of its bin.
        && unsafe { local.blocks.give(bin, size, block) }
    {
        return;
    }
    // SAFETY: the caller's contract.
    unsafe { dealloc(block.as_ptr(), layout(size)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_what_they_are_for() {
        let (mut last, mut bytes) = (None, 0);
        while bytes <= LARGE {
            let (bin, size) = bin_of(bytes).expect("small enough");
            assert!(size >= bytes && size <= bytes * 5 / 4 + STEP, "{size} for {bytes}");
            assert!(bin < BINS && size_of_bin(bin) == size, "{bin} of {size} for {bytes}");
            assert_eq!(bin_of(size), Some((bin, size)));
            assert!(last == Some(bin) || last.map_or(0, |last| last + 1) == bin, "{bin} after {last:?}");
            last = Some(bin);
            bytes += if bytes < 5000 { 1 } else { 997 };
        }
        assert_eq!(bin_of(LARGE).map(|(bin, _)| bin), Some(BINS - 1));
        assert_eq!(bin_of(usize::MAX), None);
    }

    #[test]
    fn what_was_given_back_comes_again() {
        let (first, size) = allocate(5000).expect("memory");
        // SAFETY: just allocated.
        unsafe { free(first, size) };
        let (again, _) = allocate(size - 100).expect("memory");
        assert_eq!(first, again);
        // SAFETY: as above.
        unsafe { free(again, size) };
        let all: Vec<_> = (0..100).map(|_| allocate(LARGE).expect("memory")).collect();
        for (block, size) in all {
            // SAFETY: as above.
            unsafe { free(block, size) };
        }
        let kept = local::here().map(|local| local.blocks.bytes.get());
        assert!(kept.is_some_and(|bytes| bytes > 0 && bytes <= MOST), "{kept:?}");
        assert!(allocate(usize::MAX - 10).is_none());
    }
}
