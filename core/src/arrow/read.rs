//! Foreign schemas, read before they are taken: first their nodes are counted, then each field is checked. Tables, as
//! nearly all schemas are, take a shorter way.

use std::ptr::NonNull;

use super::MAX_NODES;
use super::count::count;
use super::format::Type;
use super::record::{Record, plain_leaf, plain_struct, read_records, require_distinct};
use super::tree::{Links, Node};
use crate::abi::arrow_data::ArrowSchema;
use crate::error::Result;
use crate::memory::{Room, Slab, Tail, TailSize};

/// A schema that was read, in a room for a header and the records.
pub(super) struct Read<H> {
    pub(super) room: Room<H>,
    pub(super) records: *mut Record,
    pub(super) nodes: usize,
    /// The first node from which on all nodes are plain.
    pub(super) plain_from: usize,
}

/// Reads and checks a schema.
///
/// # Errors
/// Same as `Schema::import`.
///
/// # Safety
/// `root` is valid, and so is everything that its tree says it has.
pub(super) unsafe fn read<H>(root: &ArrowSchema) -> Result<Read<H>> {
    // SAFETY: the caller's contract.
    let (mut place, ascending) = match unsafe { columns_of_table(root) } {
        Some(columns) => {
            let place = Place::new(columns.len() + 1)?;
            // SAFETY: there is room for this many records.
            if unsafe { read_table(root, columns, place.records) } {
                return Ok(place.read(1));
            }
            (place, true)
        }
        None => {
            // SAFETY: the caller's contract.
            let count = unsafe { count(root) }?;
            (Place::new(count.nodes)?, count.ascending)
        }
    };
    // SAFETY: there is room for this many records, and this many nodes were counted.
    let plain_from = unsafe { read_records(root, place.records, place.nodes) }?;
    if !ascending {
        // SAFETY: written just now.
        unsafe { require_distinct(place.records.cast_const(), place.tail.scratch(place.nodes)) }?;
    }
    Ok(place.read(plain_from))
}

/// Room for a number of records, and for sorting their addresses, in case that is needed.
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

/// Returns the columns if this is a table: a struct of columns with nothing below them. Each column lies behind the one
/// before it, so that none is in the table twice.
///
/// # Safety
/// `root` is valid, and so is everything that its tree says it has.
unsafe fn columns_of_table(root: &ArrowSchema) -> Option<&[NonNull<ArrowSchema>]> {
    let n_children = usize::try_from(root.n_children).ok().filter(|n| (1..MAX_NODES).contains(n))?;
    let children = NonNull::new(root.children)?;
    // SAFETY: the table of children has an entry for each.
    let children = unsafe { std::slice::from_raw_parts(children.as_ptr().cast_const(), n_children) };
    let mut last = 0;
    for child in children {
        if child.addr() <= last {
            return None;
        }
        last = child.addr();
        // SAFETY: a child that is not NULL is valid.
        let child = unsafe { &**child };
        if child.release.is_none() || !child.is_leaf() {
            return None;
        }
    }
    // SAFETY: the caller's contract.
    if !unsafe { plain_struct(root) } {
        return None;
    }
    // SAFETY: no entry is NULL.
    Some(unsafe { std::slice::from_raw_parts(children.as_ptr().cast(), n_children) })
}

/// Reads a table whose columns are plain. Returns `false` if they are not, valid or not: the longer way decides.
///
/// # Safety
/// `columns` are those that [`columns_of_table`] returned for the root. There is room for one record more than columns.
unsafe fn read_table(root: &ArrowSchema, columns: &[NonNull<ArrowSchema>], records: *mut Record) -> bool {
    let links = Links::new(columns.len() as u32, false).numbered(1);
    let mut place = records;
    // SAFETY: the first record is within the room.
    unsafe { place.write(Record { source: root, ty: Type::Struct, links, plain: 0 }) };
    for column in columns {
        // SAFETY: this record is within the room.
        place = unsafe { place.add(1) };
        let note = |ty, plain| {
            // SAFETY: as above.
            unsafe { place.write(Record { source: column.as_ptr(), ty, links: Links::NONE, plain }) };
        };
        // SAFETY: `columns_of_table` checked the struct.
        let field = unsafe { column.as_ref() };
        // SAFETY: as above.
        if !unsafe { plain_leaf(field, note) } {
            return false;
        }
    }
    true
}
