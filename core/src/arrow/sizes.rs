//! Checks that buffers are as large as their arrays need, for producers that know how large they are.

use core::ffi::c_void;

use super::check::in_array;
use super::format::{Buffer, Buffers};
use super::node::NodeDesc;
use super::schema::Schema;
use crate::device::Device;
use crate::error::{Result, refuse};

/// Refuses buffers that are smaller than their arrays need. `nodes` were checked against `schema`; `sizes` is as for
/// [`super::Batch::from_sized_parts`].
///
/// # Safety
/// The buffers are as large as the sizes say, in memory of `device`.
pub(super) unsafe fn check_sizes<'a>(
    schema: &Schema,
    device: Device,
    nodes: impl Iterator<Item = NodeDesc<'a>> + Clone,
    sizes: &[i64],
) -> Result<()> {
    let n_buffers: usize = nodes.clone().map(|node| node.buffers.len()).sum();
    if sizes.len() != n_buffers {
        return refuse!(DEVX_MISMATCH, "there are {} sizes, the nodes have {n_buffers} buffers in all", sizes.len());
    }
    let mut left = sizes;
    for (node, number) in nodes.zip(schema.depth_first()) {
        let (own, others) = left.split_at_checked(node.buffers.len()).unwrap_or((left, &[]));
        left = others;
        let checked = check_node(schema, number, &node, own).and_then(|()| match device {
            // SAFETY: the caller's contract; each buffer was just found to be large enough for its array.
            Device::CPU => unsafe { check_data(schema.ty(number).buffers(), &node, own) },
            // It is not known when other memory may be read.
            _ => Ok(()),
        });
        checked.map_err(|error| in_array(schema, number, error))?;
    }
    Ok(())
}

fn check_node(schema: &Schema, number: usize, node: &NodeDesc<'_>, sizes: &[i64]) -> Result<()> {
    let ty = schema.ty(number);
    let end = node.offset + node.length; // checked with the nodes
    for (i, (address, &size)) in node.buffers.iter().zip(sizes).enumerate() {
        let Some(buffer) = ty.buffers().get(i, node.buffers.len()) else { continue };
        let needed = least_bytes(buffer, end as u64, i);
        if size != -1 && !address.is_null() && i128::from(size) < needed as i128 {
            return refuse!(
                DEVX_INVALID_BUFFERS,
                "buffers[{i}] has {size} bytes: offset and length {end} of {ty} take {needed}"
            );
        }
    }
    Ok(())
}

/// Refuses data buffers that are smaller than the last offset says, or the size that the array gives for them.
///
/// # Safety
/// Buffers of known size are that large, belong to `node`'s array, and lie in memory that the host may read.
unsafe fn check_data(buffers: Buffers, node: &NodeDesc<'_>, sizes: &[i64]) -> Result<()> {
    let end = (node.offset + node.length) as usize;
    // SAFETY: the caller's contract.
    let entry = |i, at, width| unsafe { known_entry(node, sizes, i, at, width) };
    let check = |i: usize, said: Option<i64>, source: usize| match (said, sizes.get(i)) {
        (Some(said), Some(&size)) if size != -1 && said > size => {
            refuse!(DEVX_INVALID_BUFFERS, "buffers[{i}] has {size} bytes: by buffers[{source}] it has {said}")
        }
        _ => Ok(()),
    };
    match (buffers, node.buffers.len()) {
        (Buffers::Three(width), _) if end > 0 => check(2, entry(1, end, width as usize), 1),
        (Buffers::Views, n @ 3..) => (2..n - 1).try_for_each(|i| check(i, entry(n - 1, i - 2, 8), n - 1)),
        _ => Ok(()),
    }
}

/// An entry of a buffer of integers. `None` if the buffer is missing or its size is not known; a known size was found
/// large enough before.
///
/// # Safety
/// Same as [`check_data`].
unsafe fn known_entry(node: &NodeDesc<'_>, sizes: &[i64], i: usize, at: usize, width: usize) -> Option<i64> {
    let (&address, &size) = node.buffers.get(i).zip(sizes.get(i))?;
    if address.is_null() || size == -1 {
        return None;
    }
    let place: *const c_void = address.wrapping_byte_add(at * width);
    // SAFETY: the caller's contract: the buffer is large enough, though it may be unaligned.
    Some(match width {
        // SAFETY: as above.
        4 => unsafe { place.cast::<i32>().read_unaligned() }.into(),
        // SAFETY: as above.
        _ => unsafe { place.cast::<i64>().read_unaligned() },
    })
}

/// The least number of bytes that the buffer at `index` has, for elements up to `end`.
fn least_bytes(buffer: Buffer, end: u64, index: usize) -> u128 {
    match buffer {
        // Without elements, the single offset may be left out.
        Buffer::Offsets(_) if end == 0 => 0,
        // Other buffers say how long data has to be (`check_data`).
        _ => buffer.bytes_at(index, end).unwrap_or(0),
    }
}
