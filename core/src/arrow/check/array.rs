//! Checks that one array is what its field says.

use crate::abi::arrow_data::ArrowArray;
use crate::arrow::format::{Buffer, Buffers, Type};
use crate::arrow::tree::Links;
use crate::error::{Result, refuse};
use crate::memory::{entry, set_entry};

/// Refuses an array that was released or moved from.
pub(in crate::arrow) fn require_live(array: &ArrowArray) -> Result<()> {
    match array.release {
        Some(_) => Ok(()),
        None => refuse!(DEVX_RELEASED, "array.release is NULL: the array was released or moved from"),
    }
}

/// Checks one array and writes down the addresses of its children and its dictionary.
///
/// # Safety
/// `array` is valid, and `nodes` has room for all nodes of the schema, to which those belong.
pub(super) unsafe fn check_array(
    array: &ArrowArray,
    ty: Type,
    links: &Links,
    nodes: *mut *const ArrowArray,
) -> Result<()> {
    let end = check_length(array)?;
    if array.null_count > 0 && (ty.is_union() || ty == Type::RunEndEncoded) {
        return refuse!(DEVX_INVALID_NULL_COUNT, "null_count is {}: {ty} has no nulls of its own", array.null_count);
    }
    // SAFETY: the array is valid.
    unsafe { check_buffers(array, ty, end) }?;
    let n_children = links.n_children();
    if array.n_children != n_children as i64 {
        return refuse!(DEVX_MISMATCH, "n_children is {}: the schema has {n_children}", array.n_children);
    }
    if n_children > 0 && array.children.is_null() {
        return refuse!(DEVX_INVALID_CHILDREN, "children is NULL with n_children {n_children}");
    }
    // Number of run ends, which are in the first child.
    let mut runs = 0;
    for k in 0..n_children {
        // SAFETY: the table has `n_children` entries.
        let child = unsafe { entry(array.children, k) };
        // SAFETY: a child that is not NULL is valid.
        let (length, null_count) = match unsafe { child.as_ref() } {
            None => return refuse!(DEVX_INVALID_CHILDREN, "children[{k}] is NULL"),
            Some(child) if child.release.is_none() => {
                return refuse!(DEVX_INVALID_CHILDREN, "children[{k}] is released or was moved out");
            }
            Some(child) => (child.length, child.null_count),
        };
        let least = match ty {
            Type::Struct | Type::SparseUnion => Some(end),
            Type::FixedSizeList(size) => end.checked_mul(size.into()),
            // As many values as run ends, and at least one run if there are rows.
            Type::RunEndEncoded if k == 0 => Some(i64::from(end > 0)),
            Type::RunEndEncoded => Some(runs),
            _ => Some(0),
        };
        // A negative length is an error of the child itself, and is reported with the child's name.
        if length >= 0 && least.is_none_or(|least| length < least) {
            return refuse!(
                DEVX_INVALID_LENGTH,
                "children[{k}].length is {length}: {ty} of length {} and offset {} needs more",
                array.length,
                array.offset
            );
        }
        if ty == Type::RunEndEncoded && k == 0 {
            runs = length;
            if null_count > 0 {
                return refuse!(
                    DEVX_INVALID_NULL_COUNT,
                    "children[0].null_count is {null_count}: run ends are never null"
                );
            }
        }
        // SAFETY: the schema counts this child among its nodes.
        unsafe { set_entry(nodes, links.first_child as usize + k, child) };
    }
    // SAFETY: a dictionary that is not NULL is valid.
    match (unsafe { array.dictionary.as_ref() }, links.dictionary()) {
        (None, None) => Ok(()),
        (Some(_), None) => refuse!(DEVX_MISMATCH, "there is a dictionary, but the schema has none"),
        (None, Some(_)) => refuse!(DEVX_MISMATCH, "dictionary is NULL, but the schema has one"),
        (Some(dictionary), Some(_)) if dictionary.release.is_none() => {
            refuse!(DEVX_INVALID_CHILDREN, "dictionary is released or was moved out")
        }
        (Some(dictionary), Some(node)) => {
            // SAFETY: the schema counts the dictionary among its nodes.
            unsafe { set_entry(nodes, node, std::ptr::from_ref(dictionary)) };
            Ok(())
        }
    }
}

/// Checks length, offset and null count. Returns `offset + length`.
fn check_length(array: &ArrowArray) -> Result<i64> {
    let ArrowArray { length, null_count, offset, .. } = *array;
    if length < 0 {
        return refuse!(DEVX_INVALID_LENGTH, "length is {length}: it must not be negative");
    }
    if offset < 0 {
        return refuse!(DEVX_INVALID_LENGTH, "offset is {offset}: it must not be negative");
    }
    if null_count < -1 || null_count > length {
        return refuse!(
            DEVX_INVALID_NULL_COUNT,
            "null_count is {null_count} with length {length}: it must be between -1 and the length"
        );
    }
    match offset.checked_add(length) {
        Some(end) => Ok(end),
        None => refuse!(DEVX_INVALID_LENGTH, "offset {offset} and length {length} are more than an int64 can count"),
    }
}

/// # Safety
/// `array` is valid.
unsafe fn check_buffers(array: &ArrowArray, ty: Type, end: i64) -> Result<()> {
    let expected = ty.buffers();
    let n_buffers = array.n_buffers;
    if ty == Type::Null && n_buffers == 1 {
        // A place for a bitmap, as before Arrow 1.0; polars still passes it. Nobody reads it, see `Batch::buffers`.
        return Ok(());
    }
    if !expected.fits(n_buffers) {
        let at_least = if expected == Buffers::Views { "at least " } else { "" };
        return refuse!(DEVX_INVALID_BUFFERS, "n_buffers is {n_buffers}: {ty} has {at_least}{}", expected.count());
    }
    if n_buffers > 0 && array.buffers.is_null() {
        return refuse!(DEVX_INVALID_BUFFERS, "buffers is NULL with n_buffers {n_buffers}");
    }
    let count = n_buffers as usize;
    for i in 0..count {
        // SAFETY: the table has `n_buffers` entries.
        let buffer = unsafe { entry(array.buffers, i) };
        let (needed, bits) = match expected.get(i, count) {
            Some(Buffer::Validity) => {
                if buffer.is_null() && array.null_count > 0 {
                    return refuse!(
                        DEVX_INVALID_NULL_COUNT,
                        "null_count is {} but the validity buffer is NULL",
                        array.null_count
                    );
                }
                (false, 1)
            }
            Some(Buffer::Values(bits)) => (end > 0 && bits > 0, bits),
            Some(Buffer::Offsets(bytes)) => (end > 0, u64::from(bytes) * 8),
            // How long these buffers are, and thus whether they may be missing, only the sizes say, which are data.
            Some(Buffer::ViewSizes) => (end > 0 && count > expected.count(), 0),
            Some(Buffer::Data | Buffer::ViewData) | None => (false, 0),
        };
        if needed && buffer.is_null() {
            return refuse!(
                DEVX_INVALID_BUFFERS,
                "buffers[{i}] is NULL with length {} and offset {}",
                array.length,
                array.offset
            );
        }
        // One element more than `end`, for offsets.
        let bytes = (i128::from(end) + 1) * i128::from(bits) / 8;
        if isize::try_from(bytes).is_err() {
            return refuse!(DEVX_INVALID_LENGTH, "buffers[{i}] would have {bytes} bytes: more than can be addressed");
        }
    }
    Ok(())
}
