//! The values in the rows of a column, in host memory.

use core::ffi::c_void;
use std::ops::Range;

use super::Column;
use crate::arrow::format::Type;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::memory::entry;
use crate::text::Lossy;

/// The most bytes of a text that an error shows. A row can have gigabytes, and unprintable ones take several times as many.
const MOST_SHOWN: usize = 256;

/// Like [`crate::error::refuse`], but about a column, which the error names.
macro_rules! refuse {
    ($column:expr, $($what:tt)*) => {
        crate::error::refuse!($($what)*).map_err(|error| $column.named(error))
    };
}

impl<'a> Column<'a> {
    /// Whether a row is not null. For a dictionary this is about the index; for unions and run-end encoded arrays it is
    /// always true. [`Column::resolve`] goes on to the value itself.
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
            return refuse!(self, DEVX_MISMATCH, "the type is {}, which is not stored as {dtype}", self.ty());
        }
        self.require_host()?;
        let values = self.buffer(1);
        // For an array without values, a producer may give any address.
        if self.length > 0 && !values.addr().is_multiple_of(dtype.alignment()) {
            return refuse!(
                self,
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
            return refuse!(self, DEVX_MISMATCH, "the type is {}, not bool", self.ty());
        }
        self.require_row(row)?;
        self.require_host()?;
        Ok(self.bit(1, row))
    }

    /// The bytes of a row, of a type whose values all have the same size ([`Type::byte_width`]), as they are stored:
    /// numbers and decimals in native byte order, two's complement.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`.
    pub fn fixed(self, row: i64) -> Result<&'a [u8]> {
        let Some(width) = self.ty().byte_width() else {
            return refuse!(
                self,
                DEVX_MISMATCH,
                "the type is {}, whose values are not a fixed number of bytes",
                self.ty()
            );
        };
        self.require_row(row)?;
        self.require_host()?;
        let start = (self.offset + row) as usize * width as usize;
        self.part(1, start..start + width as usize, row)
    }

    /// The bytes of a row of text or binary. Those of a null are undefined, usually empty.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` for offsets that go
    /// backwards or views that point beyond their data.
    pub fn bytes(self, row: i64) -> Result<&'a [u8]> {
        let range = match self.ty() {
            Type::FixedSizeBinary(_) => return self.fixed(row),
            Type::BinaryView | Type::Utf8View => return self.viewed(row),
            Type::Binary | Type::Utf8 => self.range_of_bytes::<i32>(row)?,
            Type::LargeBinary | Type::LargeUtf8 => self.range_of_bytes::<i64>(row)?,
            other => return refuse!(self, DEVX_MISMATCH, "the type is {other}, neither text nor binary"),
        };
        self.part(2, range, row)
    }

    /// The bytes that a view of 16 bytes stands for. A view is a length, then either up to 12 bytes, or the first 4
    /// bytes, the number of a data buffer and an offset into it (Arrow columnar format, "Variable-size Binary View
    /// Layout").
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
            return refuse!(self, DEVX_INVALID_BUFFERS, "the view of row {row} has length {}", word(0));
        };
        if length <= IN_PLACE {
            return Ok(view.get(4..4 + length).unwrap_or_default());
        }
        let (index, offset) = (word(8), word(12));
        let buffers = self.buffers().len();
        let data = usize::try_from(index).ok().filter(|&index| index + 3 < buffers);
        let (Some(data), Ok(start)) = (data, usize::try_from(offset)) else {
            return refuse!(
                self,
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
                self,
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
            return refuse!(
                self,
                DEVX_INVALID_BUFFERS,
                "buffers[{buffer}] is NULL, but row {row} has {} bytes",
                range.len()
            );
        }
        // SAFETY: the producer of the array promises that its offsets are within its data.
        let first = unsafe { data.add(range.start) };
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts(first, range.len()) })
    }

    /// The text of a row; see [`Column::bytes`].
    ///
    /// # Errors
    /// Same as [`Column::bytes`]; `DEVX_INVALID_TEXT` if it is not UTF-8.
    pub fn text(self, row: i64) -> Result<&'a str> {
        if !self.ty().is_text() {
            return refuse!(self, DEVX_MISMATCH, "the type is {}, not text", self.ty());
        }
        let bytes = self.bytes(row)?;
        std::str::from_utf8(bytes).or_else(|_| {
            let shown = Lossy(bytes.get(..MOST_SHOWN).unwrap_or(bytes));
            refuse!(self, DEVX_INVALID_TEXT, "row {row} is not valid UTF-8: {shown:?}")
        })
    }

    /// The values of a row of lists or of a map: the part of the child from where the list starts to where it ends. For
    /// a map, they are a struct of keys and values.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` for offsets that
    /// go backwards or beyond the child.
    pub fn list(self, row: i64) -> Result<Self> {
        let is_list = self.ty().is_list() || matches!(self.ty(), Type::FixedSizeList(_));
        let Some(child) = self.child(0).filter(|_| is_list) else {
            return refuse!(self, DEVX_MISMATCH, "the type is {}, not a list", self.ty());
        };
        let range = match self.ty() {
            Type::FixedSizeList(size) => {
                self.require_row(row)?;
                return Ok(child.seen(row * i64::from(size), size.into()));
            }
            Type::List | Type::Map => self.range::<i32>(row)?,
            Type::LargeList => self.range::<i64>(row)?,
            Type::ListView => self.range_of_view::<i32>(row)?,
            _ => self.range_of_view::<i64>(row)?,
        };
        let (start, length) = (range.start as i64, range.len() as i64);
        if start > child.length || length > child.length - start {
            return refuse!(
                self,
                DEVX_INVALID_BUFFERS,
                "row {row} is {range:?} of a child with length {}",
                child.length
            );
        }
        Ok(child.seen(start, length))
    }

    /// Where a union stores the value of a row: the type id, the child as [`Column::child`] returns it, and the row of
    /// that child.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` for a type id that
    /// the union does not have, or an offset beyond the child.
    pub fn union_value(self, row: i64) -> Result<(i8, Self, i64)> {
        let Some(ids) = self.field().type_ids() else {
            return refuse!(self, DEVX_MISMATCH, "the type is {}, not a union", self.ty());
        };
        self.require_row(row)?;
        self.require_host()?;
        // SAFETY: the producer of the array promises a type id for each row.
        let id = unsafe { entry(self.buffer(0).cast::<i8>(), (self.offset + row) as usize) };
        let Some((number, child)) = ids.child(id).and_then(|number| Some((number, self.child(number)?))) else {
            return refuse!(
                self,
                DEVX_INVALID_BUFFERS,
                "row {row} has type id {id}: {:?} has none",
                self.field().format()
            );
        };
        if self.ty() == Type::SparseUnion {
            return Ok((id, child, row));
        }
        let offset = i64::from(self.one_of::<i32>(1, row));
        if (0..child.length).contains(&offset) {
            Ok((id, child, offset))
        } else {
            refuse!(
                self,
                DEVX_INVALID_BUFFERS,
                "row {row} is offset {offset} of child {number}, whose length is {}",
                child.length
            )
        }
    }

    /// The number of the run that a row is in, counted from 0, which is the row of its value in the second child. It is
    /// found by binary search, because run ends ascend.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` if the runs end before
    /// the row.
    pub fn run(self, row: i64) -> Result<i64> {
        let Some(ends) = self.child(0).filter(|_| self.ty() == Type::RunEndEncoded) else {
            return refuse!(self, DEVX_MISMATCH, "the type is {}, not run-end encoded", self.ty());
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
        refuse!(self, DEVX_INVALID_BUFFERS, "row {row} with offset {} is behind the end of all {low} runs", self.offset)
    }

    /// Where the value of a row is stored, behind dictionaries, unions and runs: a column of another type, and a row of
    /// it. `None` if the value, or an index on the way to it, is null.
    ///
    /// # Errors
    /// Same as [`Column::dictionary_index`], [`Column::union_value`], [`Column::run`].
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
            return refuse!(self, DEVX_MISMATCH, "the column has no dictionary");
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
            _ => {
                refuse!(self, DEVX_OUT_OF_RANGE, "row {row} is index {index} of a dictionary of {}", dictionary.length)
            }
        }
    }

    fn one<T: Element>(self, row: i64) -> Result<T> {
        let values = self.values::<T>()?;
        match usize::try_from(row).ok().and_then(|row| values.get(row)) {
            Some(value) => Ok(*value),
            None => refuse!(self, DEVX_OUT_OF_RANGE, "row is {row}: the column has {}", self.length),
        }
    }

    fn range<O: Element + TryInto<usize> + Into<i64>>(self, row: i64) -> Result<Range<usize>> {
        self.require_row(row)?;
        self.require_host()?;
        let (start, end) = (self.one_of::<O>(1, row), self.one_of::<O>(1, row + 1));
        match (start.try_into(), end.try_into()) {
            (Ok(start), Ok(end)) if start <= end => Ok(start..end),
            _ => {
                refuse!(
                    self,
                    DEVX_INVALID_BUFFERS,
                    "the offsets of row {row} are {} and {}: they must ascend from 0",
                    start.into(),
                    end.into()
                )
            }
        }
    }

    /// Like [`Column::range`], but for bytes, whose number only the last offset says.
    fn range_of_bytes<O: Element + TryInto<usize> + Into<i64>>(self, row: i64) -> Result<Range<usize>> {
        let range = self.range::<O>(row)?;
        let last = self.one_of::<O>(1, self.length);
        if range.end <= last.try_into().unwrap_or(0) {
            return Ok(range);
        }
        let (Range { start, end }, last) = (range, last.into());
        refuse!(
            self,
            DEVX_INVALID_BUFFERS,
            "the offsets of row {row} are {start} and {end}, those of the column end at {last}"
        )
    }

    fn range_of_view<O: Element + TryInto<usize> + Into<i64>>(self, row: i64) -> Result<Range<usize>> {
        self.require_row(row)?;
        self.require_host()?;
        let (start, size) = (self.one_of::<O>(1, row), self.one_of::<O>(2, row));
        let end = |start: usize| start.checked_add(size.try_into().ok()?);
        match start.try_into().ok().and_then(|start| Some(start..end(start)?)) {
            Some(range) => Ok(range),
            None => {
                refuse!(
                    self,
                    DEVX_INVALID_BUFFERS,
                    "row {row} has offset {} and size {}: neither may be negative",
                    start.into(),
                    size.into()
                )
            }
        }
    }

    /// The element of a row in a buffer of numbers in host memory. For offsets, the row after the last one has an
    /// element, too.
    fn one_of<T: Element>(self, buffer: usize, row: i64) -> T {
        let values = self.buffer(buffer).cast::<T>();
        // SAFETY: the producer of the array promises an element for each row.
        let place = unsafe { values.add((self.offset + row) as usize) };
        // SAFETY: as above; an unaligned read needs no alignment.
        unsafe { place.read_unaligned() }
    }

    /// The bit of a row, which exists, in a bitmap that the host can read.
    pub(crate) fn bit(self, buffer: usize, row: i64) -> bool {
        let index = (self.offset + row) as usize;
        // SAFETY: the producer of the array promises a bit for each row.
        let byte = unsafe { entry(self.buffer(buffer).cast::<u8>(), index / 8) };
        byte >> (index % 8) & 1 == 1
    }

    fn require_row(self, row: i64) -> Result<()> {
        if (0..self.length).contains(&row) {
            Ok(())
        } else {
            refuse!(self, DEVX_OUT_OF_RANGE, "row is {row}: the column has {}", self.length)
        }
    }
}
