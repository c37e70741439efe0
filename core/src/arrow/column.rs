//! A column: a view of one array of a batch, with the slices of the arrays above it applied.

use core::ffi::c_void;
use std::ops::Range;

use super::batch::Batch;
use super::bitmap;
use super::field::Field;
use super::format::Type;
use super::tree::Links;
use crate::abi::arrow_data::ArrowArray;
use crate::abi::types::DevxColumn;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result, refuse};
use crate::memory::entry;
use crate::runtime::cuda::Stream;
use crate::text::Lossy;

/// A view of one array of a batch. Rows are counted from 0; `offset` is where row 0 is in the buffers.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    batch: &'a Batch,
    node: usize,
    offset: i64,
    length: i64,
}

/// What a column sees of its children.
#[derive(Clone, Copy)]
enum Seen {
    All,
    /// From a row on, so many.
    Rows(i64, i64),
}

impl Seen {
    #[inline]
    fn of(self, child: Column<'_>) -> Column<'_> {
        match self {
            Self::All => child,
            Self::Rows(offset, length) => child.slice(offset, length),
        }
    }
}

impl<'a> Column<'a> {
    #[inline]
    pub(crate) fn whole(batch: &'a Batch, node: usize) -> Self {
        let array = batch.array(node);
        Self { batch, node, offset: array.offset, length: array.length }
    }

    /// Some of the rows of a node's array.
    #[inline]
    pub(super) fn rows_of(batch: &'a Batch, node: usize, offset: i64, length: i64) -> Self {
        Self { batch, node, offset, length }
    }

    /// The column that a record of [`Column::to_raw`] describes.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_RANGE` if the record does not describe rows of this batch.
    #[inline]
    pub fn from_raw(batch: &'a Batch, raw: &DevxColumn) -> Result<Self> {
        Self::at(batch, raw.node, raw.offset, raw.length)
    }

    /// The column of which a record has these three, which is all that says which one it is.
    ///
    /// # Errors
    /// As [`Column::from_raw`].
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

    /// As the C record, whose pointers are valid as long as the batch.
    // Inlined, so that each member is written where the record is to be, and not copied there.
    #[inline(always)]
    pub fn to_raw(self) -> DevxColumn {
        // First, as what is known before a call has to be kept or looked for again after it.
        let null_count = self.known_null_count();
        let (array, source) = (self.array(), self.field().raw());
        DevxColumn {
            format: source.format,
            name: if source.name.is_null() { c"".as_ptr() } else { source.name },
            metadata: source.metadata,
            flags: source.flags,
            length: self.length,
            null_count,
            offset: self.offset,
            buffers: array.buffers.cast_const(),
            n_buffers: self.buffers().len() as i64,
            n_children: array.n_children,
            has_dictionary: i64::from(!array.dictionary.is_null()),
            node: self.node as i64,
        }
    }

    #[inline]
    fn array(self) -> &'a ArrowArray {
        self.batch.array(self.node)
    }

    /// The batch that it is a column of.
    pub fn batch(self) -> &'a Batch {
        self.batch
    }

    /// What the values are.
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

    fn buffer(self, index: usize) -> *const c_void {
        self.buffers().get(index).copied().unwrap_or(std::ptr::null())
    }

    /// Whether the values are in buffers of its own, behind one that says which are valid, as those of nearly every column.
    fn is_plain(self) -> bool {
        self.batch.schema().record(self.node).plain != 0
    }

    /// The number of nulls as far as it is known without reading the data: −1 if it is not. A union and runs have none of
    /// their own: their children do.
    #[inline]
    pub fn known_null_count(self) -> i64 {
        // What most arrays say, and true of every slice.
        if self.array().null_count == 0 && self.ty() != Type::Null {
            return 0;
        }
        Self::nulls_of_rows(self.batch, self.node, self.offset, self.length)
    }

    /// The longer way of [`Column::known_null_count`]. By its parts: a column whose address is given away has to be in
    /// memory.
    #[inline(never)]
    pub(super) fn nulls_of_rows(batch: &Batch, node: usize, offset: i64, length: i64) -> i64 {
        let (array, ty) = (batch.array(node), batch.schema().ty(node));
        let whole = offset == array.offset && length == array.length;
        match (ty, array.null_count) {
            (Type::Null, _) => length,
            (ty, _) if !ty.buffers().has_validity() => 0,
            _ if batch.buffers(node).first().is_none_or(|validity| validity.is_null()) => 0,
            (_, count) if whole => count,
            _ => -1,
        }
    }

    /// The number of nulls; counted if it is not known.
    ///
    /// # Errors
    /// `DEVX_DEVICE` or `DEVX_NOT_READY` if it has to be counted and the host cannot read it; see
    /// [`Column::null_count_on`].
    pub fn null_count(self) -> Result<i64> {
        match self.known_null_count() {
            -1 => {
                self.require_host()?;
                let (bytes, first) = self.validity();
                let validity = self.buffer(0).cast::<u8>().wrapping_add(bytes.start);
                // SAFETY: the producer of the array promises a bit for each row.
                let bits = unsafe { std::slice::from_raw_parts(validity, bytes.len()) };
                Ok(bitmap::zeros(bits, first, self.length as usize) as i64)
            }
            known => Ok(known),
        }
    }

    /// As [`Column::null_count`], also in device memory: if it is not known, the validity buffer is copied on `stream`,
    /// after the data is ready there, and the host waits for it.
    ///
    /// # Errors
    /// `DEVX_DRIVER`, `DEVX_INVALID_STREAM` while `stream` is captured, `DEVX_OUT_OF_MEMORY`.
    pub fn null_count_on(self, stream: Stream) -> Result<i64> {
        if self.known_null_count() != -1 || self.require_host().is_ok() {
            return self.null_count();
        }
        stream.require_no_capture()?;
        self.batch.wait(stream)?;
        let (bytes, first) = self.validity();
        // SAFETY: the producer of the array promises a bit for each row.
        let bits = unsafe { self.batch.fetch(self.buffer(0).wrapping_byte_add(bytes.start), bytes.len(), stream) }?;
        Ok(bitmap::zeros(&bits, first, self.length as usize) as i64)
    }

    /// The child at `index`: of a struct, a sparse union and a fixed-size list the rows that this column sees, of other
    /// types all values (see [`Column::list`], [`Column::union_value`], [`Column::run`]).
    #[inline]
    pub fn child(self, index: usize) -> Option<Self> {
        let node = self.batch.schema().links(self.node).child(index)?;
        Some(self.seen_below().of(Self::whole(self.batch, node)))
    }

    /// The children and, behind them, the dictionary.
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

    fn slice(self, offset: i64, length: i64) -> Self {
        Self { offset: self.offset + offset, length, ..self }
    }

    /// The dictionary, if the values are indices into one.
    pub fn dictionary(self) -> Option<Self> {
        let node = self.batch.schema().links(self.node).dictionary()?;
        Some(Self::whole(self.batch, node))
    }

    /// Whether the value of a row is there. Of a dictionary this is about the index, of a union and of runs it is always
    /// true: [`Column::resolve`] goes on to the value itself.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`.
    pub fn is_valid(self, row: i64) -> Result<bool> {
        self.require_row(row)?;
        if !self.is_plain() && !self.ty().buffers().has_validity() {
            return Ok(self.ty() != Type::Null);
        }
        if self.buffer(0).is_null() {
            return Ok(true);
        }
        self.require_host()?;
        Ok(self.bit(0, row))
    }

    /// The values of all rows, nulls included (what they hold there is not defined): numbers as they are,
    /// dates and times as the integers that they are stored as, dictionary columns as their indices.
    ///
    /// # Errors
    /// `DEVX_MISMATCH` for another type, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` if the buffer is not
    /// aligned.
    pub fn values<T: Element>(self) -> Result<&'a [T]> {
        let first = self.values_ptr(T::DTYPE)?;
        if self.length == 0 {
            return Ok(&[]);
        }
        // SAFETY: the producer of the array promises so many values; they were checked to be addressable and aligned.
        Ok(unsafe { std::slice::from_raw_parts(first.cast::<T>(), self.length as usize) })
    }

    /// The address of row 0's value; see [`Column::values`].
    ///
    /// # Errors
    /// As [`Column::values`].
    pub fn values_ptr(self, dtype: DType) -> Result<*const c_void> {
        if self.ty().storage() != Some(dtype) {
            return refuse!(DEVX_MISMATCH, "the column is {}, which is not stored as {dtype}", self.ty());
        }
        self.require_host()?;
        let values = self.buffer(1);
        // Of no values, a producer may give any address.
        if self.length > 0 && !values.addr().is_multiple_of(dtype.alignment()) {
            return refuse!(
                DEVX_INVALID_BUFFERS,
                "buffers[1] is {values:p}: not aligned to {} bytes",
                dtype.alignment()
            );
        }
        Ok(values.wrapping_byte_add(self.offset as usize * dtype.element_bytes().unwrap_or(0)))
    }

    /// The value of a row of bools.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`.
    pub fn bool(self, row: i64) -> Result<bool> {
        if self.ty() != Type::Bool {
            return refuse!(DEVX_MISMATCH, "the column is {}, not bool", self.ty());
        }
        self.require_row(row)?;
        self.require_host()?;
        Ok(self.bit(1, row))
    }

    /// The bytes of a row whose values all have the same number of them ([`Type::byte_width`]), as they are stored:
    /// numbers and decimals in native byte order, two's complement.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`.
    pub fn fixed(self, row: i64) -> Result<&'a [u8]> {
        let Some(width) = self.ty().byte_width() else {
            return refuse!(DEVX_MISMATCH, "the column is {}, whose values are not a fixed number of bytes", self.ty());
        };
        self.require_row(row)?;
        self.require_host()?;
        let start = (self.offset + row) as usize * width as usize;
        self.part(1, start..start + width as usize, row)
    }

    /// The bytes of a row of text or binary; those of a null are not defined, usually none.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` for offsets that go
    /// backwards or views that point beyond their data.
    pub fn bytes(self, row: i64) -> Result<&'a [u8]> {
        let range = match self.ty() {
            Type::FixedSizeBinary(_) => return self.fixed(row),
            Type::BinaryView | Type::Utf8View => return self.viewed(row),
            Type::Binary | Type::Utf8 => self.range::<i32>(row)?,
            Type::LargeBinary | Type::LargeUtf8 => self.range::<i64>(row)?,
            other => return refuse!(DEVX_MISMATCH, "the column is {other}, neither text nor binary"),
        };
        self.part(2, range, row)
    }

    /// What a view of 16 bytes stands for: a length, then up to 12 bytes, or 4 of them and the number of a data buffer
    /// and an offset into it (Arrow columnar format, "Variable-size Binary View Layout").
    fn viewed(self, row: i64) -> Result<&'a [u8]> {
        const IN_PLACE: usize = 12;
        self.require_row(row)?;
        self.require_host()?;
        let start = (self.offset + row) as usize * 16;
        let view = self.part(1, start..start + 16, row)?;
        let word = |at: usize| match view.get(at..at + 4) {
            Some(&[a, b, c, d]) => i32::from_ne_bytes([a, b, c, d]),
            _ => -1,
        };
        let Ok(length) = usize::try_from(word(0)) else {
            return refuse!(DEVX_INVALID_BUFFERS, "the view of row {row} has length {}", word(0));
        };
        if length <= IN_PLACE {
            return Ok(view.get(4..4 + length).unwrap_or_default());
        }
        let (index, offset) = (word(8), word(12));
        let buffers = self.buffers().len();
        let data = usize::try_from(index).ok().filter(|&index| index + 3 < buffers);
        let (Some(data), Ok(start)) = (data, usize::try_from(offset)) else {
            return refuse!(
                DEVX_INVALID_BUFFERS,
                "the view of row {row} is buffer {index}, offset {offset}: there are {} data buffers",
                buffers.saturating_sub(3)
            );
        };
        let sizes = self.part(buffers - 1, data * 8..data * 8 + 8, row)?;
        let size = sizes.try_into().map_or(-1, i64::from_ne_bytes);
        if usize::try_from(size).is_ok_and(|size| start + length <= size) {
            self.part(data + 2, start..start + length, row)
        } else {
            refuse!(
                DEVX_INVALID_BUFFERS,
                "the view of row {row} is {length} bytes at offset {offset} of data buffer {index}, which has {size}"
            )
        }
    }

    /// Bytes of a buffer in host memory.
    fn part(self, buffer: usize, range: Range<usize>, row: i64) -> Result<&'a [u8]> {
        let data = self.buffer(buffer).cast::<u8>();
        if range.is_empty() {
            return Ok(&[]);
        }
        if data.is_null() {
            return refuse!(DEVX_INVALID_BUFFERS, "buffers[{buffer}] is NULL, but row {row} has {} bytes", range.len());
        }
        // SAFETY: the producer of the array promises that its offsets are within its data.
        let first = unsafe { data.add(range.start) };
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts(first, range.len()) })
    }

    /// The text of a row; see [`Column::bytes`].
    ///
    /// # Errors
    /// As [`Column::bytes`]; `DEVX_INVALID_TEXT` if it is not UTF-8.
    pub fn text(self, row: i64) -> Result<&'a str> {
        if !self.ty().is_text() {
            return refuse!(DEVX_MISMATCH, "the column is {}, not text", self.ty());
        }
        let bytes = self.bytes(row)?;
        std::str::from_utf8(bytes).map_err(|_| {
            let shown = Lossy(bytes);
            Error::new(crate::abi::types::DEVX_INVALID_TEXT, format_args!("row {row} is not valid UTF-8: {shown:?}"))
        })
    }

    /// The values of a row of lists or of a map: the child, seen from where the list starts to where it ends. Of a map
    /// that is a struct of keys and values.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` for offsets that go
    /// backwards or beyond the child.
    pub fn list(self, row: i64) -> Result<Self> {
        let is_list = self.ty().is_list() || matches!(self.ty(), Type::FixedSizeList(_));
        let Some(child) = self.child(0).filter(|_| is_list) else {
            return refuse!(DEVX_MISMATCH, "the column is {}, not a list", self.ty());
        };
        let range = match self.ty() {
            Type::FixedSizeList(size) => {
                self.require_row(row)?;
                return Ok(child.slice(row * i64::from(size), size.into()));
            }
            Type::List | Type::Map => self.range::<i32>(row)?,
            Type::LargeList => self.range::<i64>(row)?,
            Type::ListView => self.range_of_view::<i32>(row)?,
            _ => self.range_of_view::<i64>(row)?,
        };
        let (start, length) = (range.start as i64, range.len() as i64);
        if start > child.length || length > child.length - start {
            return refuse!(DEVX_INVALID_BUFFERS, "row {row} is {range:?} of a child with length {}", child.length);
        }
        Ok(child.slice(start, length))
    }

    /// Which child of a union holds the value of a row, and in which row of it: its type id, the child as
    /// [`Column::child`] gives it, and the row.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` for a type id that is
    /// none of the union's, or an offset beyond the child.
    pub fn union_value(self, row: i64) -> Result<(i8, Self, i64)> {
        let Some(ids) = self.field().type_ids() else {
            return refuse!(DEVX_MISMATCH, "the column is {}, not a union", self.ty());
        };
        self.require_row(row)?;
        self.require_host()?;
        // SAFETY: the producer of the array promises a type id for each row.
        let id = unsafe { entry(self.buffer(0).cast::<i8>(), (self.offset + row) as usize) };
        let Some((number, child)) = ids.child(id).and_then(|number| Some((number, self.child(number)?))) else {
            return refuse!(DEVX_INVALID_BUFFERS, "row {row} has type id {id}: {:?} has none", self.field().format());
        };
        if self.ty() == Type::SparseUnion {
            return Ok((id, child, row));
        }
        let offset = i64::from(self.one_of::<i32>(1, row));
        if (0..child.length).contains(&offset) {
            Ok((id, child, offset))
        } else {
            refuse!(
                DEVX_INVALID_BUFFERS,
                "row {row} is offset {offset} of child {number}, whose length is {}",
                child.length
            )
        }
    }

    /// Which run a row is in, counted from 0: the row of the value in the second child. Found by halving, as run ends
    /// grow.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` if the runs end before
    /// the row.
    pub fn run(self, row: i64) -> Result<i64> {
        let Some(ends) = self.child(0).filter(|_| self.ty() == Type::RunEndEncoded) else {
            return refuse!(DEVX_MISMATCH, "the column is {}, not run-end encoded", self.ty());
        };
        self.require_row(row)?;
        self.require_host()?;
        let logical = self.offset + row;
        let end = |run: i64| match ends.ty() {
            Type::Int(2) => ends.one_of::<i16>(1, run).into(),
            Type::Int(4) => ends.one_of::<i32>(1, run).into(),
            _ => ends.one_of::<i64>(1, run),
        };
        let (mut low, mut high) = (0, ends.length);
        while low < high {
            let middle = low + (high - low) / 2;
            if end(middle) <= logical { low = middle + 1 } else { high = middle }
        }
        if low < ends.length {
            return Ok(low);
        }
        refuse!(DEVX_INVALID_BUFFERS, "row {row} with offset {} is behind the end of all {low} runs", self.offset)
    }

    /// Where the value of a row is stored, behind dictionaries, unions and runs: a column of another type, and the row
    /// of it. `None` if it is null there or on the way.
    ///
    /// # Errors
    /// As [`Column::dictionary_index`], [`Column::union_value`], [`Column::run`].
    pub fn resolve(self, row: i64) -> Result<Option<(Self, i64)>> {
        let (mut column, mut row) = (self, row);
        // Each step goes down in a tree whose depth was checked.
        loop {
            if !column.is_valid(row)? {
                return Ok(None);
            }
            if column.is_plain() {
                return Ok(Some((column, row)));
            }
            (column, row) = match (column.dictionary(), column.ty(), column.child(1)) {
                (Some(dictionary), ..) => (dictionary, column.dictionary_index(row)?),
                (_, Type::RunEndEncoded, Some(values)) => (values, column.run(row)?),
                (_, ty, _) if ty.is_union() => {
                    let (_, child, row) = column.union_value(row)?;
                    (child, row)
                }
                _ => return Ok(Some((column, row))),
            };
        }
    }

    /// The index into the dictionary that a row holds.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE` also for an index outside the dictionary, `DEVX_DEVICE`, `DEVX_NOT_READY`.
    pub fn dictionary_index(self, row: i64) -> Result<i64> {
        let Some(dictionary) = self.dictionary() else {
            return refuse!(DEVX_MISMATCH, "the column has no dictionary");
        };
        self.require_row(row)?;
        let index = match self.ty() {
            Type::Int(1) => i128::from(self.one::<i8>(row)?),
            Type::Int(2) => self.one::<i16>(row)?.into(),
            Type::Int(4) => self.one::<i32>(row)?.into(),
            Type::Int(_) => self.one::<i64>(row)?.into(),
            Type::UInt(1) => self.one::<u8>(row)?.into(),
            Type::UInt(2) => self.one::<u16>(row)?.into(),
            Type::UInt(4) => self.one::<u32>(row)?.into(),
            _ => self.one::<u64>(row)?.into(),
        };
        match i64::try_from(index) {
            Ok(index) if (0..dictionary.length).contains(&index) => Ok(index),
            _ => refuse!(DEVX_OUT_OF_RANGE, "row {row} is index {index} of a dictionary of {}", dictionary.length),
        }
    }

    fn one<T: Element>(self, row: i64) -> Result<T> {
        let values = self.values::<T>()?;
        match usize::try_from(row).ok().and_then(|row| values.get(row)) {
            Some(value) => Ok(*value),
            None => refuse!(DEVX_OUT_OF_RANGE, "row is {row}: the column has {}", self.length),
        }
    }

    fn range<O: Element + TryInto<usize> + Into<i64>>(self, row: i64) -> Result<Range<usize>> {
        self.require_row(row)?;
        self.require_host()?;
        let (start, end) = (self.one_of::<O>(1, row), self.one_of::<O>(1, row + 1));
        match (start.try_into(), end.try_into()) {
            (Ok(start), Ok(end)) if start <= end => Ok(start..end),
            _ => refuse!(DEVX_INVALID_BUFFERS, "the offsets of row {row} are {} and {}", start.into(), end.into()),
        }
    }

    fn range_of_view<O: Element + TryInto<usize> + Into<i64>>(self, row: i64) -> Result<Range<usize>> {
        self.require_row(row)?;
        self.require_host()?;
        let (start, size) = (self.one_of::<O>(1, row), self.one_of::<O>(2, row));
        let end = |start: usize| start.checked_add(size.try_into().ok()?);
        match start.try_into().ok().and_then(|start| Some(start..end(start)?)) {
            Some(range) => Ok(range),
            None => {
                refuse!(DEVX_INVALID_BUFFERS, "row {row} has offset {} and size {}", start.into(), size.into())
            }
        }
    }

    /// Element of a row in a buffer of numbers in host memory. The rows of the array, and one more of offsets, may be
    /// asked for.
    fn one_of<T: Element>(self, buffer: usize, row: i64) -> T {
        let values = self.buffer(buffer).cast::<T>();
        // SAFETY: the producer of the array promises an element for each row.
        let place = unsafe { values.add((self.offset + row) as usize) };
        // SAFETY: as above; it need not be aligned for this.
        unsafe { place.read_unaligned() }
    }

    /// Which bytes of the validity buffer hold the bits of all rows, and which bit of the first one is that of row 0.
    fn validity(self) -> (Range<usize>, usize) {
        let (first, rows) = (self.offset as usize, self.length as usize);
        // Of no rows not even the byte around them: there may be none.
        let end = if rows == 0 { first / 8 } else { (first + rows).div_ceil(8) };
        (first / 8..end, first % 8)
    }

    /// Bit of a row in a bitmap of host memory.
    fn bit(self, buffer: usize, row: i64) -> bool {
        let index = (self.offset + row) as usize;
        // SAFETY: the producer of the array promises a bit for each row.
        let byte = unsafe { entry(self.buffer(buffer).cast::<u8>(), index / 8) };
        byte >> (index % 8) & 1 == 1
    }

    fn require_row(self, row: i64) -> Result<()> {
        if (0..self.length).contains(&row) {
            Ok(())
        } else {
            refuse!(DEVX_OUT_OF_RANGE, "row is {row}: the column has {}", self.length)
        }
    }

    pub(crate) fn require_host(self) -> Result<()> {
        self.batch.device().require_host()?;
        self.batch.ready().require_now()
    }
}
