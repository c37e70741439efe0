//! Fields of a schema, read and checked: a record for each node of the tree.

use core::ffi::c_char;
use std::mem::MaybeUninit;

use super::format::{self, Children, Type, TypeIds};
use super::metadata::Metadata;
use super::tree::{self, Links};
use crate::abi::arrow_data::ArrowSchema;
use crate::error::{Error, Result, refuse};
use crate::memory::{entry, set_entry};

/// Most bytes of a name or a format string.
const MAX_TEXT: usize = 1 << 20;

/// One field, as it was found to be.
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub(super) source: *const ArrowSchema,
    pub(super) ty: Type,
    pub(super) links: Links,
    /// No children, no dictionary, and a type whose arrays are quickly checked ([`Type::is_plain`]).
    pub(super) plain: bool,
}

/// Parses and checks every field, level by level.
///
/// # Safety
/// `records` has room for `nodes`, and `tree::count(root)` was `nodes`.
pub(super) unsafe fn read_records(root: *const ArrowSchema, records: *mut Record, nodes: usize) -> Result<()> {
    let mut next = 0;
    let mut enqueue = |source| {
        assert!(next < nodes, "a schema changed while it was read");
        // SAFETY: within the room for the records.
        unsafe { set_entry(records, next, Record { source, ty: Type::Null, links: Links::NONE, plain: false }) };
        next += 1;
        next as u32 - 1
    };
    enqueue(root);
    for i in 0..nodes {
        // SAFETY: record `i` was enqueued: by its parent, or as the root.
        let mut record = unsafe { entry(records, i) };
        // SAFETY: `count` found the struct to be there.
        let source = unsafe { &*record.source };
        // SAFETY: as above.
        if let Some(ty) = unsafe { plain_field(source) } {
            // SAFETY: as for reading it.
            unsafe { set_entry(records, i, Record { ty, plain: ty.is_plain(), ..record }) };
            continue;
        }
        // SAFETY: as above.
        let (ty, links) = match unsafe { plain_struct(source) } {
            true => (Type::Struct, Links { n_children: source.n_children as u32, ..Links::NONE }),
            // SAFETY: as above.
            false => unsafe { check_field(source) }.map_err(|error| {
                // SAFETY: as above.
                unsafe { in_field(source, error) }
            })?,
        };
        record.ty = ty;
        record.links = links;
        record.plain = links.below() == 0 && ty.is_plain();
        for k in 0..links.n_children as usize {
            // SAFETY: `count` found the table and its children to be there.
            let number = enqueue(unsafe { entry(source.children, k) }.cast_const());
            if k == 0 {
                record.links.first_child = number;
            }
        }
        if links.has_dictionary {
            let number = enqueue(source.dictionary.cast_const());
            if links.n_children == 0 {
                record.links.first_child = number;
            }
        }
        // SAFETY: as for reading it.
        unsafe { set_entry(records, i, record) };
    }
    for i in 0..nodes {
        // SAFETY: all records are written.
        let record = unsafe { entry(records, i) };
        if record.plain {
            continue;
        }
        // SAFETY: as above; a child is one of the nodes.
        let child = |index| record.links.child(index).map(|node| unsafe { entry(records.cast_const(), node) });
        check_children(record.ty, child).map_err(|error| {
            // SAFETY: `count` found the struct to be there.
            unsafe { in_field(record.source, error) }
        })?;
    }
    Ok(())
}

/// Refuses a tree in which a struct stands twice.
///
/// # Safety
/// `records` are those that [`read_records`] wrote.
pub(super) unsafe fn require_distinct(records: *const Record, scratch: &mut [MaybeUninit<usize>]) -> Result<()> {
    // SAFETY: the caller's contract.
    let place = |i| unsafe { entry(records, i) }.source;
    match tree::standing_twice(scratch, place) {
        None => Ok(()),
        Some(i) => refuse!(DEVX_INVALID_CHILDREN, "the struct stands in the tree twice: both parents would release it")
            // SAFETY: `count` found the struct to be there.
            .map_err(|error| unsafe { in_field(place(i), error) }),
    }
}

/// Says in which field something is wrong, if that has a name.
///
/// # Safety
/// `source` is valid.
unsafe fn in_field(source: *const ArrowSchema, error: Error) -> Error {
    // SAFETY: the caller's contract.
    let name = unsafe { (*source).name };
    // SAFETY: a producer's name is NULL or NUL-terminated.
    let name = unsafe { text(name, "name") }.unwrap_or("?");
    if name.is_empty() { error } else { error.within(format_args!("field {name:?}: ")) }
}

/// What a type asks of its children beyond their number.
fn check_children(ty: Type, child: impl Fn(usize) -> Option<Record>) -> Result<()> {
    match (ty, child(0)) {
        (Type::Map, Some(entries)) if entries.ty != Type::Struct || entries.links.n_children != 2 => {
            refuse!(
                DEVX_INVALID_CHILDREN,
                "children[0] of map is {} with {} children: it has to be a struct of a key and a value",
                entries.ty,
                entries.links.n_children
            )
        }
        (Type::RunEndEncoded, Some(ends)) if !matches!(ends.ty, Type::Int(2 | 4 | 8)) || ends.links.has_dictionary => {
            refuse!(
                DEVX_INVALID_CHILDREN,
                "children[0] of {ty} is {}: run ends have to be int16, int32 or int64",
                ends.ty
            )
        }
        _ => Ok(()),
    }
}

/// Recognises what nearly every field is: a type of one letter under a short name, and nothing more. For any other one, right
/// or wrong, `None`: [`check_field`] knows better, and says why.
///
/// # Safety
/// `source` is valid.
#[inline]
unsafe fn plain_field(source: &ArrowSchema) -> Option<Type> {
    let ArrowSchema { format, name, metadata, n_children, dictionary, .. } = *source;
    if n_children != 0 || !dictionary.is_null() || !metadata.is_null() || format.is_null() || name.is_null() {
        return None;
    }
    // SAFETY: a producer's name is NUL-terminated.
    unsafe { short(name) }?;
    // SAFETY: a producer's format is NUL-terminated.
    match unsafe { short(format) }?.as_bytes() {
        // None of these types has children.
        [letter] => format::of_letter(*letter),
        _ => None,
    }
}

/// Recognises what nearly every record batch is, as [`plain_field`].
///
/// # Safety
/// As [`plain_field`].
#[inline(never)]
unsafe fn plain_struct(source: &ArrowSchema) -> bool {
    let ArrowSchema { format, name, metadata, dictionary, .. } = *source;
    if !dictionary.is_null() || !metadata.is_null() || format.is_null() {
        return false;
    }
    // SAFETY: a producer's format is NUL-terminated.
    let is_struct = unsafe { short(format) }.is_some_and(|format| format.as_bytes() == b"+s");
    // SAFETY: a producer's name is NULL or NUL-terminated.
    is_struct && (name.is_null() || unsafe { short(name) }.is_some())
}

/// # Safety
/// `source` is valid and its children and dictionary are not NULL.
unsafe fn check_field(source: &ArrowSchema) -> Result<(Type, Links)> {
    if source.format.is_null() {
        return refuse!(DEVX_INVALID_FORMAT, "format is NULL");
    }
    // SAFETY: a producer's format is NUL-terminated.
    let format = unsafe { text(source.format, "format") }?;
    let ty = Type::parse(format)?;
    // SAFETY: a producer's name is NULL or NUL-terminated.
    unsafe { text(source.name, "name") }?;
    // SAFETY: a producer's metadata is NULL or as long as it says.
    unsafe { Metadata::check(source.metadata) }?;
    let n_children = source.n_children as u32;
    match ty.children() {
        Children::Exactly(n) if n != n_children => {
            return refuse!(DEVX_INVALID_CHILDREN, "n_children is {n_children}: {ty} has {n}");
        }
        _ => {}
    }
    if let Some(ids) = type_ids(ty, format).filter(|ids| ids.count() != n_children) {
        return refuse!(DEVX_INVALID_CHILDREN, "n_children is {n_children}: {format:?} has {} type ids", ids.count());
    }
    let has_dictionary = !source.dictionary.is_null();
    if has_dictionary && !ty.is_integer() {
        return refuse!(DEVX_MISMATCH, "there is a dictionary, but the index type is {ty}, not an integer");
    }
    Ok((ty, Links { first_child: 0, n_children, has_dictionary }))
}

/// The type ids in the format string of a union.
pub(super) fn type_ids(ty: Type, format: &str) -> Option<TypeIds> {
    TypeIds::parse(format.get(4..).filter(|_| ty.is_union())?)
}

/// A text of a foreign struct; NULL is the empty one.
///
/// # Safety
/// `from` is NULL or NUL-terminated, and outlives the result.
pub(super) unsafe fn text<'a>(from: *const c_char, what: &str) -> Result<&'a str> {
    if from.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's contract.
    if let Some(text) = unsafe { short(from) } {
        return Ok(text);
    }
    // SAFETY: the caller's contract; the bound keeps a missing NUL from running through all of memory.
    let length = unsafe { libc::strnlen(from, MAX_TEXT) };
    if length == MAX_TEXT {
        return refuse!(DEVX_INVALID_TEXT, "{what} has no end within {MAX_TEXT} bytes");
    }
    // SAFETY: `length` bytes were read above.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) };
    std::str::from_utf8(bytes).map_err(|_| {
        let shown = String::from_utf8_lossy(bytes).into_owned();
        Error::new(crate::abi::types::DEVX_INVALID_TEXT, format!("{what} is not valid UTF-8: {shown:?}"))
    })
}

/// What nearly every text is: a few letters of ASCII.
///
/// # Safety
/// `from` is NUL-terminated, and outlives the result.
#[inline]
unsafe fn short<'a>(from: *const c_char) -> Option<&'a str> {
    let mut all = 0;
    for i in 0..64 {
        // SAFETY: no byte before this one was the last.
        let byte = unsafe { entry(from.cast::<u8>(), i) };
        if byte == 0 {
            // SAFETY: so many bytes were read above.
            let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), i) };
            // SAFETY: ASCII is UTF-8.
            return (all < 0x80).then(|| unsafe { std::str::from_utf8_unchecked(bytes) });
        }
        all |= byte;
    }
    None
}
