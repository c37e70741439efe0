//! Batches over the memory of a producer, who describes their arrays.

use core::ffi::c_void;

use super::{Batch, Header, NodeDesc, Source};
use crate::abi::arrow_data::ArrowArray;
use crate::abi::types::DevxNode;
use crate::arrow::Schema;
use crate::arrow::check::read_nodes;
use crate::arrow::node::{check_records, without_elements};
use crate::arrow::sizes::check_sizes;
use crate::arrow::tree::{self, Releases};
use crate::device::Device;
use crate::error::{Refused, Result, refuse};
use crate::memory::{Owner, Room, Slab, Tail, TailSize, copy_table, fill_in};
use crate::order::{Ready, Uses};

impl Batch {
    /// Makes a batch over the caller's memory, which `owner` keeps alive. It takes one block of memory: the addresses
    /// are copied, the buffers are not.
    ///
    /// # Errors
    /// Same as [`Batch::import`]; the owner is given back, not released.
    ///
    /// # Safety
    /// The buffers hold what the schema and the nodes say, in memory of `device`, until `owner` is released.
    pub unsafe fn from_raw_parts(
        schema: &Schema,
        device: Device,
        nodes: &[NodeDesc<'_>],
        owner: Owner,
    ) -> std::result::Result<Self, Refused<Owner>> {
        // SAFETY: the caller's contract.
        unsafe { Self::from_sized_parts(schema, device, nodes, &[], owner) }
    }

    /// Like [`Batch::from_raw_parts`], but for a caller who knows how large the buffers are.
    ///
    /// `sizes` has a number for each buffer of all nodes, in their order: its size in bytes, or −1 if that is not
    /// known. It is empty if no size is known.
    ///
    /// # Errors
    /// Same as [`Batch::from_raw_parts`]; also `DEVX_INVALID_BUFFERS` for a buffer that is smaller than its array
    /// needs, and `DEVX_MISMATCH` if `sizes` is not empty and has another length than there are buffers. What an array
    /// needs follows from its type, length and offset; in host memory also from the last offset, or from the size that
    /// an array of views gives for the buffer, if the buffer that holds this number has a known size.
    ///
    /// # Safety
    /// Same as [`Batch::from_raw_parts`].
    pub unsafe fn from_sized_parts(
        schema: &Schema,
        device: Device,
        nodes: &[NodeDesc<'_>],
        sizes: &[i64],
        owner: Owner,
    ) -> std::result::Result<Self, Refused<Owner>> {
        let n_buffers = nodes.iter().map(|node| node.buffers.len()).sum();
        // SAFETY: the caller's contract.
        unsafe { Self::describe(schema, device, nodes.iter().copied(), n_buffers, sizes, owner) }
    }

    /// Like [`Batch::from_sized_parts`], of records as a producer in C writes them. `sizes` is NULL if no size is known.
    ///
    /// # Errors
    /// Same as [`Batch::from_sized_parts`]; also `DEVX_INVALID_BUFFERS` for an impossible number of buffers, and
    /// `DEVX_NULL_ARGUMENT` if a table of buffers is missing.
    ///
    /// # Safety
    /// Same as [`Batch::from_sized_parts`]. The tables of buffers have as many addresses as the records say. So has
    /// `sizes`, unless it is NULL, for all of them together.
    pub unsafe fn from_records(
        schema: &Schema,
        device: Device,
        nodes: &[DevxNode],
        sizes: *const i64,
        owner: Owner,
    ) -> std::result::Result<Self, Refused<Owner>> {
        let n_buffers = match check_records(nodes) {
            Ok(n_buffers) => n_buffers,
            Err(error) => return Err(Refused { error, returned: owner }),
        };
        // SAFETY: the caller's contract.
        let sizes = if sizes.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(sizes, n_buffers) } };
        // SAFETY: each record was found right just now.
        let nodes = nodes.iter().map(|node| unsafe { NodeDesc::of_record(node) });
        // SAFETY: the caller's contract.
        unsafe { Self::describe(schema, device, nodes, n_buffers, sizes, owner) }
    }

    /// Makes a batch of the described arrays, which have this number of buffers in all.
    ///
    /// # Safety
    /// Same as [`Batch::from_sized_parts`].
    #[inline(always)]
    unsafe fn describe<'a>(
        schema: &Schema,
        device: Device,
        nodes: impl ExactSizeIterator<Item = NodeDesc<'a>> + Clone,
        n_buffers: usize,
        sizes: &[i64],
        owner: Owner,
    ) -> std::result::Result<Self, Refused<Owner>> {
        let any = nodes.clone().flat_map(|node| node.buffers).find(|address| !address.is_null());
        // SAFETY: the caller's contract.
        let (room, table, root) = match unsafe { arrays(schema, device, nodes, n_buffers, sizes) } {
            Ok(arrays) => arrays,
            Err(error) => return Err(Refused { error, returned: owner }),
        };
        let slab = fill_in!(
            room,
            1,
            Header {
                device: device,
                nodes: table,
                source: Source::Own { root, owner, in_one_block: false },
                ready: Ready::unknown_at(device, any.map_or(std::ptr::null(), |address| *address)),
                uses: Uses::default(),
                schema: schema.clone(),
            }
        );
        Ok(Self::rooted(slab, table))
    }
}

/// Builds the arrays and checks them. Returns the room, in which only the header is missing, the table of the arrays'
/// addresses, and the root, which goes into the header.
///
/// # Safety
/// Same as [`Batch::from_sized_parts`]. `n_buffers` is the number of buffers of all nodes.
#[inline(always)]
unsafe fn arrays<'a>(
    schema: &Schema,
    device: Device,
    nodes: impl ExactSizeIterator<Item = NodeDesc<'a>> + Clone,
    n_buffers: usize,
    sizes: &[i64],
) -> Result<(Room<Header>, *mut *const ArrowArray, ArrowArray)> {
    let count = schema.nodes();
    if nodes.len() != count {
        return refuse!(DEVX_MISMATCH, "there are {} nodes, the schema has {count} fields in all", nodes.len());
    }
    let size = TailSize::default().and::<*const ArrowArray>(count)?.and::<*const c_void>(n_buffers)?;
    let room = Slab::<Header>::room(size.with(tree::room::<ArrowArray>(count)))?;
    let mut tail = room.tail();
    let table = tail.carve::<*const ArrowArray>(count);
    let place = tail.carve::<*const c_void>(n_buffers);
    let given = Given { schema, device, nodes: nodes.clone(), place };
    // SAFETY: the room was summed up above.
    let root = unsafe { build(&mut tail, given) };
    // SAFETY: the tree was built just now, of the schema's shape.
    unsafe { read_nodes(&root, schema, table) }?;
    if !sizes.is_empty() {
        // SAFETY: the caller's contract.
        unsafe { check_sizes(schema, device, nodes, sizes) }?;
    }
    Ok((room, table, root))
}

/// The nodes that are not in the tree yet.
struct Given<'a, I> {
    schema: &'a Schema,
    device: Device,
    nodes: I,
    /// Where the addresses of their buffers go.
    place: *mut *const c_void,
}

impl<'a, I: Iterator<Item = NodeDesc<'a>>> Given<'_, I> {
    /// Returns the next node, which is this one of the schema, as a struct without anything below it.
    ///
    /// # Safety
    /// There is room for the addresses of all buffers.
    #[inline(always)]
    unsafe fn next(&mut self, number: usize) -> ArrowArray {
        let Some(NodeDesc { length, null_count, offset, buffers: given }) = self.nodes.next() else {
            return ArrowArray::RELEASED;
        };
        let (buffers, mut n_buffers) = (self.place, given.len());
        // SAFETY: the caller's contract.
        unsafe { copy_table(given, buffers) };
        // SAFETY: as above.
        self.place = unsafe { buffers.add(n_buffers) };
        if length == 0 && offset == 0 {
            // SAFETY: this many addresses were stored just now.
            n_buffers = unsafe { without_elements(buffers, n_buffers, self.schema.ty(number), self.device) };
        }
        ArrowArray { length, null_count, offset, n_buffers: n_buffers as i64, buffers, ..ArrowArray::RELEASED }
    }
}

/// Builds the tree of the schema. Returns the root.
///
/// # Safety
/// `tail` has the room that [`tree::room`] gives for the nodes of the schema, and there is room for the addresses of all
/// buffers.
unsafe fn build<'a>(tail: &mut Tail, mut given: Given<'_, impl Iterator<Item = NodeDesc<'a>>>) -> ArrowArray {
    let schema = given.schema;
    let (count, links, release) = (schema.nodes(), |i: usize| &schema.record(i).links, Releases::uncounted());
    let mut root = ArrowArray::RELEASED;
    if schema.plain_from() == 1 {
        // There is nothing below the columns, so the nodes are given in the order of their numbers.
        // SAFETY: the caller's contract.
        let fill = |number| unsafe { given.next(number) };
        // SAFETY: the caller's contract, and the schema numbers one tree.
        unsafe { tree::build(tail, &mut root, count, 1, fill, links, release) };
        return root;
    }
    // SAFETY: as above.
    let below = unsafe { tree::build(tail, &mut root, count, count, |_| ArrowArray::RELEASED, links, release) };
    for number in schema.depth_first() {
        // SAFETY: the caller's contract.
        let ArrowArray { length, null_count, offset, n_buffers, buffers, .. } = unsafe { given.next(number) };
        let array = match number.checked_sub(1) {
            None => &mut root,
            // SAFETY: there is a struct for each node below the root, and no other reference to it.
            Some(number) => unsafe { &mut *below.wrapping_add(number) },
        };
        *array = ArrowArray { length, null_count, offset, n_buffers, buffers, ..*array };
    }
    root
}
