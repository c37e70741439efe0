//! Fields of a schema, read and checked: a record for each node of the tree.

use core::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::count::standing_twice;
use super::format::{Children, Type, TypeIds, plain_buffers_of_letter, type_of_letter};
use super::metadata::Metadata;
use super::tree::{Links, Node};
use crate::abi::arrow_data::ArrowSchema;
use crate::error::{Error, Result, refuse};
use crate::memory::{entry, set_entry};
use crate::text::Lossy;

/// Most bytes of a name or a format string.
const MAX_TEXT: usize = 1 << 20;

/// One field, as it was found to be.
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub(super) source: *const ArrowSchema,
    pub(super) ty: Type,
    pub(super) links: Links,
    /// [`Type::plain_buffers`], if nothing hangs below; otherwise 0.
    pub(super) plain: u8,
}

#[cold]
fn changed<T>(nodes: usize) -> Result<T> {
    refuse!(DEVX_INVALID_CHILDREN, "n_children changed while the schema was read: there were {nodes} fields before")
}

/// Parses and checks every field. Returns from which one on all are plain, the first not counted.
///
/// # Errors
/// Those of the first field, level by level, in which something is wrong.
///
/// # Safety
/// `records` has room for `nodes`, and so many were counted.
pub(super) unsafe fn read_records(root: *const ArrowSchema, records: *mut Record, nodes: usize) -> Result<usize> {
    let write = |i, source: *const ArrowSchema, ty, plain| {
        // SAFETY: within the room for the records, as is made sure below.
        unsafe { set_entry(records, i, Record { source, ty, links: Links::NONE, plain }) };
    };
    write(0, root, Type::Null, 0);
    // How many are found, and up to where there may be some that are not plain and so not read when they are found.
    let (mut found, mut unread) = (1, 1);
    let mut i = 0;
    while i < unread {
        // SAFETY: record `i` was found: by its parent, or as the root.
        let record = unsafe { entry(records, i) };
        i += 1;
        if record.plain != 0 {
            continue;
        }
        // SAFETY: `count` found the struct to be there.
        let source = unsafe { &*record.source };
        // SAFETY: as above.
        let (ty, links) = match unsafe { plain_struct(source) } {
            true => (Type::Struct, Links::new(source.n_children as u32, false)),
            // SAFETY: as above.
            false => unsafe { check_field(source) }.map_err(|error| {
                // SAFETY: as above.
                unsafe { in_field(source, error) }
            })?,
        };
        let links = links.numbered(found as u32);
        let plain = if links.is_leaf() { ty.plain_buffers() } else { 0 };
        // SAFETY: as for reading it.
        unsafe { set_entry(records, i - 1, Record { source, ty, links, plain }) };
        if found + links.below() > nodes {
            return changed(nodes);
        }
        let children = source.children;
        for k in 0..links.n_children() {
            // SAFETY: `count` found the table to be there.
            let child = unsafe { entry(children, k) };
            // SAFETY: as above.
            let field = unsafe { &*child };
            // SAFETY: as above.
            let is_plain =
                field.is_leaf() && unsafe { plain_leaf(field, |ty, plain| write(found + k, child, ty, plain)) };
            if !is_plain {
                write(found + k, child, Type::Null, 0);
                unread = found + k + 1;
            }
        }
        found += links.below();
        if links.dictionary().is_some() {
            write(found - 1, source.dictionary, Type::Null, 0);
            unread = found;
        }
    }
    if found != nodes {
        return changed(nodes);
    }
    for i in 0..unread {
        // SAFETY: all records are written.
        let record = unsafe { entry(records, i) };
        // SAFETY: as above; a child is one of the nodes.
        let child = |index| record.links.child(index).map(|node| unsafe { entry(records.cast_const(), node) });
        check_children(record.ty, child).map_err(|error| {
            // SAFETY: `count` found the struct to be there.
            unsafe { in_field(record.source, error) }
        })?;
    }
    Ok(unread)
}

/// Refuses a tree in which a struct stands twice.
///
/// # Safety
/// `records` are those that [`read_records`] wrote; `scratch` is as long.
#[cold]
pub(super) unsafe fn require_distinct(records: *const Record, scratch: &mut [MaybeUninit<usize>]) -> Result<()> {
    // SAFETY: the caller's contract.
    let place = |i| unsafe { entry(records, i) }.source;
    match standing_twice(scratch, place) {
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
pub(super) unsafe fn in_field(source: *const ArrowSchema, error: Error) -> Error {
    // SAFETY: the caller's contract.
    let name = unsafe { (*source).name };
    // SAFETY: a producer's name is NULL or NUL-terminated.
    let name = unsafe { text(name, "name") }.unwrap_or("?");
    error.within_named("field", name)
}

/// What a type asks of its children beyond their number.
fn check_children(ty: Type, child: impl Fn(usize) -> Option<Record>) -> Result<()> {
    if !matches!(ty, Type::Map | Type::RunEndEncoded) {
        return Ok(());
    }
    match (ty, child(0)) {
        (Type::Map, Some(entries)) if entries.ty != Type::Struct || entries.links.n_children() != 2 => {
            refuse!(
                DEVX_INVALID_CHILDREN,
                "children[0] of map is {} with {} children: it has to be a struct of a key and a value",
                entries.ty,
                entries.links.n_children()
            )
        }
        (Type::RunEndEncoded, Some(ends)) if !matches!(ends.ty, Type::Int(2 | 4 | 8)) || !ends.links.is_leaf() => {
            refuse!(
                DEVX_INVALID_CHILDREN,
                "children[0] of {ty} is {}: run ends have to be int16, int32 or int64",
                ends.ty
            )
        }
        _ => Ok(()),
    }
}

/// Notes the type of a field that has nothing below it and its [`Record::plain`], if its arrays are plain; if not, `false`.
///
/// # Safety
/// `source` is valid.
// Noted in two places: what both ways come to would be asked for how it came about.
#[inline(always)]
pub(super) unsafe fn plain_leaf(source: &ArrowSchema, note: impl Fn(Type, u8)) -> bool {
    // SAFETY: the caller's contract.
    let Some(format) = (unsafe { plain_format(source) }) else { return false };
    // SAFETY: a producer's format is NUL-terminated.
    if let Some(letter) = unsafe { plain_letter(format) } {
        note(type_of_letter(letter), plain_buffers_of_letter(letter));
        return true;
    }
    // SAFETY: as above.
    let Some(ty) = (unsafe { word(format) }) else { return false };
    let plain = ty.plain_buffers();
    if plain != 0 {
        note(ty, plain);
    }
    plain != 0
}

/// The format of a field as nearly all are: with a short name, and without metadata.
///
/// For any other one, right or wrong, `None`, as of the functions that follow: [`check_field`] knows better, and says why.
///
/// # Safety
/// `source` is valid.
#[inline(always)]
unsafe fn plain_format(source: &ArrowSchema) -> Option<NonNull<c_char>> {
    let ArrowSchema { format, name, metadata, .. } = *source;
    if !metadata.is_null() || name.is_null() {
        return None;
    }
    // SAFETY: a producer's name is NUL-terminated.
    unsafe { short(name) }?;
    NonNull::new(format.cast_mut())
}

/// A format that is one letter, for a type whose arrays are plain.
///
/// # Safety
/// `format` is NUL-terminated.
#[inline]
unsafe fn plain_letter(format: NonNull<c_char>) -> Option<u8> {
    // SAFETY: the caller's contract.
    let letter = unsafe { entry(format.as_ptr().cast::<u8>(), 0) };
    // SAFETY: as above, and the first byte was not the last.
    (plain_buffers_of_letter(letter) != 0 && unsafe { entry(format.as_ptr(), 1) } == 0).then_some(letter)
}

/// The type that a word stands for.
///
/// # Safety
/// Same as [`plain_letter`].
#[inline(never)]
unsafe fn word(format: NonNull<c_char>) -> Option<Type> {
    // SAFETY: the caller's contract.
    Type::parse(unsafe { short(format.as_ptr()) }?).ok()
}

/// Whether a field is one of a struct, as the root of nearly every schema is.
///
/// # Safety
/// `source` is valid.
#[inline(never)]
pub(super) unsafe fn plain_struct(source: &ArrowSchema) -> bool {
    // SAFETY: the caller's contract.
    let format = if source.dictionary.is_null() { unsafe { plain_format(source) } } else { None };
    // SAFETY: a producer's format is NUL-terminated.
    format.and_then(|format| unsafe { short(format.as_ptr()) }).is_some_and(|format| format == "+s")
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
    Ok((ty, Links::new(n_children, has_dictionary)))
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
        let shown = Lossy(bytes);
        Error::new(crate::abi::types::DEVX_INVALID_TEXT, format_args!("{what} is not valid UTF-8: {shown:?}"))
    })
}

/// What nearly every text is: a few letters of ASCII.
///
/// # Safety
/// `from` is NUL-terminated, and outlives the result.
#[inline]
unsafe fn short<'a>(from: *const c_char) -> Option<&'a str> {
    for i in 0..64 {
        // SAFETY: no byte before this one was the last.
        let byte = unsafe { entry(from.cast::<i8>(), i) };
        // As a signed number, what is not ASCII is negative.
        if byte > 0 {
            continue;
        }
        // SAFETY: so many bytes were read above.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), i) };
        // SAFETY: ASCII is UTF-8.
        return (byte == 0).then(|| unsafe { std::str::from_utf8_unchecked(bytes) });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::types::DEVX_INVALID_CHILDREN;

    unsafe extern "C" fn nothing(_: *mut ArrowSchema) {}

    /// As if another thread had changed the schema since its nodes were counted.
    #[test]
    fn a_schema_that_was_counted_otherwise_is_refused() {
        let field = |format: &'static std::ffi::CStr, children: &mut [*mut ArrowSchema]| ArrowSchema {
            format: format.as_ptr(),
            name: std::ptr::null(),
            metadata: std::ptr::null(),
            flags: 0,
            n_children: children.len() as i64,
            children: children.as_mut_ptr(),
            dictionary: std::ptr::null_mut(),
            release: Some(nothing),
            private_data: std::ptr::null_mut(),
        };
        let (mut a, mut b) = (field(c"i", &mut []), field(c"i", &mut []));
        let mut children = [&raw mut a, &raw mut b];
        let root = field(c"+s", &mut children);
        for (nodes, refused) in [(2, true), (3, false), (4, true)] {
            let mut records = Vec::<Record>::with_capacity(4);
            // SAFETY: a schema of three nodes, and room for as many as are said to be counted.
            let read = unsafe { read_records(&root, records.as_mut_ptr(), nodes) };
            assert_eq!(read.err().map(|error| error.status()), refused.then_some(DEVX_INVALID_CHILDREN), "{nodes}");
        }
    }
}
