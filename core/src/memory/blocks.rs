//! Blocks of memory that a thread keeps when they are given back, and takes again.
//!
//! What an exchange costs is its allocations: malloc and free of a large block give its pages back to the system each time.
//! Each thread keeps up to [`MOST`] bytes, sorted by size. A block that is given back on another thread returns to the one
//! that took it, which finds it when it has no other: a producer whose consumers release elsewhere allocates nothing, and
//! a thread that only releases hoards nothing. `DEVEXCHANGE_KEEP_BLOCKS=0` in the environment turns it off, for tools that
//! watch malloc.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::local::{self, Local, Place};
use crate::setting::Setting;

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
    size: Size,
}

/// What a thread took and other threads gave back: a list that they push to, and the thread takes as a whole.
///
/// All that those threads look at is here, apart from what the thread itself writes all the time.
#[repr(align(64))]
pub(crate) struct Returned {
    first: AtomicPtr<Free>,
    bytes: AtomicUsize,
    most: usize,
}

/// What has to be known of a block to give it back.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    size: Size,
    /// What the thread has that took it; NULL if it was about to end, or if the block is too large to be kept.
    home: *const Place<Local>,
}

impl Origin {
    #[inline]
    pub(super) fn bytes(self) -> usize {
        self.size.bytes()
    }
}

/// How large a block is, with the bin that it belongs to in the bits that are zero in all sizes that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size(usize);

const BIN_BITS: usize = BINS - 1;
const _: () = assert!(BINS.is_power_of_two() && BINS <= STEP);

impl Size {
    /// Of a block for so many bytes; `None` for more than can be addressed.
    #[inline]
    fn of(bytes: usize) -> Option<Self> {
        if bytes <= SMALL {
            return Some(Self::of_small(bytes));
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

    /// Of a block for so many bytes, which are [`SMALL`] at most.
    #[inline]
    fn of_small(bytes: usize) -> Self {
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
    fn bytes(self) -> usize {
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

/// Most bytes that a thread keeps here and now.
fn most() -> usize {
    static KEPT_NONE: Setting = Setting::new("DEVEXCHANGE_KEEP_BLOCKS");
    if KEPT_NONE.get(|value| value == "0") { 0 } else { MOST }
}

impl Blocks {
    pub(crate) fn new() -> Self {
        let bins = [const { Cell::new(ptr::null_mut()) }; BINS];
        Self { bins, bytes: Cell::new(0), most: most() }
    }

    #[expect(clippy::indexing_slicing, reason = "a bin is a number of so many bits")]
    #[inline]
    fn bin(&self, size: Size) -> &Cell<*mut Free> {
        &self.bins[size.bin()]
    }

    #[inline]
    fn take(&self, size: Size) -> Option<NonNull<u8>> {
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
        let bytes = self.bytes.get() + size.bytes(); // some MiB do not overflow
        if bytes > self.most {
            return false;
        }
        let (bin, free) = (self.bin(size), block.cast::<Free>());
        // SAFETY: a block is large enough and aligned, and the caller's, who gives it up.
        unsafe { free.write(Free { next: bin.get(), size }) };
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

impl Returned {
    pub(crate) fn new() -> Self {
        Self { first: AtomicPtr::new(ptr::null_mut()), bytes: AtomicUsize::new(0), most: most() }
    }

    /// Keeps a block for the thread that it came from, if there is room; otherwise it is the caller's as before.
    ///
    /// # Safety
    /// The block is the caller's, and of this size.
    unsafe fn give(&self, size: Size, block: NonNull<u8>) -> bool {
        // Counted first: to look before would fetch from the other thread twice what is written next.
        let bytes = self.bytes.fetch_add(size.bytes(), Relaxed).saturating_add(size.bytes());
        if bytes > self.most {
            self.bytes.fetch_sub(size.bytes(), Relaxed);
            return false;
        }
        let free = block.cast::<Free>();
        let mut next = self.first.load(Relaxed);
        loop {
            // SAFETY: a block is large enough and aligned, and the caller's, who gives it up.
            unsafe { free.write(Free { next, size }) };
            match self.first.compare_exchange_weak(next, free.as_ptr(), Release, Relaxed) {
                Ok(_) => return true,
                Err(other) => next = other,
            }
        }
    }

    /// Takes all that was given, each block for `keep`.
    fn take(&self, mut keep: impl FnMut(NonNull<u8>, Size)) {
        let mut next = self.first.swap(ptr::null_mut(), Acquire);
        let mut bytes = 0;
        while let Some(free) = NonNull::new(next) {
            // SAFETY: was in the list, so nobody else's, and written by `give`.
            let Free { next: following, size } = unsafe { free.read() };
            next = following;
            bytes += size.bytes();
            keep(free.cast(), size);
        }
        // Once for all of them: each time, the threads that give would have to wait.
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Relaxed);
        }
    }
}

/// Frees all that `local` keeps. By its thread.
pub(crate) fn free_all(local: &Local) {
    local.blocks.free();
    // SAFETY: nobody uses what was given back.
    local.returned.take(|block, size| unsafe { release(block, size) });
}

/// A block of at least so many bytes, uninitialised, and what is to be known of it; `None` if there is no memory.
#[inline]
pub(super) fn allocate(bytes: usize) -> Option<(NonNull<u8>, Origin)> {
    if bytes <= SMALL { of_size(Size::of_small(bytes), local::here()) } else { allocate_large(bytes) }
}

/// Apart from [`allocate`]: what takes so much room takes more time than a call.
#[inline(never)]
fn allocate_large(bytes: usize) -> Option<(NonNull<u8>, Origin)> {
    let size = Size::of(bytes)?;
    // What is too large to be kept comes from nowhere in particular.
    of_size(size, local::here().filter(|_| size.bytes() <= LARGE))
}

#[inline(always)]
fn of_size(size: Size, home: Option<&'static Place<Local>>) -> Option<(NonNull<u8>, Origin)> {
    let block = match home.and_then(|local| local.blocks.take(size)) {
        Some(block) => block,
        None => fresh(size, home)?,
    };
    Some((block, Origin { size, home: home.map_or(ptr::null(), ptr::from_ref) }))
}

/// Where the thread has no block at hand.
#[cold]
fn fresh(size: Size, home: Option<&'static Place<Local>>) -> Option<NonNull<u8>> {
    if let Some(local) = home {
        local.returned.take(|block, size| {
            // SAFETY: nobody uses what was given back.
            if !unsafe { local.blocks.give(size, block) } {
                // SAFETY: as above.
                unsafe { release(block, size) }
            }
        });
        if let Some(block) = local.blocks.take(size) {
            return Some(block);
        }
    }
    // SAFETY: sizes are not zero.
    NonNull::new(unsafe { alloc(size.layout()) })
}

/// Gives a block back.
///
/// # Safety
/// `block` is from [`allocate`], with this origin, and nobody uses it any more.
#[inline]
pub(super) unsafe fn free(block: NonNull<u8>, origin: Origin) {
    // SAFETY: the caller's contract.
    unsafe { free_here(block, origin, local::kept()) }
}

/// As [`free`], by whoever has asked for what the thread has.
///
/// # Safety
/// As [`free`].
#[inline]
pub(super) unsafe fn free_here(block: NonNull<u8>, origin: Origin, here: Option<&'static Place<Local>>) {
    if let Some(here) = here
        && ptr::eq(here, origin.home)
        // SAFETY: the caller's contract.
        && unsafe { here.blocks.give(origin.size, block) }
    {
        return;
    }
    // SAFETY: the caller's contract.
    unsafe { free_elsewhere(block, origin) }
}

/// What is not kept here goes back to where it came from, or to the system.
///
/// # Safety
/// As [`free`].
#[cold]
unsafe fn free_elsewhere(block: NonNull<u8>, Origin { size, home }: Origin) {
    // SAFETY: NULL, or what a thread has, which is never freed.
    if let Some(home) = unsafe { home.as_ref() }.filter(|home| home.is_taken() && !is_here(home))
        // SAFETY: the caller's contract.
        && unsafe { home.returned.give(size, block) }
    {
        return;
    }
    // SAFETY: the caller's contract.
    unsafe { release(block, size) }
}

fn is_here(home: &Place<Local>) -> bool {
    local::kept().is_some_and(|here| ptr::eq(here, home))
}

/// # Safety
/// Nobody uses the block any more; it is of this size.
unsafe fn release(block: NonNull<u8>, size: Size) {
    // SAFETY: the caller's contract.
    unsafe { dealloc(block.as_ptr(), size.layout()) };
}

#[cfg(test)]
mod tests;
