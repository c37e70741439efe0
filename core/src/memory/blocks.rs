//! Blocks of memory that a thread keeps when they are given back, and takes again.
//!
//! What an exchange costs is its allocations: malloc and free of a large block give its pages back to the system each time.
//! Each thread keeps up to [`MOST`] bytes, sorted by size; a block may be given back on another thread than the one that
//! took it. `DEVEXCHANGE_KEEP_BLOCKS=0` in the environment turns it off, for tools that watch malloc.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

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
    most: usize,
}

/// A block that nobody uses.
struct Free {
    next: *mut Free,
}

/// How large a block is, with the bin that it belongs to in the bits that are zero in all sizes that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(usize);

const BIN_BITS: usize = BINS - 1;
const _: () = assert!(BINS.is_power_of_two() && BINS <= STEP);

impl Size {
    /// Of a block for so many bytes; `None` for more than can be addressed.
    #[inline]
    fn of(bytes: usize) -> Option<Self> {
        if bytes <= SMALL {
            let bin = bytes.saturating_sub(1) / STEP;
            return Some(Self((bin + 1) * STEP + bin));
        }
        if bytes > LARGE {
            let rounded = bytes.checked_next_multiple_of(STEP)?;
            return Layout::from_size_align(rounded, ALIGN).is_ok().then_some(Self(rounded));
        }
        // A power of two and above it, in quarters: 5/4, 6/4, 7/4, 8/4.
        let power = (bytes - 1).ilog2() as usize;
        let quarter = power - 2;
        let quarters = ((bytes - 1) >> quarter) + 1;
        let bin = SMALL_BINS + 4 * (power - SMALL.ilog2() as usize) + quarters - 5;
        Some(Self((quarters << quarter) + bin))
    }

    fn of_bin(bin: usize) -> Self {
        let bytes = match bin.checked_sub(SMALL_BINS) {
            None => (bin + 1) * STEP,
            Some(quarters) => (quarters % 4 + 5) << (quarters / 4 + SMALL.ilog2() as usize - 2),
        };
        Self(bytes + bin)
    }

    #[inline]
    pub(super) fn bytes(self) -> usize {
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

impl Blocks {
    pub(crate) fn new() -> Self {
        // Asked for once: the environment may be changed later, and not every program is careful with that.
        static OFF: OnceLock<bool> = OnceLock::new();
        let off = *OFF.get_or_init(|| std::env::var_os("DEVEXCHANGE_KEEP_BLOCKS").is_some_and(|value| value == "0"));
        let bins = [const { Cell::new(ptr::null_mut()) }; BINS];
        Self { bins, bytes: Cell::new(0), most: if off { 0 } else { MOST } }
    }

    #[expect(clippy::indexing_slicing, reason = "a bin is a number of so many bits")]
    #[inline]
    fn bin(&self, size: Size) -> &Cell<*mut Free> {
        &self.bins[size.bin()]
    }

    #[inline]
    fn take(&self, size: Size) -> Option<NonNull<u8>> {
        if size.bytes() > LARGE {
            return None;
        }
        let bin = self.bin(size);
        let block = NonNull::new(bin.get())?;
        // SAFETY: in a bin, so nobody else's, and written by `give`.
        bin.set(unsafe { block.as_ref() }.next);
        self.bytes.set(self.bytes.get() - size.bytes());
        Some(block.cast())
    }

    /// Keeps a block, if there is room; otherwise it is the caller's as before.
    ///
    /// # Safety
    /// The block is the caller's, and of this size.
    #[inline]
    unsafe fn give(&self, size: Size, block: NonNull<u8>) -> bool {
        let bytes = self.bytes.get().saturating_add(size.bytes());
        if bytes > self.most || size.bytes() > LARGE {
            return false;
        }
        let (bin, free) = (self.bin(size), block.cast::<Free>());
        // SAFETY: a block is large enough and aligned, and the caller's, who gives it up.
        unsafe { free.write(Free { next: bin.get() }) };
        bin.set(free.as_ptr());
        self.bytes.set(bytes);
        true
    }

    /// Frees all that is kept.
    pub(crate) fn free(&self) {
        for size in (0..BINS).map(Size::of_bin) {
            while let Some(block) = self.take(size) {
                // SAFETY: allocated by `allocate` with this size.
                unsafe { dealloc(block.as_ptr(), size.layout()) };
            }
        }
    }
}

/// A block of at least so many bytes, uninitialised, and how large it is; `None` if there is no memory.
#[inline]
pub(super) fn allocate(bytes: usize) -> Option<(NonNull<u8>, Size)> {
    let size = Size::of(bytes)?;
    let block = match local::here().and_then(|local| local.blocks.take(size)) {
        Some(block) => block,
        None => fresh(size)?,
    };
    Some((block, size))
}

#[cold]
fn fresh(size: Size) -> Option<NonNull<u8>> {
    // SAFETY: sizes are not zero.
    NonNull::new(unsafe { alloc(size.layout()) })
}

/// Gives a block back.
///
/// # Safety
/// `block` is from [`allocate`], with this size, and nobody uses it any more.
#[inline]
pub(super) unsafe fn free(block: NonNull<u8>, size: Size) {
    // SAFETY: the caller's contract.
    if local::here().is_some_and(|local| unsafe { local.blocks.give(size, block) }) {
        return;
    }
    // SAFETY: the caller's contract.
    unsafe { release(block, size) }
}

/// # Safety
/// As [`free`].
#[cold]
unsafe fn release(block: NonNull<u8>, size: Size) {
    // SAFETY: the caller's contract.
    unsafe { dealloc(block.as_ptr(), size.layout()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Slab, TailSize};

    #[test]
    fn bins_hold_what_they_are_for() {
        let (mut last, mut bytes) = (None, 0);
        while bytes <= LARGE {
            let size = Size::of(bytes).expect("small enough");
            let bin = size.bin();
            assert!(size.bytes() >= bytes && size.bytes() <= bytes * 5 / 4 + STEP, "{size:?} for {bytes}");
            assert_eq!(Size::of_bin(bin), size, "{bytes}");
            assert_eq!(Size::of(size.bytes()), Some(size));
            assert!(last == Some(bin) || last.map_or(0, |last| last + 1) == bin, "{bin} after {last:?}");
            last = Some(bin);
            bytes += if bytes < 5000 { 1 } else { 997 };
        }
        assert_eq!(Size::of(LARGE).map(Size::bin), Some(BINS - 1));
        assert_eq!(Size::of(LARGE + 1).map(Size::bytes), Some(LARGE + STEP));
        assert_eq!(Size::of(usize::MAX), None);
    }

    #[test]
    fn what_was_given_back_comes_again() {
        let (first, size) = allocate(5000).expect("memory");
        // SAFETY: just allocated.
        unsafe { free(first, size) };
        let (again, _) = allocate(size.bytes() - 100).expect("memory");
        assert_eq!(first, again);
        // SAFETY: as above.
        unsafe { free(again, size) };
        let all: Vec<_> = (0..100).map(|i| allocate(LARGE + i % 2).expect("memory")).collect();
        for (block, size) in all {
            // SAFETY: as above.
            unsafe { free(block, size) };
        }
        let kept = local::here().map(|local| local.blocks.bytes.get());
        assert!(kept.is_some_and(|bytes| bytes > 0 && bytes <= MOST), "{kept:?}");
        assert!(allocate(usize::MAX - 10).is_none());
    }

    struct Panics;

    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("as asked");
        }
    }

    #[test]
    fn the_block_of_a_header_that_panics_is_given_back() {
        let slab = Slab::new(Panics, TailSize::default()).map_err(|refused| refused.error).expect("memory");
        let at = slab.as_raw();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(slab))).expect_err("a panic");
        let again = Slab::new((), TailSize::default()).map_err(|refused| refused.error).expect("memory");
        assert_eq!(again.as_raw(), at);
    }
}
