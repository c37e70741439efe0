//! Builders of batches: out of buffers that the producer owns, described as a tree, or out of existing columns.

use core::ffi::c_void;
use std::ffi::{CStr, CString};
use std::fmt;

use super::batch::{Batch, NodeDesc};
use super::field::Field;
use super::schema::{FieldDesc, Schema};
use super::{MAX_DEPTH, metadata};
use crate::abi::arrow_data::{ARROW_FLAG_NULLABLE, ArrowArray};
use crate::device::Device;
use crate::error::{Error, Refused, Result, refuse};
use crate::memory::{InOrder, Owner, Vacant, collected, push, said, vector};
use crate::order::Ready;
use crate::stream::Stream;
use crate::text::{Name, c_string};

/// An array that is being described: its field, its buffers, the arrays below it, and the owner of its memory. Nothing
/// is checked before [`ArrayBuilder::build`].
///
/// ```
/// # use devexchange_core::arrow::builder::ArrayBuilder;
/// # use devexchange_core::{Device, Owner};
/// let (n, x) = (vec![1_i32, 2, 3], vec![0.5_f64, 1.5, 2.5]);
/// let column = |name, format, buffer| ArrayBuilder::new(name, format, 3).buffer(std::ptr::null()).buffer(buffer);
/// let table = ArrayBuilder::batch(3)
///     .child(column("n", "i", n.as_ptr().cast()).owner(Owner::new(n)))
///     .child(column("x", "g", x.as_ptr().cast()).owner(Owner::new(x)));
/// // SAFETY: the vectors have three values each, and belong to the owners.
/// let batch = unsafe { table.build(Device::CPU) }?;
/// assert_eq!(batch.column_named("x").unwrap().values::<f64>()?, [0.5, 1.5, 2.5]);
/// # Ok::<(), devexchange_core::Error>(())
/// ```
pub struct ArrayBuilder {
    name: String,
    format: String,
    metadata: Vec<(Vec<u8>, Vec<u8>)>,
    flags: i64,
    length: i64,
    null_count: i64,
    offset: i64,
    buffers: Vec<*const c_void>,
    /// The size of each buffer in bytes, or −1 if not known.
    sizes: Vec<i64>,
    children: Vec<Self>,
    dictionary: Option<Box<Self>>,
    /// The number of levels, including this one.
    depth: usize,
    owner: Owner,
}

// SAFETY: the addresses are mere numbers here, and only `build` hands them on; what is owned may be dropped on any
// thread.
unsafe impl Send for ArrayBuilder {}
// SAFETY: as above; nothing changes behind a shared reference.
unsafe impl Sync for ArrayBuilder {}

impl ArrayBuilder {
    /// Starts a nullable array of `length` elements, with an unknown number of nulls and no buffers yet.
    pub fn new(name: &str, format: &str, length: i64) -> Self {
        Self {
            name: name.to_owned(),
            format: format.to_owned(),
            metadata: Vec::new(),
            flags: ARROW_FLAG_NULLABLE,
            length,
            null_count: -1,
            offset: 0,
            buffers: Vec::new(),
            sizes: Vec::new(),
            children: Vec::new(),
            dictionary: None,
            depth: 1,
            owner: Owner::none(),
        }
    }

    /// Starts the root of a record batch with `rows` rows: a struct without nulls, whose children are the columns.
    pub fn batch(rows: i64) -> Self {
        Self::new("", "+s", rows).flags(0).null_count(0).buffer(std::ptr::null())
    }

    /// Adds the next buffer, in the order of the Arrow columnar format: validity first, NULL if there are no nulls.
    ///
    /// The last buffer of an array of views holds the sizes of its data buffers as 64-bit integers.
    #[must_use]
    pub fn buffer(mut self, address: *const c_void) -> Self {
        self.buffers.push(address);
        self.sizes.push(-1);
        self
    }

    /// Like [`ArrayBuilder::buffer`], but with its size in bytes: a buffer that is too small for the array is refused.
    #[must_use]
    pub fn sized_buffer(mut self, address: *const c_void, bytes: usize) -> Self {
        self.buffers.push(address);
        self.sizes.push(i64::try_from(bytes).unwrap_or(i64::MAX));
        self
    }

    /// Adds the next child.
    #[must_use]
    pub fn child(mut self, child: Self) -> Self {
        self.depth = self.depth.max(child.depth + 1);
        self.children.push(child);
        self
    }

    /// Sets the values of the dictionary; the array's own values are indices into it.
    #[must_use]
    pub fn dictionary(mut self, values: Self) -> Self {
        self.depth = self.depth.max(values.depth + 1);
        self.dictionary = Some(Box::new(values));
        self
    }

    /// Sets the number of nulls.
    #[must_use]
    pub fn null_count(mut self, null_count: i64) -> Self {
        self.null_count = null_count;
        self
    }

    /// Sets the number of elements to skip in each buffer.
    #[must_use]
    pub fn offset(mut self, offset: i64) -> Self {
        self.offset = offset;
        self
    }

    /// Sets the `ARROW_FLAG_…` bits, in place of "nullable".
    #[must_use]
    pub fn flags(mut self, flags: i64) -> Self {
        self.flags = flags;
        self
    }

    /// Adds a metadata pair.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Sets the owner that keeps the buffers of this array alive, and those of all arrays below it that have no owner
    /// of their own.
    #[must_use]
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }

    /// Makes the batch, in memory of `device`. Its order is unknown (see [`Ready::unknown`]) until
    /// [`Batch::produced_on`] sets it.
    ///
    /// # Errors
    /// Same as [`Schema::new`] and [`Batch::from_sized_parts`]. On failure everything is given back, and nothing is
    /// released.
    ///
    /// # Safety
    /// Same as [`Batch::from_raw_parts`], for all owners together.
    pub unsafe fn build(mut self, device: Device) -> std::result::Result<Batch, Refused<Box<Self>>> {
        let mut texts = Vec::new();
        if let Err(error) = self.require_depth().and_then(|()| self.texts(&mut texts)) {
            return Err(Refused { error, returned: Box::new(self) });
        }
        // SAFETY: the caller's contract.
        match unsafe { self.make(&texts, device) } {
            Ok((mut batch, mut owners, room)) => {
                self.take_owners(&mut owners);
                batch.set_owner(all_of(owners, room));
                Ok(batch)
            }
            Err(error) => Err(Refused { error, returned: Box::new(self) }),
        }
    }

    /// Makes the batch without its owner, which is set before anybody else sees the batch; also returns room for that
    /// owner.
    ///
    /// # Safety
    /// Same as [`ArrayBuilder::build`].
    unsafe fn make(&self, texts: &[Texts], device: Device) -> Result<(Batch, Vec<Owner>, Vacant<Vec<Owner>>)> {
        let (mut fields, mut nodes, mut sizes) = (vector(texts.len())?, vector(texts.len())?, Vec::new());
        self.describe(&mut texts.iter(), &mut fields, &mut nodes, &mut sizes)?;
        let schema = Schema::new(&fields)?;
        // SAFETY: the caller's contract.
        let batch = unsafe { Batch::from_sized_parts(&schema, device, &nodes, &sizes, Owner::none()) }?;
        Ok((batch, vector(texts.len())?, Vacant::new()?))
    }

    /// Limits the depth, because the functions below recurse from node to node and have stack for no more.
    fn require_depth(&self) -> Result<()> {
        match self.depth {
            ..=MAX_DEPTH => Ok(()),
            depth => refuse!(DEVX_TOO_DEEP, "the arrays are nested {depth} deep: deeper than {MAX_DEPTH}"),
        }
    }

    /// Collects the texts of all nodes, depth-first.
    fn texts(&self, texts: &mut Vec<Texts>) -> Result<()> {
        let pairs = collected(self.metadata.iter().map(|(key, value)| Ok((key.as_slice(), value.as_slice()))))?;
        let text = Texts {
            name: terminated("name", &self.name)?,
            format: terminated("format", &self.format)?,
            metadata: if pairs.is_empty() { None } else { Some(metadata::encode(&pairs)?) },
        };
        push(texts, text)?;
        self.below().try_for_each(|node| node.texts(texts))
    }

    fn describe<'a>(
        &'a self,
        texts: &mut std::slice::Iter<'a, Texts>,
        fields: &mut Vec<FieldDesc<'a>>,
        nodes: &mut Vec<NodeDesc<'a>>,
        sizes: &mut Vec<i64>,
    ) -> Result<()> {
        let Some(text) = texts.next() else { return Ok(()) };
        fields.push(FieldDesc {
            format: &text.format,
            name: &text.name,
            metadata: text.metadata.as_deref(),
            flags: self.flags,
            n_children: self.children.len() as u32,
            has_dictionary: self.dictionary.is_some(),
        });
        let Self { length, null_count, offset, ref buffers, .. } = *self;
        nodes.push(NodeDesc { length, null_count, offset, buffers });
        self.sizes.iter().try_for_each(|&size| push(sizes, size))?;
        self.below().try_for_each(|node| node.describe(texts, fields, nodes, sizes))
    }

    fn below(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().chain(self.dictionary.as_deref())
    }

    fn take_owners(&mut self, owners: &mut Vec<Owner>) {
        owners.push(std::mem::replace(&mut self.owner, Owner::none()));
        for node in self.children.iter_mut().chain(self.dictionary.as_deref_mut()) {
            node.take_owners(owners);
        }
    }
}

impl Drop for ArrayBuilder {
    /// An array that is nested too deeply to be built is also nested too deeply to be dropped recursively.
    fn drop(&mut self) {
        if self.depth <= MAX_DEPTH {
            return;
        }
        let mut left = std::mem::take(&mut self.children);
        left.extend(self.dictionary.take().map(|values| *values));
        while let Some(mut node) = left.pop() {
            if node.depth > MAX_DEPTH {
                left.append(&mut node.children);
                left.extend(node.dictionary.take().map(|values| *values));
            }
        }
    }
}

impl fmt::Debug for ArrayBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ArrayBuilder");
        shown.field("name", &self.name).field("format", &self.format).field("length", &self.length);
        if self.depth <= MAX_DEPTH {
            shown.field("children", &self.children);
        }
        shown.finish_non_exhaustive()
    }
}

struct Texts {
    name: CString,
    format: CString,
    metadata: Option<Vec<u8>>,
}

pub(crate) fn terminated(what: &str, text: &str) -> Result<CString> {
    if text.contains('\0') {
        return refuse!(DEVX_INVALID_TEXT, "{what} {} has a NUL byte in it", Name(text));
    }
    c_string(text).ok_or_else(|| Error::no_memory(text.len() + 1))
}

/// Formats a text that contains no NUL.
pub(crate) fn c_formatted(text: fmt::Arguments<'_>) -> Result<CString> {
    let text = said(text)?;
    c_string(&text).ok_or_else(|| Error::no_memory(text.len() + 1))
}

/// One owner in place of several.
fn all_of(mut owners: Vec<Owner>, room: Vacant<Vec<Owner>>) -> Owner {
    owners.retain(|owner| !owner.is_none());
    match owners.pop() {
        None => Owner::none(),
        Some(only) if owners.is_empty() => only,
        Some(last) => {
            owners.push(last);
            let in_order = InOrder::of_all(owners.iter().map(Owner::in_order));
            Owner::in_room(room, owners).given_back(in_order)
        }
    }
}

impl Batch {
    /// Makes a record batch whose columns are other batches, under new names.
    ///
    /// The columns may be any arrays, not only record batches, of the same length on the same device. They are shared:
    /// nothing is copied, and work with the batch ([`Batch::used_on`]) is work with all of them.
    ///
    /// If some columns are not ready now, `stream` is made to wait for all of them and the batch is ready after it. The
    /// stream is needed only then. It must outlive the batch and everything exported from it, but may be
    /// [closed](Stream::close) before.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` if there is no column, `DEVX_INVALID_LENGTH` if lengths differ, `DEVX_MISMATCH` if
    /// devices differ, `DEVX_NOT_READY` if a stream is needed but not given, `DEVX_INVALID_TEXT` for a name with a NUL
    /// byte, `DEVX_DRIVER`.
    pub fn of_columns(columns: &[(&str, &Self)], stream: Option<Stream>) -> Result<Self> {
        let Some((_, first)) = columns.first() else {
            return refuse!(
                DEVX_INVALID_ARGUMENT,
                "there is no column: a batch of none cannot say on which device it is"
            );
        };
        let names = collected(columns.iter().map(|(name, _)| terminated("name", name)))?;
        let n_nodes = 1 + columns.iter().map(|(_, column)| column.schema().nodes()).sum::<usize>();
        let (mut fields, mut nodes) = (vector(n_nodes)?, vector(n_nodes)?);
        let validity = [std::ptr::null()];
        fields.push(FieldDesc::batch(columns.len() as u32));
        nodes.push(NodeDesc { length: first.length(), null_count: 0, offset: 0, buffers: &validity });
        for (name, (shown, column)) in names.iter().zip(columns) {
            let shown = Name(shown);
            let (length, expected) = (column.length(), first.length());
            if length != expected {
                return refuse!(
                    DEVX_INVALID_LENGTH,
                    "column {shown} has length {length}, the first one has {expected}"
                );
            }
            let (device, expected) = (column.device(), first.device());
            if device != expected {
                return refuse!(DEVX_MISMATCH, "column {shown} is on {device}, the first one is on {expected}");
            }
            for node in column.schema().depth_first() {
                let Some(field) = column.schema().field(node) else { continue };
                let name = if node == 0 { name.as_c_str() } else { field.raw_name() };
                fields.push(described(field, name));
                let array = column.array(node);
                let ArrowArray { length, null_count, offset, .. } = *array;
                nodes.push(NodeDesc { length, null_count, offset, buffers: column.buffers(node) });
            }
        }
        let ready = match stream {
            _ if columns.iter().all(|(_, column)| matches!(column.ready(), Ready::Now)) => Ready::Now,
            Some(stream) => Ready::merge(columns.iter().map(|(_, column)| column.ready()), stream)?,
            None => return refuse!(DEVX_NOT_READY, "the columns are not ready, and there is no stream to order them"),
        };
        let shared = collected(columns.iter().map(|&(_, column)| Ok(column.clone())))?;
        let in_order = InOrder::of_all(columns.iter().map(|(_, column)| column.in_order()));
        let owner = Owner::in_room(Vacant::new()?, shared).given_back(in_order);
        let schema = Schema::new(&fields)?;
        // SAFETY: the columns describe their memory, and keep it alive.
        let mut batch = unsafe { Self::from_raw_parts(&schema, first.device(), &nodes, owner) }?;
        batch.set_parts(ready, columns.iter().map(|&(_, column)| column))?;
        Ok(batch)
    }
}

pub(crate) fn described<'a>(field: Field<'a>, name: &'a CStr) -> FieldDesc<'a> {
    FieldDesc {
        format: field.raw_format(),
        name,
        metadata: field.raw_metadata(),
        flags: field.flags(),
        n_children: field.n_children() as u32,
        has_dictionary: field.dictionary().is_some(),
    }
}
