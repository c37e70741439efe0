//! Recognises nearly every tree of arrays: tables whose columns have a buffer of values, perhaps with nulls.
//!
//! A tree that is not recognised may still be right: [`super::array`] decides, and says what is wrong.

use super::array::check_array;
use crate::abi::arrow_data::ArrowArray;
use crate::arrow::format::Type;
use crate::arrow::record::Record;
use crate::arrow::schema::Schema;
use crate::arrow::tree::Links;
use crate::memory::{entry, set_entry};

/// Where the structs below a root lie in memory.
#[derive(Clone, Copy)]
pub(super) struct Places {
    /// Whether each struct lies behind the one before it. If so, none is in the tree twice.
    pub(super) ascending: bool,
    last: *const ArrowArray,
}

impl Places {
    /// The places of no structs yet.
    const NONE: Self = Self { ascending: true, last: std::ptr::null() };
}

/// Checks every array against its field and writes down its address. Returns `None` if anything is unusual.
///
/// # Safety
/// `root` is valid, `nodes` has room for the nodes of `schema`.
#[inline(always)]
pub(super) unsafe fn recognise(
    root: *const ArrowArray,
    schema: &Schema,
    nodes: *mut *const ArrowArray,
) -> Option<Places> {
    // SAFETY: there is room for the root at least.
    unsafe { set_entry(nodes, 0, root) };
    // SAFETY: valid by the caller's contract.
    let array = unsafe { &*root };
    if let (1, [record, columns @ ..]) = (schema.plain_from(), schema.records())
        && record.ty == Type::Struct
        // SAFETY: as above.
        && unsafe { is_plain_struct(array, &record.links) }
    {
        // A table: everything is directly below the root.
        // SAFETY: the table of children has an address for each column, and there is room for all nodes of the schema.
        return unsafe { recognise_below(root, below(array), columns, nodes.wrapping_add(1), Places::NONE) };
    }
    // SAFETY: the caller's contract; the root's address is written.
    unsafe { recognise_tree(root, schema, nodes) }
}

/// Like [`recognise`], but for any tree.
///
/// # Safety
/// Same as [`recognise`]; the address of the root is written.
#[inline(never)]
unsafe fn recognise_tree(root: *const ArrowArray, schema: &Schema, nodes: *mut *const ArrowArray) -> Option<Places> {
    let records = schema.records();
    let mut places = Places::NONE;
    for (i, record) in records.get(..schema.plain_from())?.iter().enumerate() {
        // A plain array was checked with its parent.
        if record.plain != 0 && i > 0 {
            continue;
        }
        // SAFETY: address `i` is written already, by its parent or as that of the root.
        let array = unsafe { entry(nodes, i) };
        // SAFETY: not NULL, and valid by the caller's contract.
        let array = unsafe { &*array };
        let links = &record.links;
        let records = records.get(links.first_child as usize..)?.get(..links.below())?;
        let target = nodes.wrapping_add(links.first_child as usize);
        // SAFETY: the array is valid.
        let children = if record.ty == Type::Struct && unsafe { is_plain_struct(array, links) } {
            below(array)
        } else {
            // SAFETY: the array is valid, and there is room for all nodes of the schema.
            unsafe { check_array(array, record.ty, links, nodes) }.ok()?;
            (target.cast_const(), 0)
        };
        // SAFETY: the table has an address for each of them, and there is room for all nodes of the schema.
        places = unsafe { recognise_below(root, children, records, target, places) }?;
    }
    Some(places)
}

/// The children of a struct, and the least number of elements of each.
#[inline]
fn below(array: &ArrowArray) -> (*const *const ArrowArray, i64) {
    (array.children.cast::<*const ArrowArray>().cast_const(), array.offset + array.length)
}

/// Checks what is below one array: all arrays must be there, with at least `least` elements each, and the plain ones
/// must be right. If so, writes down their addresses.
///
/// # Safety
/// `table` has as many addresses as there are records, each NULL or that of a valid array, and `target` has room for
/// them.
#[inline(never)]
unsafe fn recognise_below(
    root: *const ArrowArray,
    (table, least): (*const *const ArrowArray, i64),
    records: &[Record],
    target: *mut *const ArrowArray,
    mut places: Places,
) -> Option<Places> {
    for (k, record) in records.iter().enumerate() {
        // SAFETY: the caller's contract.
        let child = unsafe { entry(table, k) };
        // SAFETY: the caller's contract.
        let array = unsafe { child.as_ref() }?;
        if array.release.is_none() || array.length < least {
            return None;
        }
        let right = match record.plain {
            // A plain array cannot be the root, which has something below it.
            0 => child != root,
            // SAFETY: the array is valid.
            n_buffers => unsafe { is_plain(array, n_buffers) },
        };
        if !right {
            return None;
        }
        places = Places { ascending: places.ascending & (places.last < child), last: child };
        // SAFETY: the caller's contract.
        unsafe { set_entry(target, k, child) };
    }
    Some(places)
}

/// Whether an array is right, given the [`Record::plain`] of its field.
///
/// # Safety
/// `array` is valid.
#[inline]
unsafe fn is_plain(array: &ArrowArray, n_buffers: u8) -> bool {
    let ArrowArray { length, offset, buffers, .. } = *array;
    if !has_shape(array, n_buffers.into(), 0) || !has_small_counts(array) || buffers.is_null() {
        return false;
    }
    // SAFETY: the table has `n_buffers` entries, at least two.
    let values = unsafe { entry(buffers, 1) };
    // SAFETY: as above.
    (!values.is_null() || offset + length == 0) && unsafe { has_right_nulls(array) }
}

/// Like [`is_plain`], but for a field that is a struct. Its children are not checked.
///
/// # Safety
/// `array` is valid.
#[inline]
unsafe fn is_plain_struct(array: &ArrowArray, links: &Links) -> bool {
    let ArrowArray { buffers, children, .. } = *array;
    // A struct has no dictionary.
    if !has_shape(array, 1, links.below() as i64) || !has_small_counts(array) || buffers.is_null() {
        return false;
    }
    // SAFETY: the table of buffers has an entry.
    (!children.is_null() || links.is_leaf()) && unsafe { has_right_nulls(array) }
}

/// Whether an array has this number of buffers and of children, and no dictionary: one comparison instead of three.
#[inline]
fn has_shape(array: &ArrowArray, n_buffers: i64, n_children: i64) -> bool {
    (array.n_buffers ^ n_buffers) | (array.n_children ^ n_children) | array.dictionary.addr() as i64 == 0
}

/// Whether length and offset are not negative, and so small that 256 bits for each element can be addressed: none of
/// the upper bits is set.
#[inline]
fn has_small_counts(array: &ArrowArray) -> bool {
    (array.length | array.offset) as u64 >> 48 == 0
}

/// Whether there are no nulls, or an unknown number, or a possible number with a validity buffer.
///
/// # Safety
/// The table of buffers has an entry.
#[inline]
unsafe fn has_right_nulls(array: &ArrowArray) -> bool {
    let ArrowArray { length, null_count, buffers, .. } = *array;
    // SAFETY: the caller's contract.
    matches!(null_count, -1 | 0) || ((0..=length).contains(&null_count) && !unsafe { *buffers }.is_null())
}
