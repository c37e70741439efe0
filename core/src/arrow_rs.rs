//! Conversions of arrays, schemas and record batch readers from and to arrow-rs (the crates `arrow-array` and
//! `arrow-schema`); with the feature `arrow`.
//!
//! | arrow-rs | this library | |
//! |---|---|---|
//! | `RecordBatch` | [`Batch`] | `TryFrom` of a reference, both ways |
//! | `&dyn Array`, `ArrayRef` | [`Batch`] | [`Batch::from_arrow_rs`], [`Batch::to_arrow_rs`] |
//! | `Schema` | [`Schema`] | `TryFrom` of a reference, both ways |
//! | `Field` | [`Schema`] of one field, [`Field`] | `TryFrom`, both ways |
//! | `RecordBatchReader` | [`BatchStream`] | [`BatchStream::from_arrow_rs`], [`BatchStream::to_arrow_rs`] |
//! | `ArrowError` | [`Error`] | `From`, both ways |
//!
//! ```
//! # use std::sync::Arc;
//! # use arrow_array::{Array, Int32Array, RecordBatch, cast::AsArray, types::Int32Type};
//! # use devexchange_core::Batch;
//! let numbers = Int32Array::from(vec![Some(1), None, Some(3)]);
//! let address = numbers.values().as_ptr();
//! let theirs = RecordBatch::try_from_iter([("n", Arc::new(numbers) as _)]).unwrap();
//!
//! let ours = Batch::try_from(&theirs)?;
//! drop(theirs);
//! assert_eq!(ours.column_named("n").unwrap().null_count()?, 1);
//!
//! let theirs = RecordBatch::try_from(&ours)?;
//! drop(ours);
//! assert_eq!(theirs["n"].as_primitive::<Int32Type>().values().as_ptr(), address); // nothing was copied
//! # Ok::<(), devexchange_core::Error>(())
//! ```
//!
//! **Ownership.** The result shares the memory of the source: it is released when both sides have let go of it, on the
//! thread that was last.
//!
//! **Copies.** No values are copied, with two exceptions, which arrow-rs makes: on the way to this library, the
//! validity of a slice that does not start at a whole byte; on the way to arrow-rs, a buffer of values that is not
//! aligned as Rust requires (16 bytes for views and for decimals of 128 and 256 bits). arrow-rs does not ask before such
//! a copy. Offsets that are not aligned are refused; [`Batch::copy`] puts them right.
//!
//! **Only what the host can read goes to arrow-rs**: host memory that is ready. Everything else is refused, with
//! `DEVX_DEVICE` or `DEVX_NOT_READY`. The values are checked as little as arrow-rs itself checks them: whoever made a
//! batch promised that it is valid. `ArrayData::validate_full` checks the values.
//!
//! **What one side cannot express is lost**: arrow-rs has no place for unknown flags; for the name, the flags and the
//! metadata of the values of a dictionary; for the order of metadata; and for the flags of the root of a record batch.
//!
//! **A panic in arrow-rs** becomes `DEVX_PANIC`; an error of arrow-rs keeps its text.

use core::ffi::c_void;
use std::iter::FusedIterator;
use std::ops::Range;
use std::ptr::null;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, RecordBatchReader, StructArray, make_array};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, SchemaRef};

use crate::abi::arrow_data::{ArrowArray, ArrowSchema};
use crate::abi::types::{DEVX_INVALID_NULL_COUNT, DEVX_PANIC};
use crate::arrow::format::{Buffer, Buffers};
use crate::arrow::{Batch, BatchStream, Field, Schema, Type};
use crate::device::{Device, DeviceType};
use crate::error::{self, Error, Result, refuse};
use crate::memory::entry;

// Both sides declare the structs of the C data interface, so a pointer to one is a pointer to the other. The members of
// arrow-rs's structs are private; the tests show that their order is the same.
const _: () = {
    assert!(size_of::<FFI_ArrowArray>() == size_of::<ArrowArray>());
    assert!(align_of::<FFI_ArrowArray>() == align_of::<ArrowArray>());
    assert!(size_of::<FFI_ArrowSchema>() == size_of::<ArrowSchema>());
    assert!(align_of::<FFI_ArrowSchema>() == align_of::<ArrowSchema>());
};

// ---- schemas ----

impl TryFrom<&arrow_schema::Schema> for Schema {
    type Error = Error;

    /// The schema of a record batch. All texts are copied.
    ///
    /// # Errors
    /// `DEVX_UNSUPPORTED` for what arrow-rs does not export, for example a name with a NUL byte; the errors of
    /// [`Schema::import`].
    fn try_from(schema: &arrow_schema::Schema) -> Result<Self> {
        caught(|| match FFI_ArrowSchema::try_from(schema) {
            Ok(exported) => take_schema(exported),
            Err(error) => {
                let fails = |field: &&arrow_schema::FieldRef| FFI_ArrowSchema::try_from(*field).is_err();
                let name = schema.fields().iter().find(fails).map_or("", |field| field.name());
                refuse!(DEVX_UNSUPPORTED, "field {name:?}: {error}")
            }
        })
    }
}

impl TryFrom<&arrow_schema::Field> for Schema {
    type Error = Error;

    /// The schema of an array that is not a record batch, with the field as the root. All texts are copied.
    ///
    /// # Errors
    /// Same as for a whole schema.
    fn try_from(field: &arrow_schema::Field) -> Result<Self> {
        caught(|| match FFI_ArrowSchema::try_from(field) {
            Ok(exported) => take_schema(exported),
            Err(error) => refuse!(DEVX_UNSUPPORTED, "field {:?}: {error}", field.name()),
        })
    }
}

impl TryFrom<&Schema> for arrow_schema::Schema {
    type Error = Error;

    /// The schema for arrow-rs. All texts are copied.
    ///
    /// # Errors
    /// `DEVX_MISMATCH` if the root is not a struct, `DEVX_UNSUPPORTED` for a field that arrow-rs has no type for or
    /// whose metadata is not UTF-8.
    fn try_from(schema: &Schema) -> Result<Self> {
        require_struct(schema)?;
        caught(|| Self::try_from(raw(schema.root())).or_else(|error| refuse_field(schema.root(), &error)))
    }
}

impl TryFrom<Field<'_>> for arrow_schema::Field {
    type Error = Error;

    /// The field for arrow-rs. All texts are copied.
    ///
    /// # Errors
    /// `DEVX_UNSUPPORTED` for a field that arrow-rs has no type for or whose metadata is not UTF-8.
    fn try_from(field: Field<'_>) -> Result<Self> {
        caught(|| Self::try_from(raw(field)).or_else(|error| refuse_field(field, &error)))
    }
}

fn take_schema(mut exported: FFI_ArrowSchema) -> Result<Schema> {
    // SAFETY: the structs are the same, and arrow-rs made this one. If it is not taken, its drop releases it.
    unsafe { Schema::import((&raw mut exported).cast()) }
}

/// The struct of a field, for arrow-rs to read.
fn raw(field: Field<'_>) -> &FFI_ArrowSchema {
    // SAFETY: the structs are the same, and this one was checked when the schema was made. It is only read.
    unsafe { &*std::ptr::from_ref(field.raw()).cast() }
}

/// Refuses a field with an error from arrow-rs. arrow-rs does not say where the problem is, so this looks for the field
/// below.
fn refuse_field<T>(field: Field<'_>, error: &ArrowError) -> Result<T> {
    let mut below = field.children().chain(field.dictionary());
    match below.find(|child| arrow_schema::Field::try_from(raw(*child)).is_err()) {
        Some(child) => refuse_field(child, error),
        None => refuse!(DEVX_UNSUPPORTED, "field {:?}: format is {:?}: {error}", field.name(), field.format()),
    }
}

fn require_struct(schema: &Schema) -> Result<()> {
    match schema.ty(0) {
        Type::Struct => Ok(()),
        other => refuse!(DEVX_MISMATCH, "the array is {other}: a record batch is a struct"),
    }
}

// ---- arrays and record batches ----

impl TryFrom<&RecordBatch> for Batch {
    type Error = Error;

    /// A batch that shares the columns.
    ///
    /// # Errors
    /// Those of converting the schema; `DEVX_MISMATCH` if schema and column disagree about the type of a column, which
    /// arrow-rs allows for unions, because it compares their fields without their order. Names, metadata and
    /// nullability may differ.
    fn try_from(batch: &RecordBatch) -> Result<Self> {
        let schema = Schema::try_from(batch.schema_ref().as_ref())?;
        share_columns(batch, &schema)
    }
}

impl TryFrom<&Batch> for RecordBatch {
    type Error = Error;

    /// A record batch that shares the columns. As in [`Batch::to_arrow_rs`], arrow-rs copies values that are not aligned.
    ///
    /// # Errors
    /// Same as [`Batch::to_arrow_rs`]; also `DEVX_MISMATCH` if the batch is not a struct, `DEVX_INVALID_NULL_COUNT` for
    /// rows or values that are null where arrow-rs allows no nulls.
    fn try_from(batch: &Batch) -> Result<Self> {
        record_batch(batch, Arc::new(batch.schema().try_into()?))
    }
}

impl Batch {
    /// Shares an array of arrow-rs as a nullable array without a name.
    ///
    /// # Errors
    /// Those of converting the schema; `DEVX_MISMATCH` if the arrays below it have other types than its own type says.
    /// That is possible as for `TryFrom<&RecordBatch>`, because a `StructArray` can be made of a record batch.
    pub fn from_arrow_rs(array: &dyn Array) -> Result<Self> {
        Self::from_arrow_rs_as(array, &arrow_schema::Field::new("", array.data_type().clone(), true))
    }

    /// Like [`Batch::from_arrow_rs`], but with the name, the flags and the metadata of a field.
    ///
    /// # Errors
    /// Same as [`Batch::from_arrow_rs`]; also `DEVX_MISMATCH` if the field is of another type.
    pub fn from_arrow_rs_as(array: &dyn Array, field: &arrow_schema::Field) -> Result<Self> {
        if array.data_type() != field.data_type() {
            let (name, wanted) = (field.name(), field.data_type());
            return refuse!(
                DEVX_MISMATCH,
                "field {name:?}: the type is {wanted}, the array's is {}",
                array.data_type()
            );
        }
        let schema = Schema::try_from(field)?;
        caught(|| {
            // SAFETY: the schema is of the array's type, which is the field's.
            unsafe { share(array, &schema) }
        })
    }

    /// Shares the array with arrow-rs, which copies a buffer of values that is not aligned as Rust requires ([the
    /// module](self)).
    ///
    /// # Errors
    /// `DEVX_DEVICE` if it is not in host memory, `DEVX_NOT_READY`, `DEVX_UNSUPPORTED` for a type that arrow-rs does
    /// not have, `DEVX_INVALID_BUFFERS` for offsets or sizes that arrow-rs could not use (some only as they lie, which
    /// [`Batch::copy`] changes), `DEVX_PANIC`.
    pub fn to_arrow_rs(&self) -> Result<ArrayRef> {
        let field = arrow_schema::Field::try_from(self.schema().root())?;
        caught(|| {
            // SAFETY: the type is that of the batch.
            unsafe { hand_over(self, field.data_type().clone()) }
        })
    }
}

/// # Safety
/// `schema` has the type of the array.
unsafe fn share(array: &dyn Array, schema: &Schema) -> Result<Batch> {
    let data = array.to_data();
    require_type("", array.data_type(), &data)?;
    let mut exported = FFI_ArrowArray::new(&data);
    // SAFETY: the structs are the same, and arrow-rs made this one. If it is not taken, its drop releases it.
    unsafe { Batch::import((&raw mut exported).cast(), schema) }
}

/// Refuses an array that lies in memory in another way than `wanted` says. The type of an array can disagree with the
/// arrays below it: a record batch accepts every schema that contains its own, and arrow-rs compares the fields of
/// unions by their ids, whatever their order.
fn require_type(name: &str, wanted: &DataType, data: &ArrayData) -> Result<()> {
    use DataType::*;
    let actual = data.data_type();
    let mismatch = || refuse!(DEVX_MISMATCH, "field {name:?}: the type is {wanted}, the array's is {actual}");
    let mut children = data.child_data().iter();
    let mut below = |name: &str, wanted: &DataType| match children.next() {
        Some(child) => require_type(name, wanted, child),
        None => mismatch(),
    };
    match (wanted, actual) {
        (List(field), List(_))
        | (LargeList(field), LargeList(_))
        | (ListView(field), ListView(_))
        | (LargeListView(field), LargeListView(_)) => below(field.name(), field.data_type()),
        (FixedSizeList(field, size), FixedSizeList(_, others)) if size == others => {
            below(field.name(), field.data_type())
        }
        (Map(field, sorted), Map(_, others)) if sorted == others => below(field.name(), field.data_type()),
        (Struct(fields), Struct(others)) if fields.len() == others.len() => {
            fields.iter().try_for_each(|field| below(field.name(), field.data_type()))
        }
        (Union(fields, mode), Union(others, others_mode))
            if mode == others_mode && fields.iter().map(|(id, _)| id).eq(others.iter().map(|(id, _)| id)) =>
        {
            fields.iter().try_for_each(|(_, field)| below(field.name(), field.data_type()))
        }
        (Dictionary(keys, values), Dictionary(others, _)) if keys == others => below(name, values),
        (RunEndEncoded(ends, values), RunEndEncoded(_, _)) => {
            below(ends.name(), ends.data_type())?;
            below(values.name(), values.data_type())
        }
        _ if wanted == actual => Ok(()),
        _ => mismatch(),
    }
}

/// Shares the columns of a batch; `schema` is the batch's schema.
fn share_columns(batch: &RecordBatch, schema: &Schema) -> Result<Batch> {
    caught(|| {
        // SAFETY: the type of this struct is made of the fields of the batch's schema.
        unsafe { share(&StructArray::from(batch.clone()), schema) }
    })
}

/// Makes a record batch; `schema` is that of the batch, or has the same shape.
fn record_batch(batch: &Batch, schema: SchemaRef) -> Result<RecordBatch> {
    require_struct(batch.schema())?;
    caught(|| {
        // SAFETY: the type is that of the batch, or has the same layout in memory.
        let rows = unsafe { hand_over(batch, DataType::Struct(schema.fields().clone())) }?.as_struct().clone();
        let nulls = rows.null_count();
        if nulls > 0 {
            return refuse!(DEVX_INVALID_NULL_COUNT, "null_count is {nulls}: arrow-rs has no null rows in a batch");
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(schema, rows.into_parts().1, &options)
            .map_err(|error| Error::new(DEVX_INVALID_NULL_COUNT, error.to_string()))
    })
}

/// # Safety
/// `data_type` has the shape of the batch's schema.
unsafe fn hand_over(batch: &Batch, data_type: DataType) -> Result<ArrayRef> {
    batch.root().require_host()?;
    let mut exported = ArrowArray::RELEASED;
    // SAFETY: there is room for an array.
    unsafe { batch.clone().export_readable(&mut exported) }?;
    // SAFETY: the structs are the same; from here on arrow-rs releases the array.
    let mut array = unsafe { FFI_ArrowArray::from_raw((&raw mut exported).cast()) };
    // SAFETY: the array was exported just now, with the fields of the batch's schema.
    unsafe { make_readable((&raw mut array).cast(), batch.schema().root()) }?;
    // SAFETY: the array has this type, by the caller's contract, and was promised to be valid when it was made.
    match unsafe { from_ffi_and_data_type(array, data_type) } {
        Ok(data) => Ok(make_array(data)),
        Err(error) => refuse!(DEVX_INVALID_BUFFERS, "{error}"),
    }
}

/// Checks or replaces the data that arrow-rs reads before it knows how long its buffers are: offsets, and the sizes of
/// the buffers that views point into.
///
/// arrow-rs expects these to be aligned and not negative, and to exist even if there are no elements. A producer may
/// leave them out then (Arrow columnar format, "Variable-size Binary Layout"; C data interface, `ArrowArray.buffers`).
///
/// # Safety
/// `array` was exported by [`Batch`], has the type of `field`, and its tables may be replaced. Its data is ready.
unsafe fn make_readable(array: *mut ArrowArray, field: Field<'_>) -> Result<()> {
    // SAFETY: the caller's contract.
    let array = unsafe { &mut *array };
    let (end, n_buffers) = ((array.offset + array.length) as usize, array.n_buffers as usize);
    let checked = match field.ty().buffers() {
        Buffers::Three(_) | Buffers::Two(Buffer::Offsets(_)) if end == 0 => {
            array.buffers = (&raw const NO_ELEMENTS.0).cast_mut().cast();
            Ok(())
        }
        Buffers::Views if end == 0 => {
            // Without data buffers, and so without sizes.
            array.n_buffers = Buffers::Views.count() as i64;
            Ok(())
        }
        // SAFETY: the batch checked the tables. There is one offset more than `end`, and the data is ready.
        Buffers::Three(bytes) => unsafe { require_sizes(array, 1, bytes as usize, end..end + 1) },
        // SAFETY: as above; there are as many sizes as buffers that views point into.
        Buffers::Views => unsafe { require_sizes(array, n_buffers - 1, 8, 0..n_buffers - Buffers::Views.count()) },
        _ => Ok(()),
    };
    checked.map_err(|error| error.within_named("array", field.name()))?;
    for (k, child) in field.children().enumerate() {
        // SAFETY: as many children as the field has were exported.
        let below = unsafe { entry(array.children, k) };
        // SAFETY: as for the parent.
        unsafe { make_readable(below, child) }?;
    }
    match field.dictionary() {
        // SAFETY: as for the parent.
        Some(values) => unsafe { make_readable(array.dictionary, values) },
        None => Ok(()),
    }
}

/// Checks what buffer `index` says about the sizes of the buffers from the third one on, with integers of 4 or 8 bytes
/// at the `places`.
///
/// # Safety
/// The integers can be read, aligned or not. From the third buffer on, there are as many buffers as places.
unsafe fn require_sizes(array: &ArrowArray, index: usize, bytes: usize, places: Range<usize>) -> Result<()> {
    // SAFETY: the caller's contract.
    let sizes = unsafe { entry(array.buffers, index) };
    if !places.is_empty() && !sizes.addr().is_multiple_of(bytes) {
        return refuse!(
            DEVX_INVALID_BUFFERS,
            "buffers[{index}] is {sizes:p}: not aligned to {bytes} bytes, as arrow-rs needs; copy the batch first (copy)"
        );
    }
    for (place, data) in places.zip(2..) {
        let size: i64 = match bytes {
            // SAFETY: the caller's contract.
            4 => unsafe { entry(sizes.cast::<i32>(), place) }.into(),
            // SAFETY: as above.
            _ => unsafe { entry(sizes.cast::<i64>(), place) },
        };
        if size < 0 {
            return refuse!(DEVX_INVALID_BUFFERS, "buffers[{index}][{place}] is {size}: a size must not be negative");
        }
        // SAFETY: as above.
        if size > 0 && unsafe { entry(array.buffers, data) }.is_null() {
            return refuse!(DEVX_INVALID_BUFFERS, "buffers[{data}] is NULL, but buffers[{index}][{place}] is {size}");
        }
    }
    Ok(())
}

/// The buffers of lists or texts without elements: no validity, one offset, no data.
static NO_ELEMENTS: Table = Table([null(), (&raw const ZERO).cast(), null()]);
static ZERO: i64 = 0;

struct Table([*const c_void; 3]);

// SAFETY: nothing ever writes the table or what it points to.
unsafe impl Sync for Table {}

// ---- readers ----

impl BatchStream {
    /// Makes a stream of the batches of a reader, in host memory. The batches share the reader's columns.
    ///
    /// The reader is called on whatever thread pulls, one call at a time, and not again after an error or a panic. Its
    /// errors become `DEVX_CALLBACK` with the text and an `errno` code; errors of this library come out as they were.
    ///
    /// # Errors
    /// Those of converting the schema; `DEVX_PANIC` if the reader panics when asked for it. Then the reader is dropped.
    pub fn from_arrow_rs(mut reader: impl RecordBatchReader + Send + 'static) -> Result<Self> {
        let theirs = caught(|| Ok(reader.schema()))?;
        let schema = Schema::try_from(theirs.as_ref())?;
        Self::with(&schema, DeviceType::CPU, || {
            let schema = schema.clone();
            move || match reader.next() {
                None => Ok(None),
                Some(Err(error)) => Err(reader_error(error)),
                // The usual case: one schema for all, which was taken already.
                Some(Ok(batch)) if *batch.schema_ref() == theirs => share_columns(&batch, &schema).map(Some),
                Some(Ok(batch)) => Batch::try_from(&batch).map(Some),
            }
        })
    }

    /// Makes a reader of the remaining batches of this stream. A batch that it pulls, the other clones of the stream do
    /// not get.
    ///
    /// # Errors
    /// `DEVX_DEVICE` if the batches are not in host memory, `DEVX_MISMATCH` if they are not structs, `DEVX_UNSUPPORTED`
    /// for a field that arrow-rs has no type for.
    pub fn to_arrow_rs(&self) -> Result<Reader> {
        let kind = self.device_type();
        if !(Device { kind, id: 0 }).is_host() {
            return refuse!(DEVX_DEVICE, "device_type is {kind}: arrow-rs reads host memory");
        }
        let schema = arrow_schema::Schema::try_from(self.schema())?;
        Ok(Reader { stream: self.clone(), schema: Arc::new(schema), over: false })
    }
}

/// A [`BatchStream`] as a reader of record batches, made by [`BatchStream::to_arrow_rs`].
///
/// An error comes once, then nothing more. It is an [`ArrowError::ExternalError`] with an [`Error`] in it.
#[derive(Debug)]
pub struct Reader {
    stream: BatchStream,
    schema: SchemaRef,
    over: bool,
}

impl Iterator for Reader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        // The stream checks that all its batches have the shape of its schema.
        let next = match self.stream.next() {
            Ok(batch) => batch.map(|batch| record_batch(&batch, Arc::clone(&self.schema))),
            Err(error) => Some(Err(error)),
        };
        self.over = !matches!(next, Some(Ok(_)));
        next.map(|batch| Ok(batch?))
    }
}

impl FusedIterator for Reader {}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl From<Error> for ArrowError {
    fn from(error: Error) -> Self {
        Self::from_external_error(Box::new(error))
    }
}

/// `DEVX_CALLBACK` with the text of arrow-rs and an `errno` code. An error of this library comes out as it was.
impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        ours(&error).cloned().unwrap_or_else(|| Self::callback(errno(&error), format_args!("{error}")))
    }
}

/// The error of this library that came through arrow-rs, if it is one.
fn ours(error: &ArrowError) -> Option<&Error> {
    match error {
        ArrowError::ExternalError(inner) => inner.downcast_ref(),
        _ => None,
    }
}

fn errno(error: &ArrowError) -> i32 {
    match error {
        ArrowError::ExternalError(_) => libc::EIO,
        ArrowError::IoError(_, io) => io.raw_os_error().unwrap_or(libc::EIO),
        ArrowError::MemoryError(_) => libc::ENOMEM,
        ArrowError::NotYetImplemented(_) => libc::ENOTSUP,
        _ => libc::EINVAL,
    }
}

fn reader_error(error: ArrowError) -> Error {
    let is_ours = ours(&error).is_some();
    let error = Error::from(error);
    if is_ours { error } else { error.within("the reader failed: ") }
}

/// Runs code that calls arrow-rs; a panic in it ends here.
fn caught<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    error::caught(act).map_err(|error| match error.status() {
        DEVX_PANIC => error.within("a panic on the side of arrow-rs: "),
        _ => error,
    })
}
