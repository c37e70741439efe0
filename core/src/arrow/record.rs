//! Records of the fields of a schema: one for each node of the tree, read and checked.

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
use crate::text::{self, Lossy};

/// The most bytes of a name or a format string.
const MAX_TEXT: usize = 1 << 20;

/// What was found in one field.
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub(super) source: *const ArrowSchema,
    pub(super) ty: Type,
    pub(super) links: Links,
    /// [`Type::plain_buffers`], if there is nothing below the field; otherwise 0.
    pub(super) plain: u8,
}

#[cold]
fn changed<T>(nodes: usize) -> Result<T> {
    refuse!(DEVX_INVALID_CHILDREN, "n_children changed while the schema was read: there were {nodes} fields before")
}

/// Parses and checks every field. Returns the first node from which on all nodes are plain, not counting the root.
///
/// # Errors
/// Those of the first field, level by level, that is wrong.
///
/// # Safety
/// `records` has room for `nodes` records, and this many nodes were counted.
pub(super) unsafe fn read_records(root: *const ArrowSchema, records: *mut Record, nodes: usize) -> Result<usize> {
    let write = |i, source: *const ArrowSchema, ty, plain| {
        // SAFETY: within the room for the records, as the code below ensures.
        unsafe { set_entry(records, i, Record { source, ty, links: Links::NONE, plain }) };
    };
    write(0, root, Type::Null, 0);
    // How many fields were found, and the end of those that may not be plain and thus were not read when they were
    // found.
    let (mut found, mut unread) = (1, 1);
    let mut i = 0;
    while i < unread {
        // SAFETY: record `i` was written already, by its parent or as that of the root.
        let record = unsafe { entry(records, i) };
        i += 1;
        if record.plain != 0 {
            continue;
        }
        // SAFETY: `count` checked the struct.
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
            // SAFETY: `count` checked the table.
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
        // SAFETY: as above; a child is a node of the tree.
        let child = |index| record.links.child(index).map(|node| unsafe { entry(records.cast_const(), node) });
        check_children(record.ty, child).map_err(|error| {
            // SAFETY: `count` checked the struct.
            unsafe { in_field(record.source, error) }
        })?;
    }
    Ok(unread)
}

/// Refuses a tree that contains a struct twice.
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
            // SAFETY: `count` checked the struct.
            .map_err(|error| unsafe { in_field(place(i), error) }),
    }
}

/// Names the field that an error is about, if the field has a name.
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

/// Checks what a type requires of its children beyond their number.
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

/// Passes the type of a field and its [`Record::plain`] to `note`, if there is nothing below the field and its arrays
/// are plain. Otherwise returns `false`.
///
/// # Safety
/// `source` is valid.
// `note` is called in two places, because a common call would first have to find out which way was taken.
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

/// The format of a field that is like nearly all fields: with a short name and without metadata.
///
/// This and the following functions return `None` for any other field, right or wrong: [`check_field`] decides, and
/// says what is wrong.
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

/// The single letter of a format, if it stands for a type whose arrays are plain.
///
/// # Safety
/// `format` is NUL-terminated.
#[inline]
unsafe fn plain_letter(format: NonNull<c_char>) -> Option<u8> {
    // SAFETY: the caller's contract.
    let letter = unsafe { entry(format.as_ptr().cast::<u8>(), 0) };
    // SAFETY: as above, and the first byte was not the last one.
    (plain_buffers_of_letter(letter) != 0 && unsafe { entry(format.as_ptr(), 1) } == 0).then_some(letter)
}

/// The type that a short format stands for.
///
/// # Safety
/// Same as [`plain_letter`].
#[inline(never)]
unsafe fn word(format: NonNull<c_char>) -> Option<Type> {
    // SAFETY: the caller's contract.
    Type::parse(unsafe { short(format.as_ptr()) }?).ok()
}

/// Whether a field is a plain struct, as the root of nearly every schema is.
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

/// A text of a foreign struct; NULL means the empty text.
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
    // SAFETY: the caller's contract.
    let bytes = unsafe { text::bytes(from, MAX_TEXT + 1) };
    if bytes.len() > MAX_TEXT {
        return refuse!(DEVX_INVALID_TEXT, "{what} has no end within {MAX_TEXT} bytes");
    }
    std::str::from_utf8(bytes).map_err(|_| {
        let shown = Lossy(bytes);
        Error::new(crate::abi::types::DEVX_INVALID_TEXT, format_args!("{what} is not valid UTF-8: {shown:?}"))
    })
}

/// Returns a text of a few ASCII letters, as nearly every text is.
///
/// # Safety
/// `from` is NUL-terminated, and outlives the result.
#[inline]
unsafe fn short<'a>(from: *const c_char) -> Option<&'a str> {
    for i in 0..64 {
        // SAFETY: no byte before this one was the last.
        let byte = unsafe { entry(from.cast::<i8>(), i) };
        // As a signed number, a byte that is not ASCII is negative.
        if byte > 0 {
            continue;
        }
        // SAFETY: `i` bytes were read above.
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

    /// Behaves as if another thread had changed the schema after its nodes were counted.
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
