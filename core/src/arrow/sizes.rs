//! Whether buffers are as large as their arrays need, for producers who know how large they are.

use super::check::in_array;
use super::format::Buffer;
use super::node::NodeDesc;
use super::schema::Schema;
use crate::error::{Result, refuse};

/// Refuses buffers that have fewer bytes than their arrays need at least. `nodes` were checked against `schema`; `sizes`
/// is as for [`super::Batch::from_sized_parts`].
pub(super) fn check_sizes(schema: &Schema, nodes: &[NodeDesc<'_>], sizes: &[i64]) -> Result<()> {
    let n_buffers: usize = nodes.iter().map(|node| node.buffers.len()).sum();
    if sizes.len() != n_buffers {
        return refuse!(DEVX_MISMATCH, "there are {} sizes, the nodes have {n_buffers} buffers in all", sizes.len());
    }
    let mut left = sizes;
    for (node, number) in nodes.iter().zip(schema.depth_first()?) {
        let (own, others) = left.split_at_checked(node.buffers.len()).unwrap_or((left, &[]));
        left = others;
        check_node(schema, number, node, own).map_err(|error| in_array(schema, number, error))?;
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

/// How many bytes the buffer at `index` has at least, for elements up to `end`.
fn least_bytes(buffer: Buffer, end: u64, index: usize) -> u128 {
    match buffer {
        // Without elements the one offset may be left out.
        Buffer::Offsets(_) if end == 0 => 0,
        // How long data has to be is in other buffers.
        _ => buffer.bytes_at(index, end).unwrap_or(0),
    }
}
