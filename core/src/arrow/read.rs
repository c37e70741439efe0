//! Foreign schemas, read before they are taken: counted, and then each field looked at. Of tables, as nearly all are, with
//! less to ask on both ways.

use super::MAX_NODES;
use super::count::count;
use super::format::Type;
use super::record::{Record, plain_leaf, plain_struct, read_records, require_distinct};
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
    if let Some(columns) = unsafe { columns_of_table(root) } {
        let place = Place::new(columns + 1)?;
        // SAFETY: there is room for so many, and the root.
        if unsafe { read_table(root, place.records, columns) } {
            return Ok(place.read(1));
        }
    }
    // SAFETY: the caller's contract.
    unsafe { read_tree(root) }
}

/// As [`read`], of any tree.
///
/// # Safety
/// As [`read`].
#[inline(never)]
unsafe fn read_tree<H>(root: &ArrowSchema) -> Result<Read<H>> {
    // SAFETY: the caller's contract.
    let count = unsafe { count(root) }?;
    let mut place = Place::new(count.nodes)?;
    // SAFETY: there is room for so many records, and so many nodes were counted.
    let plain_from = unsafe { read_records(root, place.records, place.nodes) }?;
    if !count.ascending {
        // SAFETY: written just now.
        unsafe { require_distinct(place.records.cast_const(), place.tail.scratch(place.nodes)) }?;
    }
    Ok(place.read(plain_from))
}

/// Room for so many records, and then to sort their addresses in, if that is needed.
struct Place<H> {
    room: Room<H>,
    tail: Tail,
    records: *mut Record,
    nodes: usize,
}

impl<H> Place<H> {
    #[inline(always)]
    fn new(nodes: usize) -> Result<Self> {
        let room = Slab::room(TailSize::of::<Record>(nodes).with(TailSize::of::<usize>(nodes)))?;
        let mut tail = room.tail();
        let records = tail.carve::<Record>(nodes);
        Ok(Self { room, tail, records, nodes })
    }

    fn read(self, plain_from: usize) -> Read<H> {
        let Self { room, records, nodes, .. } = self;
        Read { room, records, nodes, plain_from }
    }
}

/// How many columns there are if this can be a table: a struct of columns with nothing below them.
///
/// # Safety
/// `root` is valid, and so is what its tree says it has.
#[inline]
unsafe fn columns_of_table(root: &ArrowSchema) -> Option<usize> {
    let columns = usize::try_from(root.n_children).ok().filter(|columns| (1..MAX_NODES).contains(columns))?;
    // SAFETY: the caller's contract.
    (!root.children.is_null() && unsafe { plain_struct(root) }).then_some(columns)
}

/// Reads a table whose columns are plain, and each of which stands behind the one before it, so that none stands there
/// twice. `false` of any other tree, right or wrong: the longer way knows.
///
/// # Safety
/// `columns_of_table(root)` is `columns`; there is room for one more.
#[inline]
unsafe fn read_table(root: &ArrowSchema, records: *mut Record, columns: usize) -> bool {
    let links = Links::new(columns as u32, false).numbered(1);
    // SAFETY: within the room.
    unsafe { set_entry(records, 0, Record { source: root, ty: Type::Struct, links, plain: 0 }) };
    let mut last = 0;
    for i in 0..columns {
        // SAFETY: the table of children has an entry for each.
        let child = unsafe { entry(root.children, i) };
        if child.addr() <= last {
            return false;
        }
        last = child.addr();
        // SAFETY: a child that is not NULL is valid.
        let field = unsafe { &*child };
        if field.release.is_none() || !field.is_leaf() {
            return false;
        }
        // SAFETY: as above.
        let Some((ty, plain)) = (unsafe { plain_leaf(field) }) else { return false };
        // SAFETY: within the room.
        unsafe { set_entry(records, i + 1, Record { source: child, ty, links: Links::NONE, plain }) };
    }
    true
}
