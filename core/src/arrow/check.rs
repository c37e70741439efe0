//! Checks that the arrays of a tree are what their schema says, as far as that can be seen without reading a buffer.

mod array;
mod plain;

use std::mem::MaybeUninit;

use super::count::standing_twice;
use super::schema::Schema;
use crate::abi::arrow_data::ArrowArray;
use crate::error::{Error, Result, refuse};
use crate::memory::{entry, set_entry};
use array::check_array;

pub(super) use array::require_live;

/// Checks every array against its field and writes down its address.
///
/// Returns whether each struct below the root lies behind the one before it. If not, a struct may be in the tree twice;
/// see [`require_distinct`].
///
/// # Errors
/// Those of the first array, level by level, that is wrong.
///
/// # Safety
/// `root` is valid, `nodes` has room for the nodes of `schema`.
#[inline(always)]
pub(super) unsafe fn read_nodes(
    root: *const ArrowArray,
    schema: &Schema,
    nodes: *mut *const ArrowArray,
) -> Result<bool> {
    // SAFETY: the caller's contract.
    match unsafe { plain::recognise(root, schema, nodes) } {
        Some(places) => Ok(places.ascending),
        // SAFETY: the caller's contract.
        None => unsafe { check_all(root, schema, nodes) }.map(|()| false),
    }
}

/// Checks every array against its field, level by level, and writes down its address.
///
/// # Safety
/// Same as [`read_nodes`].
#[cold]
unsafe fn check_all(root: *const ArrowArray, schema: &Schema, nodes: *mut *const ArrowArray) -> Result<()> {
    // SAFETY: there is room for the root at least.
    unsafe { set_entry(nodes, 0, root) };
    for (i, record) in schema.records().iter().enumerate() {
        // SAFETY: address `i` is written already, by its parent or as that of the root.
        let array = unsafe { entry(nodes, i) };
        // SAFETY: not NULL, and valid by the caller's contract.
        let array = unsafe { &*array };
        // SAFETY: as above, and the schema counts the children among its nodes.
        unsafe { check_array(array, record.ty, &record.links, nodes) }.map_err(|error| in_array(schema, i, error))?;
    }
    Ok(())
}

/// Refuses a tree that contains a struct twice.
///
/// # Safety
/// `nodes` are the addresses that [`read_nodes`] wrote; `scratch` is as long.
#[cold]
pub(super) unsafe fn require_distinct(
    schema: &Schema,
    nodes: *const *const ArrowArray,
    scratch: &mut [MaybeUninit<usize>],
) -> Result<()> {
    // SAFETY: the caller's contract.
    match standing_twice(scratch, |i| unsafe { entry(nodes, i) }) {
        None => Ok(()),
        Some(i) => refuse!(DEVX_INVALID_CHILDREN, "the struct stands in the tree twice: both parents would release it")
            .map_err(|error| in_array(schema, i, error)),
    }
}

/// Names the array that an error is about, if its field has a name.
pub(crate) fn in_array(schema: &Schema, node: usize, error: Error) -> Error {
    error.within_named("array", schema.field(node).map_or("", |field| field.name()))
}
