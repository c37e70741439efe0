//! One array of a batch that is being made: what its producer gives, and what is added for consumers that look for
//! more.

use core::ffi::c_void;

use super::MAX_NODES;
use super::format::{Buffer, Buffers, Type};
use crate::abi::types::DevxNode;
use crate::device::Device;
use crate::error::{Result, refuse};
use crate::memory::{entry, set_entry};

/// One array of a batch that is being made, in the order of the schema's fields (depth-first).
#[derive(Clone, Copy, Debug)]
pub struct NodeDesc<'a> {
    /// Number of elements.
    pub length: i64,
    /// Number of nulls, or −1 if not known.
    pub null_count: i64,
    /// Number of elements to skip in each buffer.
    pub offset: i64,
    /// Addresses in the order of the Arrow columnar format: validity first (NULL if there are no nulls).
    ///
    /// Arrow asks for the first offset of a list or text even if it has no elements. A NULL address of that buffer is
    /// replaced by the address of an offset 0 in host memory, and stays NULL in device memory, although some consumers
    /// read it there.
    pub buffers: &'a [*const c_void],
}

impl NodeDesc<'_> {
    /// Reads the C record.
    ///
    /// # Safety
    /// [`check_records`] has found it right. Its table has as many addresses as it says, and outlives the result.
    #[inline]
    pub(super) unsafe fn of_record(node: &DevxNode) -> Self {
        let DevxNode { length, null_count, offset, n_buffers, buffers } = *node;
        let buffers = match n_buffers {
            0 => &[],
            // SAFETY: the caller's contract.
            n => unsafe { std::slice::from_raw_parts(buffers, n as usize) },
        };
        Self { length, null_count, offset, buffers }
    }
}

/// Checks that each C record has a possible number of buffers, and a table of them. Returns the number of all buffers.
///
/// # Errors
/// `DEVX_INVALID_BUFFERS`, `DEVX_NULL_ARGUMENT`.
#[inline]
pub(super) fn check_records(nodes: &[DevxNode]) -> Result<usize> {
    let mut sum = 0;
    for (i, node) in nodes.iter().enumerate() {
        match usize::try_from(node.n_buffers) {
            Ok(n) if n == 0 || n <= MAX_NODES && !node.buffers.is_null() => sum += n,
            _ => return wrong_record(i, node),
        }
    }
    Ok(sum)
}

#[cold]
fn wrong_record<T>(i: usize, &DevxNode { n_buffers, .. }: &DevxNode) -> Result<T> {
    if (0..=MAX_NODES as i64).contains(&n_buffers) {
        return refuse!(DEVX_NULL_ARGUMENT, "nodes[{i}]: buffers is NULL with {n_buffers} entries");
    }
    refuse!(DEVX_INVALID_BUFFERS, "nodes[{i}]: n_buffers is {n_buffers}: it must be between 0 and {MAX_NODES}")
}

/// The first offset, of either width, of an array without elements. Its producer need not have one, but some consumers
/// look for it.
static NO_OFFSET: i64 = 0;

/// Where [`NO_OFFSET`] is, for a table of buffers.
pub(super) fn no_offset() -> *const c_void {
    (&raw const NO_OFFSET).cast()
}

/// Prepares the buffers of an array without elements for consumers that look at the first offset, or at the sizes of
/// the data buffers, all the same. Returns how many buffers there are afterwards.
///
/// # Safety
/// `buffers` has `n_buffers` addresses.
#[inline(never)]
pub(super) unsafe fn without_elements(
    buffers: *mut *const c_void,
    n_buffers: usize,
    ty: Type,
    device: Device,
) -> usize {
    let kinds = ty.buffers();
    // SAFETY: the caller's contract.
    let is_null = |index| index < n_buffers && unsafe { entry(buffers, index) }.is_null();
    match kinds {
        Buffers::Two(Buffer::Offsets(_)) | Buffers::Three(_) if device.is_host() && is_null(1) => {
            // SAFETY: there is more than one buffer.
            unsafe { set_entry(buffers, 1, no_offset()) };
            n_buffers
        }
        Buffers::Views if n_buffers > kinds.count() && is_null(n_buffers - 1) => {
            // SAFETY: there are more than `kinds.count()` buffers.
            unsafe { set_entry(buffers, kinds.count() - 1, std::ptr::null()) };
            kinds.count()
        }
        _ => n_buffers,
    }
}
