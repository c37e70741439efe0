//! Blocks of memory that come from the thread that asks, if it keeps one, and go back to it.

use std::ptr::{self, NonNull};

use crate::local::blocks::{LARGE, SMALL, Size, fresh, release};
use crate::local::{self, Local, Place};

pub(super) use crate::local::blocks::ALIGN;

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
        None => elsewhere(size, home)?,
    };
    Some((block, Origin { size, home: home.map_or(ptr::null(), ptr::from_ref) }))
}

/// Where the thread has no block at hand.
#[cold]
fn elsewhere(size: Size, home: Option<&'static Place<Local>>) -> Option<NonNull<u8>> {
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
    fresh(size)
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

#[cfg(test)]
mod tests;
