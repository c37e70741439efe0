//! Metadata blocks outside of schemas: copies, in one block of memory each.

use core::ffi::c_char;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::arrow::metadata::{self, Metadata};
use crate::error::Result;
use crate::memory::{Slab, TailSize, held_by_bindings};

/// A metadata block of a stream, a batch or an error. Cloning shares it.
#[derive(Clone)]
pub struct MetadataBlock(Slab<Bytes>);

/// The bytes in the tail of their block of memory.
struct Bytes {
    first: *const u8,
    count: usize,
}

// SAFETY: the bytes are written before anybody sees them, and live as long as this header.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

// Its bytes do not change.
impl UnwindSafe for MetadataBlock {}
impl RefUnwindSafe for MetadataBlock {}

impl MetadataBlock {
    /// Copies a block that was checked.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(super) fn of_checked(block: &[u8]) -> Result<Self> {
        let count = block.len();
        let room = Slab::room(TailSize::default().and::<u8>(count)?)?;
        let first = room.tail().carve::<u8>(count);
        // SAFETY: this many bytes were carved just now.
        unsafe { first.copy_from_nonoverlapping(block.as_ptr(), count) };
        Ok(Self(room.fill(Bytes { first, count })))
    }

    /// Checks and copies a block from the user.
    ///
    /// # Errors
    /// `DEVX_INVALID_METADATA`, `DEVX_OUT_OF_MEMORY`.
    pub(super) fn new(block: &[u8]) -> Result<Self> {
        metadata::check_bytes(block)?;
        Self::of_checked(block)
    }

    /// Copies a foreign block; `None` for NULL.
    ///
    /// # Errors
    /// Same as [`MetadataBlock::new`].
    ///
    /// # Safety
    /// Same as [`metadata::block`].
    #[inline]
    pub(super) unsafe fn copy(block: *const c_char) -> Result<Option<Self>> {
        // SAFETY: the caller's contract.
        unsafe { metadata::block(block) }?.map(Self::of_checked).transpose()
    }

    /// The block, encoded as `ArrowSchema.metadata`.
    pub fn as_bytes(&self) -> &[u8] {
        let Bytes { first, count } = self.0.header();
        // SAFETY: `of_checked` wrote the bytes, and they lie in the block of memory that this handle keeps alive.
        unsafe { std::slice::from_raw_parts(*first, *count) }
    }

    /// The pairs of keys and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        // SAFETY: the block was checked before it was copied, so it is as long as it says.
        let checked = unsafe { Metadata::check(self.as_bytes().as_ptr().cast()) };
        checked.into_iter().flat_map(|(pairs, _)| pairs)
    }
}

held_by_bindings!(MetadataBlock, "block");

impl PartialEq for MetadataBlock {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for MetadataBlock {}

impl fmt::Debug for MetadataBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        f.debug_map().entries(self.pairs().map(|(key, value)| (text(key), text(value)))).finish()
    }
}
