//! Foreign schemas, read before they are taken: a table in one walk, any other tree in two.

use super::MAX_NODES;
use super::count::count;
use super::format::Type;
use super::record::{Record, plain_field, plain_struct, read_records, require_distinct};
use super::tree::{Links, Node};
use crate::abi::arrow_data::ArrowSchema;
use crate::error::Result;
use crate::memory::{Room, Slab, Tail, TailSize, entry, set_entry};

/// A schema that was read, in room for a header and the records.
pub(super) struct Read<H> {
    pub(super) room: Room<H>,
    pub(super) records: *mut Record,
    pub(super) nodes: usize,
    /// From which node on all are plain.
    pub(super) plain_from: usize,
}

/// Reads and checks a schema.
///
/// # Errors
/// As `Schema::import`.
///
/// # Safety
/// `root` is valid, and so is what its tree says it has.
pub(super) unsafe fn read<H>(root: &ArrowSchema) -> Result<Read<H>> {
    // SAFETY: the caller's contract.
    if let Some(nodes) = unsafe { nodes_of_table(root) } {
        let (room, _, records) = room(nodes)?;
        // SAFETY: there is room for so many.
        if unsafe { read_table(root, records, nodes) } {
            return Ok(Read { room, records, nodes, plain_from: 1 });
        }
    }
    // SAFETY: the caller's contract.
    let count = unsafe { count(root) }?;
    let nodes = count.nodes;
    let (room, mut tail, records) = room(nodes)?;
    // SAFETY: there is room for `nodes` records, and `count` walked over that many.
    let plain_from = unsafe { read_records(root, records, nodes) }?;
    if !count.ascending {
        // SAFETY: written just now.
        unsafe { require_distinct(records.cast_const(), tail.scratch(nodes)) }?;
    }
    Ok(Read { room, records, nodes, plain_from })
}

/// Room for so many records, and then to sort their addresses in, if that is needed.
fn room<H>(nodes: usize) -> Result<(Room<H>, Tail, *mut Record)> {
    let room = Slab::room(TailSize::of::<Record>(nodes).with(TailSize::of::<usize>(nodes)))?;
    let mut tail = room.tail();
    let records = tail.carve::<Record>(nodes);
    Ok((room, tail, records))
}

/// How many nodes there are if this looks like a table: a struct of columns that have nothing below them, of which the
/// first and the last are asked.
///
/// # Safety
/// `root` is valid, and so is what its tree says it has.
unsafe fn nodes_of_table(root: &ArrowSchema) -> Option<usize> {
    let columns = usize::try_from(root.n_children).ok().filter(|columns| (1..MAX_NODES).contains(columns))?;
    let is_leaf = |i| {
        // SAFETY: the table of children has an entry for each.
        let child = unsafe { entry(root.children, i) };
        // SAFETY: a child that is not NULL is valid.
        unsafe { child.as_ref() }.is_some_and(ArrowSchema::is_leaf)
    };
    if root.children.is_null() || !is_leaf(0) || !is_leaf(columns - 1) {
        return None;
    }
    // SAFETY: the caller's contract.
    unsafe { plain_struct(root) }.then_some(columns + 1)
}

/// Reads a table of plain columns, each of which stands behind the one before it, so that none stands there twice. `false`
/// for anything else, right or wrong: the longer way knows.
///
/// # Safety
/// `nodes_of_table(root)` is `nodes`, for which there is room; the children that are there are valid.
unsafe fn read_table(root: &ArrowSchema, records: *mut Record, nodes: usize) -> bool {
    let links = Links::new(root.n_children as u32, false).numbered(1);
    // SAFETY: within the room.
    unsafe { set_entry(records, 0, Record { source: root, ty: Type::Struct, links, plain: 0 }) };
    let mut last = 0;
    for i in 1..nodes {
        // SAFETY: the table of children has an entry for each.
        let child = unsafe { entry(root.children, i - 1) };
        // SAFETY: a child that is not NULL is valid.
        let Some(field) = (unsafe { child.as_ref() }) else { return false };
        if field.release.is_none() || child.addr() <= last {
            return false;
        }
        last = child.addr();
        // SAFETY: as above.
        let Some((ty, plain)) = (unsafe { plain_field(field) }) else { return false };
        // SAFETY: within the room.
        unsafe { set_entry(records, i, Record { source: child, ty, links: Links::NONE, plain }) };
    }
    true
}
