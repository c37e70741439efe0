//! Schemas: trees of fields that describe the arrays of a batch, parsed once and shared.

use core::ffi::c_char;
use std::ffi::CStr;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::MAX_NODES;
use super::depth_first::DepthFirst;
use super::field::Field;
use super::format::Type;
use super::metadata;
use super::names::Names;
use super::read::{Read, read};
use super::record::{Record, in_field, read_records};
use super::tree::{self, Links, Releases};
use crate::abi::arrow_data::{ARROW_FLAG_NULLABLE, ArrowSchema};
use crate::abi::types::DevxField;
use crate::error::{Refused, Result, refuse};
use crate::ledger::{Entry, Kind};
use crate::memory::{Foreign, Slab, TailSize, fill_in, held_by_bindings, vector};
use crate::text::Name;

/// Key of the metadata pair that names an extension type.
pub const EXTENSION_NAME: &[u8] = b"ARROW:extension:name";
/// Key of the metadata pair that holds the parameters of an extension type, in a form that its name defines.
pub const EXTENSION_METADATA: &[u8] = b"ARROW:extension:metadata";

/// A schema: the root field and all below it. Cloning shares it.
#[derive(Clone)]
pub struct Schema(Slab<Header>);

struct Header {
    root: Root,
    records: *const Record,
    nodes: usize,
    /// The first node from which on all nodes are plain.
    plain_from: usize,
    names: Names,
}

/// Whose struct the root is. The nodes below it belong to the root or lie in the slab.
enum Root {
    Foreign(Foreign<ArrowSchema>),
    Own(ArrowSchema),
}

// SAFETY: the structs and texts behind the pointers belong to the root and are only read.
unsafe impl Send for Header {}
// SAFETY: as above.
unsafe impl Sync for Header {}

/// A field of a schema that is being made.
///
/// A schema is a list of these in depth-first order: a field, its children each with everything below it, then the
/// values of its dictionary.
#[derive(Clone, Copy, Debug)]
pub struct FieldDesc<'a> {
    /// Arrow format string.
    pub format: &'a CStr,
    /// Name; may be empty.
    pub name: &'a CStr,
    /// Metadata block (see [`super::metadata::encode`]), complete and with nothing after it.
    pub metadata: Option<&'a [u8]>,
    /// `ARROW_FLAG_…` bits.
    pub flags: i64,
    /// Number of children that follow.
    pub n_children: u32,
    /// Whether the values of a dictionary follow.
    pub has_dictionary: bool,
}

impl<'a> FieldDesc<'a> {
    /// A nullable field without children.
    pub fn new(name: &'a CStr, format: &'a CStr) -> Self {
        Self { format, name, metadata: None, flags: ARROW_FLAG_NULLABLE, n_children: 0, has_dictionary: false }
    }

    /// The root of a record batch with `n_columns` columns.
    pub fn batch(n_columns: u32) -> Self {
        Self { flags: 0, n_children: n_columns, ..Self::new(c"", c"+s") }
    }

    /// Reads the C record.
    ///
    /// # Errors
    /// `DEVX_NULL_ARGUMENT` without a format, `DEVX_INVALID_CHILDREN`, `DEVX_INVALID_ARGUMENT`,
    /// `DEVX_INVALID_METADATA`. The error names the field and the value. The texts are checked by [`Schema::new`].
    ///
    /// # Safety
    /// The texts of the record are NULL or NUL-terminated, its metadata is as long as it says, and both outlive the
    /// result.
    pub unsafe fn from_raw(field: &DevxField) -> Result<Self> {
        // SAFETY: the caller's contract.
        let name = if field.name.is_null() { c"" } else { unsafe { CStr::from_ptr(field.name) } };
        // Up to the first byte that is not text.
        let shown = || Name(name.to_bytes().utf8_chunks().next().map_or("", |chunk| chunk.valid()));
        if field.format.is_null() {
            return refuse!(DEVX_NULL_ARGUMENT, "field {}: format is NULL", shown());
        }
        // SAFETY: the caller's contract.
        let format = unsafe { CStr::from_ptr(field.format) };
        // SAFETY: the caller's contract.
        let metadata = unsafe { metadata::block(field.metadata) };
        let metadata = metadata.map_err(|error| error.within(format_args!("field {}: ", shown())))?;
        let Ok(n_children) = u32::try_from(field.n_children) else {
            return refuse!(
                DEVX_INVALID_CHILDREN,
                "field {}: n_children is {}: it must be between 0 and {MAX_NODES}",
                shown(),
                field.n_children
            );
        };
        let has_dictionary = match field.has_dictionary {
            0 => false,
            1 => true,
            other => {
                return refuse!(DEVX_INVALID_ARGUMENT, "field {}: has_dictionary is {other}, neither 0 nor 1", shown());
            }
        };
        Ok(Self { format, name, metadata, flags: field.flags, n_children, has_dictionary })
    }
}

// Nothing of a schema changes but the table of names, which is made under a lock.
impl UnwindSafe for Schema {}
impl RefUnwindSafe for Schema {}

impl Schema {
    /// Takes a schema from its producer.
    ///
    /// On success `*source` is marked as moved from, and this library calls its release. On failure it is untouched.
    /// The import takes one block of memory; names and formats are not copied.
    ///
    /// # Errors
    /// `DEVX_NULL_ARGUMENT`, `DEVX_RELEASED`, `DEVX_INVALID_FORMAT`, `DEVX_INVALID_CHILDREN`, `DEVX_INVALID_METADATA`,
    /// `DEVX_INVALID_TEXT`, `DEVX_MISMATCH`, `DEVX_TOO_DEEP`, `DEVX_OUT_OF_MEMORY`. The error names the field and the
    /// value.
    ///
    /// # Safety
    /// `source` is NULL, or points to a valid `ArrowSchema` (released or not) that nobody else uses now.
    pub unsafe fn import(source: *mut ArrowSchema) -> Result<Self> {
        // SAFETY: the caller's contract.
        let Some(root) = (unsafe { source.as_ref() }) else {
            return refuse!(DEVX_NULL_ARGUMENT, "schema is NULL");
        };
        if root.release.is_none() {
            return refuse!(DEVX_RELEASED, "schema.release is NULL: the schema was released or moved from");
        }
        // SAFETY: the caller's contract.
        let Read { room, records, nodes, plain_from } = unsafe { read(root) }?;
        let slab = fill_in!(
            room,
            1,
            Header {
                // SAFETY: the caller gives the schema to us now that nothing can fail any more.
                root: Root::Foreign(unsafe { Foreign::take(source, Kind::SchemaImport) }),
                records: records,
                nodes: nodes,
                plain_from: plain_from,
                names: Names::default(),
            }
        );
        Ok(Self::rooted(slab, records))
    }

    /// Imports a schema for a next step that keeps it, such as the import of an array. If that step fails, the schema
    /// goes back to the caller as it was.
    ///
    /// # Errors
    /// Same as [`Schema::import`], and those of `then`.
    ///
    /// # Safety
    /// Same as [`Schema::import`]. A schema that `then` gives back is the one that it received.
    pub(super) unsafe fn import_for<T>(
        source: *mut ArrowSchema,
        then: impl FnOnce(Self) -> std::result::Result<T, Refused<Self>>,
    ) -> Result<T> {
        // SAFETY: the caller's contract.
        let schema = unsafe { Self::import(source) }?;
        let Refused { error, mut returned } = match then(schema) {
            Ok(done) => return Ok(done),
            Err(refused) => refused,
        };
        if let Some(Header { root: Root::Foreign(foreign), .. }) = returned.0.unique() {
            // SAFETY: the struct came from `source`, which was marked as moved from.
            unsafe { foreign.put_back(source) };
        }
        Err(error)
    }

    /// Makes a schema, in one block of memory. All texts are copied.
    ///
    /// # Errors
    /// Same as [`Schema::import`]; `DEVX_INVALID_ARGUMENT` if there is no field.
    pub fn new(fields: &[FieldDesc<'_>]) -> Result<Self> {
        let order = tree::level_order(fields.len(), |p| {
            fields.get(p).map_or(Ok((0, false)), |field| Ok((field.n_children, field.has_dictionary)))
        })?;
        let nodes = order.len();
        let desc = |i: usize| order.get(i).and_then(|&(p, _)| fields.get(p)).copied();
        let texts = |field: &FieldDesc<'_>| {
            field.format.to_bytes_with_nul().len()
                + field.name.to_bytes_with_nul().len()
                + field.metadata.map_or(0, <[u8]>::len)
        };
        let text_bytes = fields.iter().map(texts).sum();
        let size = TailSize::default().and::<Record>(nodes)?.and::<u8>(text_bytes)?;
        let size = size.with(tree::room::<ArrowSchema>(nodes));
        let root = Root::Own(ArrowSchema::RELEASED);
        let header = Header { root, records: std::ptr::null(), nodes, plain_from: 0, names: Names::default() };
        let mut slab = Slab::new(header, size)?;
        let mut tail = slab.tail();
        let records = tail.carve::<Record>(nodes);
        let mut place = tail.carve::<u8>(text_bytes);
        let mut store = |bytes: &[u8]| {
            let stored = place.cast::<c_char>().cast_const();
            // SAFETY: the tail has room for the sum of all texts, and each is stored once.
            unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            // SAFETY: as above.
            place = unsafe { place.add(bytes.len()) };
            stored
        };
        let mut structs = vector(nodes)?;
        for i in 0..nodes {
            let Some(field) = desc(i) else { continue };
            let described = ArrowSchema {
                format: store(field.format.to_bytes_with_nul()),
                name: store(field.name.to_bytes_with_nul()),
                metadata: field.metadata.map_or(std::ptr::null(), &mut store),
                flags: field.flags,
                ..ArrowSchema::RELEASED
            };
            // From here on the length of the metadata is known from the block itself only.
            field.metadata.map_or(Ok(()), metadata::check_bytes).map_err(|error| {
                // SAFETY: its name was stored just now.
                unsafe { in_field(&described, error) }
            })?;
            structs.push(described);
        }
        let mut root = ArrowSchema::RELEASED;
        let links = |i: usize| order.get(i).map_or(&Links::NONE, |(_, links)| links);
        let fill = |i: usize| structs.get(i).copied().unwrap_or(ArrowSchema::RELEASED);
        // SAFETY: the room was summed up above, and `level_order` numbered one tree.
        unsafe { tree::build(&mut tail, &mut root, nodes, nodes, fill, links, Releases::uncounted()) };
        // SAFETY: the tree was built just now, with `nodes` nodes.
        let plain_from = unsafe { read_records(&root, records, nodes) }?;
        if let Some(header) = slab.unique() {
            (header.records, header.plain_from) = (records, plain_from);
            header.root = Root::Own(root);
        }
        Ok(Self::rooted(slab, records))
    }

    /// Makes the record of the root point to the struct in the header, which stays in place.
    fn rooted(slab: Slab<Header>, records: *mut Record) -> Self {
        let root = match &slab.header().root {
            Root::Foreign(foreign) => foreign.as_ptr(),
            Root::Own(own) => &raw const *own,
        };
        // SAFETY: there is a record for the root, and no other reference to the slab yet.
        unsafe { (*records).source = slab.lasting(root) };
        Self(slab)
    }

    /// Hands the schema to a consumer, which releases it. The export takes one block of memory and shares the texts of
    /// this schema.
    ///
    /// # Errors
    /// `DEVX_NULL_ARGUMENT`, `DEVX_OUT_OF_MEMORY`; then `*out` is not written.
    ///
    /// # Safety
    /// `out` is NULL or can be written. What it held before is not released.
    pub unsafe fn export(&self, out: *mut ArrowSchema) -> Result<()> {
        if out.is_null() {
            return refuse!(DEVX_NULL_ARGUMENT, "out is NULL");
        }
        let nodes = self.nodes();
        let room = Slab::<Export>::room(tree::room::<ArrowSchema>(nodes))?;
        let records = self.records();
        // SAFETY: there is a record for each node.
        let record = |i: usize| unsafe { records.get_unchecked(i) };
        let fill = |i: usize| {
            // SAFETY: the root keeps every struct of the tree alive and in place.
            let ArrowSchema { format, name, metadata, flags, .. } = unsafe { &*record(i).source };
            ArrowSchema { format: *format, name: *name, metadata: *metadata, flags: *flags, ..ArrowSchema::RELEASED }
        };
        let (links, release) = (|i: usize| &record(i).links, Releases::counted::<Export>(room.as_raw()));
        // SAFETY: the room is the slab's, the records number one tree, and the caller gives room for the root.
        unsafe { tree::build(&mut room.tail(), out, nodes, self.plain_from(), fill, links, release) };
        fill_in!(room, nodes, Export { _schema: self.clone(), _entry: Entry::open(Kind::SchemaExport) }).into_raw();
        Ok(())
    }

    /// The root field, of type struct for a record batch.
    #[inline]
    pub fn root(&self) -> Field<'_> {
        Field::at(self, 0)
    }

    /// The field of the node with this number.
    #[inline]
    pub fn field(&self, node: usize) -> Option<Field<'_>> {
        (node < self.nodes()).then(|| Field::at(self, node))
    }

    /// All fields, depth first: each field, then its children with everything below them, then its dictionary. This is the
    /// order in which [`Schema::new`] and [`Batch::from_raw_parts`](super::Batch::from_raw_parts) take them.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        self.depth_first().map(|node| Field::at(self, node))
    }

    /// The number of fields in the whole tree.
    pub fn nodes(&self) -> usize {
        self.0.header().nodes
    }

    /// The records of all fields, by node.
    #[inline]
    pub(super) fn records(&self) -> &[Record] {
        let header = self.0.header();
        // SAFETY: there are `nodes` records in the slab's tail, initialised when the schema was made.
        unsafe { std::slice::from_raw_parts(header.records, header.nodes) }
    }

    /// Number of columns: the children if the type is struct, otherwise 0.
    #[inline]
    pub(super) fn n_columns(&self) -> usize {
        match self.ty(0) {
            Type::Struct => self.root().n_children(),
            _ => 0,
        }
    }

    /// The number of the first column with this name.
    pub(super) fn column_named(&self, name: &[u8]) -> Option<usize> {
        let first = self.links(0).first_child as usize;
        let name_of = |column| self.field(first + column).map_or(&[][..], |field| field.raw_name().to_bytes());
        self.0.header().names.find(self.n_columns(), name_of, name)
    }

    /// The first node from which on all nodes are plain.
    pub(super) fn plain_from(&self) -> usize {
        self.0.header().plain_from
    }

    #[inline]
    pub(crate) fn links(&self, node: usize) -> Links {
        self.record(node).links
    }

    #[inline]
    pub(crate) fn ty(&self, node: usize) -> Type {
        self.record(node).ty
    }

    #[inline]
    pub(super) fn raw(&self, node: usize) -> &ArrowSchema {
        // SAFETY: the root keeps every struct of the tree alive and in place.
        unsafe { &*self.record(node).source }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a node that the schema does not have is a bug, which must not be read"
    )]
    #[inline]
    pub(super) fn record(&self, node: usize) -> &Record {
        &self.records()[node]
    }

    /// The numbers of all nodes in depth-first order.
    pub(crate) fn depth_first(&self) -> DepthFirst<'_> {
        self.depth_first_from(0)
    }

    /// Like [`Schema::depth_first`], but for one node and everything below it.
    pub(super) fn depth_first_from(&self, node: usize) -> DepthFirst<'_> {
        DepthFirst::new(self, node)
    }

    /// Whether both are clones of one schema.
    #[inline]
    pub(super) fn is(&self, other: &Self) -> bool {
        self.0.as_raw() == other.0.as_raw()
    }
}

/// Schemas are equal if their fields are, with everything that the fields say.
impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || self.root() == other.root()
    }
}

impl Eq for Schema {}

held_by_bindings!(Schema, "schema");

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root().fmt(f)
    }
}

/// What an exported schema keeps alive.
struct Export {
    _schema: Schema,
    _entry: Entry,
}
