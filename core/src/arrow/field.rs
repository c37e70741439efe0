//! One field of a schema: what its producer said, checked when the schema was made.

use std::ffi::CStr;
use std::fmt;

use super::format::{Type, TypeIds};
use super::metadata::{self, Metadata};
use super::record::{text, type_ids};
use super::schema::{EXTENSION_METADATA, EXTENSION_NAME, Schema};
use super::type_name::TypeName;
use crate::abi::arrow_data::{ARROW_FLAG_NULLABLE, ArrowSchema};
use crate::abi::types::DevxFieldInfo;

/// One field of a schema.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    schema: &'a Schema,
    node: usize,
}

impl<'a> Field<'a> {
    /// The field of `node`, which is a node of `schema`.
    pub(super) fn at(schema: &'a Schema, node: usize) -> Self {
        Self { schema, node }
    }

    /// The struct as the producer filled it in. Its texts are valid as long as the schema.
    pub fn raw(self) -> &'a ArrowSchema {
        self.schema.raw(self.node)
    }

    pub(crate) fn raw_format(self) -> &'a CStr {
        // SAFETY: when the schema was made, it was checked that the format is there and NUL-terminated.
        unsafe { CStr::from_ptr(self.raw().format) }
    }

    pub(crate) fn raw_name(self) -> &'a CStr {
        let name = self.raw().name;
        // SAFETY: when the schema was made, it was checked that the name is NUL-terminated.
        if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } }
    }

    pub(crate) fn raw_metadata(self) -> Option<&'a [u8]> {
        // SAFETY: checked when the schema was made.
        unsafe { metadata::block(self.raw().metadata) }.ok().flatten()
    }

    /// The field as the C record describes it. Its texts are valid as long as the schema.
    pub fn to_raw(self) -> DevxFieldInfo {
        let ArrowSchema { format, metadata, flags, .. } = *self.raw();
        let links = self.schema.links(self.node);
        let number = |node: Option<usize>| node.map_or(-1, |node| node as i64);
        DevxFieldInfo {
            format,
            name: self.raw_name().as_ptr(),
            metadata,
            flags,
            n_children: self.n_children() as i64,
            first_child: number(links.child(0)),
            dictionary: number(links.dictionary()),
        }
    }

    /// The number of this field's node in the tree.
    pub fn node(self) -> usize {
        self.node
    }

    /// The parsed type.
    pub fn ty(self) -> Type {
        self.schema.ty(self.node)
    }

    /// The format string.
    pub fn format(self) -> &'a str {
        // SAFETY: checked when the schema was made.
        unsafe { text(self.raw().format, "format") }.unwrap_or("")
    }

    /// The name; empty if there is none.
    pub fn name(self) -> &'a str {
        // SAFETY: checked when the schema was made.
        unsafe { text(self.raw().name, "name") }.unwrap_or("")
    }

    /// The time zone of a timestamp; empty if it has none.
    pub fn timezone(self) -> &'a str {
        self.ty().timezone(self.format())
    }

    /// The name of the type, for people. For a dictionary it is the names of the index and the value type: "int32 ->
    /// utf8".
    pub fn type_name(self) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            write!(f, "{}", TypeName::of(self.ty(), self.format()))?;
            self.dictionary().map_or(Ok(()), |values| write!(f, " -> {}", values.type_name()))
        })
    }

    /// The type ids of a union.
    pub fn type_ids(self) -> Option<TypeIds> {
        type_ids(self.ty(), self.format())
    }

    /// The name and the serialised parameters of an extension type, if this is one (Arrow columnar format, "Extension
    /// types"). The values are those of its storage type, which [`Field::ty`] returns. If a key repeats, its last value
    /// counts.
    pub fn extension(self) -> Option<(&'a [u8], &'a [u8])> {
        let value = |wanted: &[u8]| self.metadata().filter(|(key, _)| *key == wanted).last().map(|(_, value)| value);
        Some((value(EXTENSION_NAME)?, value(EXTENSION_METADATA).unwrap_or_default()))
    }

    /// `ARROW_FLAG_…` bits, unknown ones included.
    pub fn flags(self) -> i64 {
        self.raw().flags
    }

    /// Whether values may be null.
    pub fn is_nullable(self) -> bool {
        self.flags() & ARROW_FLAG_NULLABLE != 0
    }

    /// The pairs of the metadata.
    pub fn metadata(self) -> Metadata<'a> {
        // SAFETY: checked when the schema was made.
        match unsafe { Metadata::check(self.raw().metadata) } {
            Ok((metadata, _)) => metadata,
            Err(_) => unreachable!("metadata was checked when the schema was made"),
        }
    }

    /// The number of children.
    pub fn n_children(self) -> usize {
        self.schema.links(self.node).n_children()
    }

    /// The child at `index`.
    pub fn child(self, index: usize) -> Option<Field<'a>> {
        self.schema.links(self.node).child(index).map(|node| Field { node, ..self })
    }

    /// All children.
    pub fn children(self) -> impl DoubleEndedIterator<Item = Field<'a>> + ExactSizeIterator {
        let first = self.schema.links(self.node).first_child as usize;
        (first..first + self.n_children()).map(move |node| Field { node, ..self })
    }

    /// The field of the dictionary's values, if the values of this one are indices.
    pub fn dictionary(self) -> Option<Field<'a>> {
        self.schema.links(self.node).dictionary().map(|node| Field { node, ..self })
    }
}

/// Fields are equal if their names, formats, flags, children and dictionaries are, and their metadata has the same
/// pairs in the same order.
impl PartialEq for Field<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
            && self.format() == other.format()
            && self.flags() == other.flags()
            && self.metadata().eq(other.metadata())
            && self.children().eq(other.children())
            && self.dictionary() == other.dictionary()
    }
}

impl Eq for Field<'_> {}

impl fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Field");
        out.field("name", &self.name()).field("format", &self.format());
        if self.n_children() > 0 {
            out.field("children", &self.children().collect::<Vec<_>>());
        }
        if let Some(dictionary) = self.dictionary() {
            out.field("dictionary", &dictionary);
        }
        out.finish()
    }
}
