//! Blocks of memory: taken from what the calling thread keeps, and given back to the thread that took them.

use std::ptr::{self, NonNull};

use crate::local::blocks::{LARGE, SMALL, Size, fresh, release};
use crate::local::{self, Local, Place};

pub(super) use crate::local::blocks::ALIGN;

/// What is needed to give a block back.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    size: Size,
    /// The [`Local`] of the thread that took the block; NULL if that thread was about to end, or if the block is too
    /// large to be kept.
    home: *const Place<Local>,
}

impl Origin {
    #[inline]
    pub(super) fn bytes(self) -> usize {
        self.size.bytes()
    }
}

/// Returns an uninitialised block of at least `bytes` bytes and its origin; `None` if there is no memory.
#[inline]
pub(super) fn allocate(bytes: usize) -> Option<(NonNull<u8>, Origin)> {
    if bytes <= SMALL { of_size(Size::of_small(bytes), local::here()) } else { allocate_large(bytes) }
}

/// The rest of [`allocate`], out of line: using a block this large takes more time than a call.
#[inline(never)]
fn allocate_large(bytes: usize) -> Option<(NonNull<u8>, Origin)> {
    let size = Size::of(bytes)?;
    // A block that is too large to be kept belongs to no thread.
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

/// Finds a block if the thread has none of this size at hand.
#[cold]
fn elsewhere(size: Size, home: Option<&'static Place<Local>>) -> Option<NonNull<u8>> {
    if let Some(local) = home {
        local.returned.take(|block, size| {
            // SAFETY: nobody uses a block that was given back.
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

/// Like [`free`], for a caller that has looked up the thread's [`Local`] already.
///
/// # Safety
/// Same as [`free`].
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

/// Gives a block that is not kept here back to the thread that took it, or to the system.
///
/// # Safety
/// Same as [`free`].
#[cold]
unsafe fn free_elsewhere(block: NonNull<u8>, Origin { size, home }: Origin) {
    // SAFETY: NULL, or the `Local` of a thread, which is never freed.
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
