//! The value in one row of a column, in host memory.

use super::Column;
use super::rows::Rows;
use crate::arrow::value::Value;
use crate::error::Result;

impl<'a> Column<'a> {
    /// A reader of many rows, one by one, which looks only once at what is the same for all of them.
    #[inline]
    pub fn rows(self) -> Rows<'a> {
        Rows::new(self)
    }

    /// Whether a row is not null. For a dictionary this is about the index; for unions and run-end encoded arrays it is
    /// always true. [`Column::resolve`] goes on to the value itself.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`.
    pub fn is_valid(self, row: i64) -> Result<bool> {
        self.rows().is_valid(row)
    }

    /// The value of a row of bools.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`.
    pub fn bool(self, row: i64) -> Result<bool> {
        self.rows().bool(row)
    }

    /// The bytes of a row, of a type whose values all have the same size ([`Type::byte_width`]), as they are stored:
    /// numbers and decimals in native byte order, two's complement.
    ///
    /// [`Type::byte_width`]: crate::arrow::Type::byte_width
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`.
    pub fn fixed(self, row: i64) -> Result<&'a [u8]> {
        self.rows().fixed(row)
    }

    /// The bytes of a row of text or binary. Those of a null are undefined, usually empty.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` for offsets that go
    /// backwards or views that point beyond their data.
    pub fn bytes(self, row: i64) -> Result<&'a [u8]> {
        self.rows().bytes(row)
    }

    /// The text of a row; see [`Column::bytes`].
    ///
    /// # Errors
    /// Same as [`Column::bytes`]; `DEVX_INVALID_TEXT` if it is not UTF-8.
    pub fn text(self, row: i64) -> Result<&'a str> {
        self.rows().text(row)
    }

    /// The values of a row of lists or of a map: the part of the child from where the list starts to where it ends. For
    /// a map, they are a struct of keys and values.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` for offsets that
    /// go backwards or beyond the child.
    pub fn list(self, row: i64) -> Result<Self> {
        self.rows().list(row)
    }

    /// Where a union stores the value of a row: the type id, the child as [`Column::child`] returns it, and the row of
    /// that child.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` for a type id that
    /// the union does not have, or an offset beyond the child.
    pub fn union_value(self, row: i64) -> Result<(i8, Self, i64)> {
        self.rows().union_value(row)
    }

    /// The number of the run that a row is in, counted from 0, which is the row of its value in the second child. It is
    /// found by binary search, because run ends ascend.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS` if the runs end before
    /// the row.
    pub fn run(self, row: i64) -> Result<i64> {
        self.rows().run(row)
    }

    /// The index into the dictionary that a row holds.
    ///
    /// # Errors
    /// `DEVX_MISMATCH`, `DEVX_OUT_OF_RANGE` also for an index outside the dictionary, `DEVX_DEVICE`, `DEVX_NOT_READY`.
    pub fn dictionary_index(self, row: i64) -> Result<i64> {
        self.rows().dictionary_index(row)
    }

    /// Where the value of a row is stored, behind dictionaries, unions and runs: a column of another type, and a row of
    /// it. `None` if the value, or an index on the way to it, is null.
    ///
    /// # Errors
    /// Same as [`Column::dictionary_index`], [`Column::union_value`], [`Column::run`].
    pub fn resolve(self, row: i64) -> Result<Option<(Self, i64)>> {
        Ok(self.rows().resolve(row)?.map(|(rows, row)| (rows.column(), row)))
    }

    /// The value of a row, found behind dictionaries, unions and runs ([`Column::resolve`]).
    ///
    /// # Errors
    /// `DEVX_OUT_OF_RANGE`, `DEVX_DEVICE` for memory that the host cannot read, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS`,
    /// `DEVX_INVALID_TEXT`.
    pub fn value(self, row: i64) -> Result<Value<'a>> {
        self.rows().value(row)
    }

    /// The value of a row that is not null, for a column and row that [`Column::resolve`] returned.
    ///
    /// # Errors
    /// Same as [`Column::value`]; `DEVX_MISMATCH` for a type that stores its values elsewhere.
    pub fn stored(self, row: i64) -> Result<Value<'a>> {
        self.rows().stored(row)
    }
}
