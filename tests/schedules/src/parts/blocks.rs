//! In place of the core's blocks: takes the blocks of slabs from the allocator. The core's blocks belong to one thread and have
//! no atomics, so there is nothing to model.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use super::nesting::Here;

pub(super) const ALIGN: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Origin(Layout);

impl Origin {
    pub(super) fn bytes(self) -> usize {
        self.0.size()
    }
}

pub(super) fn allocate(bytes: usize) -> Option<(NonNull<u8>, Origin)> {
    let origin = Origin(Layout::from_size_align(bytes, ALIGN).ok()?);
    // SAFETY: a slab has a header, so the size is not 0.
    NonNull::new(unsafe { alloc(origin.0) }).map(|block| (block, origin))
}

/// # Safety
/// `block` comes from [`allocate`], with this origin, and nobody uses it any more.
pub(super) unsafe fn free(block: NonNull<u8>, origin: Origin) {
    // SAFETY: by the caller's contract, `alloc` returned the block for this layout.
    unsafe { dealloc(block.as_ptr(), origin.0) }
}

/// # Safety
/// The same as for [`free`].
pub(super) unsafe fn free_here(block: NonNull<u8>, origin: Origin, _: Here) {
    // SAFETY: the caller's contract.
    unsafe { free(block, origin) }
}
