//! The values in the rows of a column, in host memory.

use core::ffi::c_void;
use std::ops::Range;

use super::Column;
use crate::arrow::format::Type;
use crate::dtype::Element;
use crate::error::Result;
use crate::memory::entry;
use crate::text::Lossy;

/// The most bytes of a text that an error shows. A row can have gigabytes, and unprintable ones take several times as many.
const MOST_SHOWN: usize = 256;

/// Like [`crate::error::refuse`], but about rows of a column, which the error names.
macro_rules! refuse {
    ($rows:expr, $($what:tt)*) => {
        crate::error::refuse!($($what)*).map_err(|error| $rows.column.named(error))
    };
}

/// A reader of rows, one by one. What is the same for all rows of a column is looked up once, when the reader is made: the
/// type, the buffers, and whether the host can read them now.
///
/// Its functions are those of [`Column`] with the same names, with the same errors. If the host could not read the
/// buffers when the reader was made, each function looks again.
///
/// ```
/// # use devexchange_core::arrow::builder::ArrayBuilder;
/// # use devexchange_core::{Device, Owner};
/// # let (offsets, data) = (vec![0_i32, 5, 9], b"devex");
/// # let data = [&data[..], b"core"].concat();
/// # let column = ArrayBuilder::new("name", "u", 2)
/// #     .buffer(std::ptr::null())
/// #     .buffer(offsets.as_ptr().cast())
/// #     .buffer(data.as_ptr().cast())
/// #     .owner(Owner::new((offsets, data)));
/// # // SAFETY: the vectors have the offsets and bytes of two texts, and belong to the owner.
/// # let batch = unsafe { column.build(Device::CPU) }?;
/// let names = batch.root().rows();
/// for row in 0..names.length() {
///     println!("{}", names.text(row)?);
/// }
/// # assert_eq!(names.text(1)?, "core");
/// # Ok::<(), devexchange_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    column: Column<'a>,
    ty: Type,
    /// Whether the values are in their own buffers, behind a validity buffer, as in nearly every column.
    is_plain: bool,
    is_host: bool,
    buffers: &'a [*const c_void],
}

impl<'a> Rows<'a> {
    #[inline]
    pub(super) fn new(column: Column<'a>) -> Self {
        let record = column.record();
        let (ty, is_plain) = (record.ty, record.plain != 0);
        Self { column, ty, is_plain, is_host: column.require_host().is_ok(), buffers: column.buffers() }
    }

    /// The column that is read.
    pub fn column(&self) -> Column<'a> {
        self.column
    }

    /// The parsed type.
    #[inline]
    pub fn ty(&self) -> Type {
        self.ty
    }

    /// Number of rows.
    pub fn length(&self) -> i64 {
        self.column.length
    }

    /// See [`Column::is_valid`].
    ///
    /// # Errors
    /// Same as [`Column::is_valid`].
    #[inline]
    pub fn is_valid(&self, row: i64) -> Result<bool> {
        self.require_row(row)?;
        if !self.is_plain && !self.ty.buffers().has_validity() {
            return Ok(self.ty != Type::Null);
        }
        if self.buffer(0).is_null() {
            return Ok(true);
        }
        self.require_host()?;
        Ok(self.bit(0, row))
    }

    /// See [`Column::bool`].
    ///
    /// # Errors
    /// Same as [`Column::bool`].
    pub fn bool(&self, row: i64) -> Result<bool> {
        if self.ty != Type::Bool {
            return refuse!(self, DEVX_MISMATCH, "the type is {}, not bool", self.ty);
        }
        self.require_row(row)?;
        self.require_host()?;
        Ok(self.bit(1, row))
    }

    /// See [`Column::fixed`].
    ///
    /// # Errors
    /// Same as [`Column::fixed`].
    pub fn fixed(&self, row: i64) -> Result<&'a [u8]> {
        let Some(width) = self.ty.byte_width() else {
            return refuse!(
                self,
                DEVX_MISMATCH,
                "the type is {}, whose values are not a fixed number of bytes",
                self.ty
            );
        };
        self.require_row(row)?;
        self.require_host()?;
        let start = (self.column.offset + row) as usize * width as usize;
        self.part(1, start..start + width as usize, row)
    }

    /// See [`Column::bytes`].
    ///
    /// # Errors
    /// Same as [`Column::bytes`].
    pub fn bytes(&self, row: i64) -> Result<&'a [u8]> {
        let range = match self.ty {
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
    fn viewed(&self, row: i64) -> Result<&'a [u8]> {
        const IN_PLACE: usize = 12;
        self.require_row(row)?;
        self.require_host()?;
        let start = (self.column.offset + row) as usize * 16;
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
        let buffers = self.buffers.len();
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
    #[inline]
    fn part(&self, buffer: usize, range: Range<usize>, row: i64) -> Result<&'a [u8]> {
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

    /// See [`Column::text`].
    ///
    /// # Errors
    /// Same as [`Column::text`].
    pub fn text(&self, row: i64) -> Result<&'a str> {
        if !self.ty.is_text() {
            return refuse!(self, DEVX_MISMATCH, "the type is {}, not text", self.ty);
        }
        let bytes = self.bytes(row)?;
        // Most texts are, and finding out takes a fraction of the time.
        if bytes.is_ascii() {
            // SAFETY: ASCII is UTF-8.
            return Ok(unsafe { std::str::from_utf8_unchecked(bytes) });
        }
        std::str::from_utf8(bytes).or_else(|_| {
            let shown = Lossy(bytes.get(..MOST_SHOWN).unwrap_or(bytes));
            refuse!(self, DEVX_INVALID_TEXT, "row {row} is not valid UTF-8: {shown:?}")
        })
    }

    /// See [`Column::list`].
    ///
    /// # Errors
    /// Same as [`Column::list`].
    pub fn list(&self, row: i64) -> Result<Column<'a>> {
        let is_list = self.ty.is_list() || matches!(self.ty, Type::FixedSizeList(_));
        let Some(child) = self.column.child(0).filter(|_| is_list) else {
            return refuse!(self, DEVX_MISMATCH, "the type is {}, not a list", self.ty);
        };
        let range = match self.ty {
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

    /// See [`Column::union_value`].
    ///
    /// # Errors
    /// Same as [`Column::union_value`].
    pub fn union_value(&self, row: i64) -> Result<(i8, Column<'a>, i64)> {
        let Some(ids) = self.column.field().type_ids() else {
            return refuse!(self, DEVX_MISMATCH, "the type is {}, not a union", self.ty);
        };
        self.require_row(row)?;
        self.require_host()?;
        // SAFETY: the producer of the array promises a type id for each row.
        let id = unsafe { entry(self.buffer(0).cast::<i8>(), (self.column.offset + row) as usize) };
        let Some((number, child)) = ids.child(id).and_then(|number| Some((number, self.column.child(number)?))) else {
            return refuse!(
                self,
                DEVX_INVALID_BUFFERS,
                "row {row} has type id {id}: {:?} has none",
                self.column.field().format()
            );
        };
        if self.ty == Type::SparseUnion {
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

    /// See [`Column::run`].
    ///
    /// # Errors
    /// Same as [`Column::run`].
    pub fn run(&self, row: i64) -> Result<i64> {
        let Some(ends) = self.column.child(0).filter(|_| self.ty == Type::RunEndEncoded) else {
            return refuse!(self, DEVX_MISMATCH, "the type is {}, not run-end encoded", self.ty);
        };
        self.require_row(row)?;
        self.require_host()?;
        let logical = self.column.offset + row;
        let ends = ends.rows();
        let end = |run: i64| match ends.ty {
            Type::Int(2) => ends.one_of::<i16>(1, run).into(),
            Type::Int(4) => ends.one_of::<i32>(1, run).into(),
            _ => ends.one_of::<i64>(1, run),
        };
        let (mut low, mut high) = (0, ends.length());
        while low < high {
            let middle = low + (high - low) / 2;
            if end(middle) <= logical { low = middle + 1 } else { high = middle }
        }
        if low < ends.length() {
            return Ok(low);
        }
        refuse!(
            self,
            DEVX_INVALID_BUFFERS,
            "row {row} with offset {} is behind the end of all {low} runs",
            self.column.offset
        )
    }

    /// Like [`Column::resolve`], but returns a reader of the column where the value is.
    ///
    /// # Errors
    /// Same as [`Column::resolve`].
    pub fn resolve(&self, row: i64) -> Result<Option<(Self, i64)>> {
        let (mut rows, mut row) = (*self, row);
        // Each step goes down in a tree whose depth was checked.
        loop {
            if !rows.is_valid(row)? {
                return Ok(None);
            }
            if rows.is_plain {
                return Ok(Some((rows, row)));
            }
            let (column, ty) = (rows.column, rows.ty);
            let (next, at) = match (column.dictionary(), ty, column.child(1)) {
                (Some(dictionary), ..) => (dictionary, rows.dictionary_index(row)?),
                (_, Type::RunEndEncoded, Some(values)) => (values, rows.run(row)?),
                _ if ty.is_union() => {
                    let (_, child, at) = rows.union_value(row)?;
                    (child, at)
                }
                _ => return Ok(Some((rows, row))),
            };
            (rows, row) = (next.rows(), at);
        }
    }

    /// See [`Column::dictionary_index`].
    ///
    /// # Errors
    /// Same as [`Column::dictionary_index`].
    pub fn dictionary_index(&self, row: i64) -> Result<i64> {
        let Some(dictionary) = self.column.dictionary() else {
            return refuse!(self, DEVX_MISMATCH, "the column has no dictionary");
        };
        self.require_row(row)?;
        let index = match self.ty {
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

    fn one<T: Element>(&self, row: i64) -> Result<T> {
        let values = self.column.values::<T>()?;
        match usize::try_from(row).ok().and_then(|row| values.get(row)) {
            Some(value) => Ok(*value),
            None => refuse!(self, DEVX_OUT_OF_RANGE, "row is {row}: the column has {}", self.column.length),
        }
    }

    #[inline]
    fn range<O: Element + TryInto<usize> + Into<i64>>(&self, row: i64) -> Result<Range<usize>> {
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

    /// Like [`Rows::range`], but for bytes, whose number only the last offset says.
    #[inline]
    fn range_of_bytes<O: Element + TryInto<usize> + Into<i64>>(&self, row: i64) -> Result<Range<usize>> {
        let range = self.range::<O>(row)?;
        let last = self.one_of::<O>(1, self.column.length);
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

    fn range_of_view<O: Element + TryInto<usize> + Into<i64>>(&self, row: i64) -> Result<Range<usize>> {
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
    #[inline]
    fn one_of<T: Element>(&self, buffer: usize, row: i64) -> T {
        let values = self.buffer(buffer).cast::<T>();
        // SAFETY: the producer of the array promises an element for each row.
        let place = unsafe { values.add((self.column.offset + row) as usize) };
        // SAFETY: as above; an unaligned read needs no alignment.
        unsafe { place.read_unaligned() }
    }

    #[inline]
    fn buffer(&self, index: usize) -> *const c_void {
        self.buffers.get(index).copied().unwrap_or(std::ptr::null())
    }

    #[inline]
    fn require_host(&self) -> Result<()> {
        if self.is_host { Ok(()) } else { self.column.require_host() }
    }

    /// The bit of a row, which exists, in a bitmap that the host can read.
    #[inline]
    fn bit(&self, buffer: usize, row: i64) -> bool {
        let index = (self.column.offset + row) as usize;
        // SAFETY: the producer of the array promises a bit for each row.
        let byte = unsafe { entry(self.buffer(buffer).cast::<u8>(), index / 8) };
        byte >> (index % 8) & 1 == 1
    }

    #[inline]
    fn require_row(&self, row: i64) -> Result<()> {
        if (0..self.column.length).contains(&row) {
            Ok(())
        } else {
            refuse!(self, DEVX_OUT_OF_RANGE, "row is {row}: the column has {}", self.column.length)
        }
    }
}
