//! A column: a view of one array of a batch, with the slices of the arrays above it applied.

mod row;
mod rows;
mod share;

use core::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Range;

pub use rows::Rows;

use super::batch::Batch;
use super::bitmap;
use super::field::Field;
use super::format::Type;
use super::record::Record;
use super::tree::Links;
use crate::abi::arrow_data::ArrowArray;
use crate::abi::types::DevxColumn;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result, refuse};
use crate::stream::Stream;

/// A view of one array of a batch. Rows are counted from 0; `offset` is where row 0 is in the buffers.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    batch: &'a Batch,
    node: usize,
    offset: i64,
    length: i64,
}

/// The rows of its children that a column sees.
#[derive(Clone, Copy)]
enum Seen {
    All,
    /// The rows from row `.0` on, `.1` of them.
    Rows(i64, i64),
}

impl Seen {
    #[inline]
    fn of(self, child: Column<'_>) -> Column<'_> {
        match self {
            Self::All => child,
            Self::Rows(offset, length) => child.seen(offset, length),
        }
    }
}

impl<'a> Column<'a> {
    #[inline]
    pub(crate) fn whole(batch: &'a Batch, node: usize) -> Self {
        let array = batch.array(node);
        Self { batch, node, offset: array.offset, length: array.length }
    }

    /// A column of some of the rows of a node's array.
    #[inline]
    pub(super) fn rows_of(batch: &'a Batch, node: usize, offset: i64, length: i64) -> Self {
        Self { batch, node, offset, length }
    }

    /// The column that a record from [`Column::to_raw`] describes.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_RANGE` if the record does not describe rows of this batch.
    #[inline]
    pub fn from_raw(batch: &'a Batch, raw: &DevxColumn) -> Result<Self> {
        Self::at(batch, raw.node, raw.offset, raw.length)
    }

    /// The column with these three values of a record from [`Column::to_raw`], which identify it.
    ///
    /// # Errors
    /// Same as [`Column::from_raw`].
    #[inline]
    pub fn at(batch: &'a Batch, node: i64, offset: i64, length: i64) -> Result<Self> {
        let Some(node) = usize::try_from(node).ok().filter(|&node| node < batch.schema().nodes()) else {
            return refuse!(DEVX_OUT_OF_RANGE, "column.node is {node}: not a column of this batch");
        };
        let array = batch.array(node);
        let fits = offset >= array.offset && length >= 0;
        match offset.checked_add(length).filter(|&end| fits && end <= array.offset + array.length) {
            Some(_) => Ok(Self { batch, node, offset, length }),
            None => refuse!(
                DEVX_OUT_OF_RANGE,
                "column has offset {offset} and length {length}: its array has offset {} and length {}",
                array.offset,
                array.length
            ),
        }
    }

    /// The column as a C record, whose pointers are valid as long as the batch.
    // Inlined, so that each member is written directly into the caller's record.
    #[inline(always)]
    pub fn to_raw(self) -> DevxColumn {
        self.to_raw_of(self.array(), self.record())
    }

    /// Like [`Column::to_raw`], but for a caller that already has the column's array and field.
    #[inline(always)]
    fn to_raw_of(self, array: &ArrowArray, record: &Record) -> DevxColumn {
        // First, because values that are known before a call have to be saved across it or loaded again after it.
        let null_count = self.known_null_count_of(array, record);
        // SAFETY: the schema keeps the struct alive.
        let source = unsafe { &*record.source };
        DevxColumn {
            format: source.format,
            name: if source.name.is_null() { c"".as_ptr() } else { source.name },
            metadata: source.metadata,
            flags: source.flags,
            length: self.length,
            null_count,
            offset: self.offset,
            buffers: array.buffers.cast_const(),
            // A null array has no buffers, even if its producer has given it some.
            n_buffers: if record.ty == Type::Null { 0 } else { array.n_buffers },
            n_children: array.n_children,
            has_dictionary: i64::from(!array.dictionary.is_null()),
            node: self.node as i64,
        }
    }

    /// Writes as many columns of a batch as there are places, from column `first` on, as [`Column::to_raw`] does.
    /// Returns `None` if the batch has fewer columns.
    pub fn write_raw(batch: &Batch, first: usize, places: &mut [MaybeUninit<DevxColumn>]) -> Option<()> {
        let left = batch.n_columns().checked_sub(first)?;
        if places.len() > left {
            return None;
        }
        let first = batch.schema().links(0).first_child as usize + first;
        let (arrays, records) = (batch.arrays().get(first..)?, batch.schema().records().get(first..)?);
        let seen = batch.root().seen_below();
        for (((place, &array), record), node) in places.iter_mut().zip(arrays).zip(records).zip(first..) {
            // SAFETY: the batch keeps the struct alive and in place.
            let array = unsafe { &*array };
            let whole = Column { batch, node, offset: array.offset, length: array.length };
            place.write(seen.of(whole).to_raw_of(array, record));
        }
        Some(())
    }

    #[inline]
    fn array(self) -> &'a ArrowArray {
        self.batch.array(self.node)
    }

    #[inline]
    fn record(self) -> &'a Record {
        self.batch.schema().record(self.node)
    }

    /// An error about this column, with its name in front if it has one.
    #[cold]
    pub fn named(self, error: Error) -> Error {
        error.within_named("column", self.field().name())
    }

    /// The batch that the column belongs to.
    pub fn batch(self) -> &'a Batch {
        self.batch
    }

    /// The field that describes the values.
    #[inline]
    pub fn field(self) -> Field<'a> {
        match self.batch.schema().field(self.node) {
            Some(field) => field,
            None => unreachable!("a column's node is one of its batch"),
        }
    }

    /// The parsed type.
    #[inline]
    pub fn ty(self) -> Type {
        self.batch.schema().ty(self.node)
    }

    /// Number of rows.
    pub fn length(self) -> i64 {
        self.length
    }

    /// Index of row 0 in the buffers.
    pub fn offset(self) -> i64 {
        self.offset
    }

    /// The buffers' addresses, in memory of the batch's device.
    #[inline]
    pub fn buffers(self) -> &'a [*const c_void] {
        self.batch.buffers(self.node)
    }

    #[inline]
    pub(crate) fn buffer(self, index: usize) -> *const c_void {
        self.buffers().get(index).copied().unwrap_or(std::ptr::null())
    }

    /// The values of all rows: numbers as they are, dates and times as the integers that store them, dictionary columns
    /// as their indices. Rows that are null are included; their values are undefined.
    ///
    /// # Errors
    /// `DEVX_MISMATCH` for another type, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` if the buffer is not
    /// aligned.
    #[inline]
    pub fn values<T: Element>(self) -> Result<&'a [T]> {
        let first = self.values_ptr(T::DTYPE)?;
        if self.length == 0 {
            return Ok(&[]);
        }
        // SAFETY: the producer of the array promises this many values. Their size was checked at import, their device
        // and alignment by `values_ptr`.
        Ok(unsafe { std::slice::from_raw_parts(first.cast::<T>(), self.length as usize) })
    }

    /// The address of row 0's value; see [`Column::values`].
    ///
    /// # Errors
    /// Same as [`Column::values`].
    #[inline]
    pub fn values_ptr(self, dtype: DType) -> Result<*const c_void> {
        if self.ty().storage() != Some(dtype) {
            return refuse!(DEVX_MISMATCH, "the type is {}, which is not stored as {dtype}", self.ty())
                .map_err(|error| self.named(error));
        }
        self.require_host()?;
        let values = self.buffer(1);
        // For an array without values, a producer may give any address.
        if self.length > 0 && !values.addr().is_multiple_of(dtype.alignment()) {
            return refuse!(
                DEVX_INVALID_BUFFERS,
                "buffers[1] is {values:p}: not aligned to {} bytes",
                dtype.alignment()
            )
            .map_err(|error| self.named(error));
        }
        Ok(values.wrapping_byte_add(self.offset as usize * dtype.element_bytes().unwrap_or(0)))
    }

    /// The number of nulls as far as it is known without reading the data; −1 if it is not known. Unions and run-end
    /// encoded arrays have no nulls of their own: their children do.
    #[inline]
    pub fn known_null_count(self) -> i64 {
        self.known_null_count_of(self.array(), self.record())
    }

    #[inline(always)]
    fn known_null_count_of(self, array: &ArrowArray, record: &Record) -> i64 {
        // The usual case. Without nulls in the array, no slice of it has any.
        if array.null_count == 0 && record.ty != Type::Null {
            return 0;
        }
        Self::nulls_of_rows(self.batch, self.node, self.offset, self.length)
    }

    /// The general case of [`Column::known_null_count`]. It takes the parts of a column, because a column whose address
    /// is passed to a function has to be in memory.
    #[inline(never)]
    pub(super) fn nulls_of_rows(batch: &Batch, node: usize, offset: i64, length: i64) -> i64 {
        let (array, ty) = (batch.array(node), batch.schema().ty(node));
        let whole = offset == array.offset && length == array.length;
        match (ty, array.null_count) {
            (Type::Null, _) => length,
            _ if length == 0 => 0,
            (ty, _) if !ty.buffers().has_validity() => 0,
            _ if batch.buffers(node).first().is_none_or(|validity| validity.is_null()) => 0,
            (_, count) if whole => count,
            _ => -1,
        }
    }

    /// The number of nulls, counted if it is not known.
    ///
    /// # Errors
    /// `DEVX_DEVICE` or `DEVX_NOT_READY` if the nulls have to be counted and the host cannot read the data; see
    /// [`Column::null_count_on`].
    pub fn null_count(self) -> Result<i64> {
        match self.known_null_count() {
            -1 => {
                let unknown =
                    |error: Error| self.named(error.within("null_count is -1, so the nulls have to be counted: "));
                self.require_host().map_err(unknown)?;
                let (bytes, first) = self.bits();
                let validity = self.buffer(0).cast::<u8>().wrapping_add(bytes.start);
                // SAFETY: the producer of the array promises a bit for each row.
                let bits = unsafe { std::slice::from_raw_parts(validity, bytes.len()) };
                Ok(bitmap::zeros(bits, first, self.length as usize) as i64)
            }
            known => Ok(known),
        }
    }

    /// Like [`Column::null_count`], but also for device memory.
    ///
    /// If the number is not known, the validity buffer is copied on `stream`, after the data is ready there, and the
    /// host waits for the copy.
    ///
    /// # Errors
    /// `DEVX_DRIVER`, `DEVX_UNSUPPORTED` while `stream` is captured, `DEVX_OUT_OF_MEMORY`.
    pub fn null_count_on(self, stream: Stream) -> Result<i64> {
        if self.known_null_count() != -1 || self.require_host().is_ok() {
            return self.null_count();
        }
        stream.require_no_capture()?;
        self.batch.wait(stream)?;
        let (bytes, first) = self.bits();
        // SAFETY: the producer of the array promises a bit for each row.
        let bits = unsafe { self.batch.fetch(self.buffer(0).wrapping_byte_add(bytes.start), bytes.len(), stream) }?;
        Ok(bitmap::zeros(&bits, first, self.length as usize) as i64)
    }

    /// The child at `index`. For a struct, a sparse union or a fixed-size list, it has the rows that this column sees;
    /// for other types, it has all values (see [`Column::list`], [`Column::union_value`], [`Column::run`]).
    #[inline]
    pub fn child(self, index: usize) -> Option<Self> {
        let node = self.batch.schema().links(self.node).child(index)?;
        Some(self.seen_below().of(Self::whole(self.batch, node)))
    }

    /// All children; see [`Column::child`].
    #[inline]
    pub fn children(self) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        let links = self.batch.schema().links(self.node);
        let (seen, first) = (self.seen_below(), links.first_child as usize);
        (first..first + links.n_children()).map(move |node| seen.of(Self::whole(self.batch, node)))
    }

    /// The children, followed by the dictionary.
    #[inline]
    pub(super) fn below(self, links: Links) -> impl Iterator<Item = Self> {
        let (seen, first, children) = (self.seen_below(), links.first_child as usize, links.n_children());
        (first..first + links.below()).map(move |node| {
            let whole = Self::whole(self.batch, node);
            if node < first + children { seen.of(whole) } else { whole }
        })
    }

    #[inline]
    fn seen_below(self) -> Seen {
        match self.ty() {
            Type::Struct | Type::SparseUnion => Seen::Rows(self.offset, self.length),
            Type::FixedSizeList(size) => Seen::Rows(self.offset * i64::from(size), self.length * i64::from(size)),
            _ => Seen::All,
        }
    }

    /// Like [`Column::slice`], but for rows that are known to exist.
    #[inline]
    fn seen(self, offset: i64, length: i64) -> Self {
        Self { offset: self.offset + offset, length, ..self }
    }

    /// The dictionary, if the values are indices into one.
    pub fn dictionary(self) -> Option<Self> {
        let node = self.batch.schema().links(self.node).dictionary()?;
        Some(Self::whole(self.batch, node))
    }

    /// The bytes of a buffer of bits that hold those of all rows, and which bit of the first byte belongs to row 0.
    pub(crate) fn bits(self) -> (Range<usize>, usize) {
        let (first, rows) = (self.offset as usize, self.length as usize);
        // Without rows, not even the byte around them may be read: there may be no such byte.
        let end = if rows == 0 { first / 8 } else { (first + rows).div_ceil(8) };
        (first / 8..end, first % 8)
    }

    #[inline]
    pub(crate) fn require_host(self) -> Result<()> {
        self.batch.require_host()
    }
}
