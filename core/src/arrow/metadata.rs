//! Key-value metadata (C data interface, `ArrowSchema.metadata`). Counts and lengths are 32-bit, in native byte order.

use core::ffi::c_char;
use std::iter::FusedIterator;
use std::marker::PhantomData;

use crate::error::{Result, refuse};
use crate::memory::vector;

/// The most pairs that are read.
pub const MAX_PAIRS: i32 = 1 << 20;
/// The most bytes of a block, with all of its lengths. The block does not say its size, so this bounds what a wrong length
/// can do.
pub const MAX_BYTES: usize = 1 << 28;

/// The pairs of a checked metadata block.
#[derive(Clone, Copy, Debug)]
pub struct Metadata<'a> {
    next: *const u8,
    left: i32,
    _block: PhantomData<&'a [u8]>,
}

// SAFETY: the bytes of the block are only read, which any thread may do.
unsafe impl Send for Metadata<'_> {}
// SAFETY: as above.
unsafe impl Sync for Metadata<'_> {}

impl<'a> Metadata<'a> {
    /// Checks a block; NULL means no metadata. Returns the pairs and the size of the block in bytes.
    ///
    /// # Errors
    /// `DEVX_INVALID_METADATA` with the impossible count or length.
    ///
    /// # Safety
    /// `block` is NULL or a metadata block that is as long as it says, and outlives the result.
    pub(crate) unsafe fn check(block: *const c_char) -> Result<(Self, usize)> {
        let none = Self { next: block.cast(), left: 0, _block: PhantomData };
        if block.is_null() {
            return Ok((none, 0));
        }
        let start = block.cast::<u8>();
        // SAFETY: a block starts with its count.
        let pairs = unsafe { read_i32(start) };
        if !(0..=MAX_PAIRS).contains(&pairs) {
            return refuse!(DEVX_INVALID_METADATA, "metadata has {pairs} pairs: it must be between 0 and {MAX_PAIRS}");
        }
        let mut bytes = 4_usize;
        for i in 0..pairs {
            for part in ["key", "value"] {
                // SAFETY: the caller's contract: the pairs are there.
                let part_start = unsafe { start.add(bytes) };
                // SAFETY: as above.
                let length = unsafe { read_i32(part_start) };
                bytes = match usize::try_from(length) {
                    Ok(length) if bytes + 4 + length <= MAX_BYTES => bytes + 4 + length,
                    _ => {
                        return refuse!(
                            DEVX_INVALID_METADATA,
                            "metadata {part} {i} has {length} bytes: it must be between 0 and {MAX_BYTES} for all together"
                        );
                    }
                };
            }
        }
        // SAFETY: the count was read, so there are four bytes at least.
        Ok((Self { next: unsafe { start.add(4) }, left: pairs, _block: PhantomData }, bytes))
    }

    fn text(&mut self) -> &'a [u8] {
        // SAFETY: `check` walked over these bytes.
        let length = unsafe { read_i32(self.next) };
        // SAFETY: as above.
        let first = unsafe { self.next.add(4) };
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(first, length as usize) };
        // SAFETY: as above.
        self.next = unsafe { first.add(bytes.len()) };
        bytes
    }
}

impl<'a> Iterator for Metadata<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        Some((self.text(), self.text()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Metadata<'_> {}
impl FusedIterator for Metadata<'_> {}

/// The bytes of a checked block; `None` for NULL.
///
/// # Errors
/// `DEVX_INVALID_METADATA` with the impossible count or length.
///
/// # Safety
/// `block` is NULL or a metadata block that is as long as it says, and outlives the result.
#[inline]
pub unsafe fn block<'a>(block: *const c_char) -> Result<Option<&'a [u8]>> {
    if block.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    let (_, bytes) = unsafe { Metadata::check(block) }?;
    // SAFETY: `check` walked over these bytes.
    Ok((bytes > 0).then(|| unsafe { std::slice::from_raw_parts(block.cast::<u8>(), bytes) }))
}

/// Checks that a block of known size is as long as it says.
///
/// # Errors
/// `DEVX_INVALID_METADATA` with the size of the block.
pub fn check_bytes(block: &[u8]) -> Result<()> {
    fn number(bytes: &mut &[u8]) -> Option<usize> {
        let (number, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        usize::try_from(i32::from_ne_bytes(*number)).ok()
    }
    let mut rest = block;
    let pairs = number(&mut rest).filter(|&pairs| pairs <= MAX_PAIRS as usize && block.len() <= MAX_BYTES);
    let parts = pairs.and_then(|pairs| {
        (0..2 * pairs).try_for_each(|_| {
            let length = number(&mut rest)?;
            rest = rest.get(length..)?;
            Some(())
        })
    });
    match parts {
        Some(()) if rest.is_empty() => Ok(()),
        _ => refuse!(
            DEVX_INVALID_METADATA,
            "metadata of {} bytes is not a metadata block of that size: a count, then each key and value behind its length",
            block.len()
        ),
    }
}

/// # Safety
/// Four bytes can be read at `from`; they need not be aligned.
unsafe fn read_i32(from: *const u8) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { from.cast::<i32>().read_unaligned() }
}

/// Writes a metadata block.
///
/// # Errors
/// `DEVX_INVALID_METADATA` if there is more than a block can hold or a reader would accept.
pub fn encode(pairs: &[(&[u8], &[u8])]) -> Result<Vec<u8>> {
    let bytes: usize = 4 + pairs.iter().map(|(key, value)| 8 + key.len() + value.len()).sum::<usize>();
    if bytes > MAX_BYTES || pairs.len() > MAX_PAIRS as usize {
        return refuse!(DEVX_INVALID_METADATA, "metadata of {} pairs and {bytes} bytes is too large", pairs.len());
    }
    let mut block = vector(bytes)?;
    block.extend_from_slice(&(pairs.len() as i32).to_ne_bytes());
    for part in pairs.iter().flat_map(|(key, value)| [key, value]) {
        block.extend_from_slice(&(part.len() as i32).to_ne_bytes());
        block.extend_from_slice(part);
    }
    Ok(block)
}
