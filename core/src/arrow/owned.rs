//! Arrow's structs with an owner: what was handed over and not taken yet is released once, whatever way a function is left.

use std::fmt;
use std::mem::replace;

use super::{Batch, BatchStream, Schema};
use crate::abi::arrow_data::{ArrowArray, ArrowSchema};
use crate::abi::arrow_device::ArrowDeviceArray;
use crate::abi::arrow_device_stream::ArrowDeviceArrayStream;
use crate::abi::arrow_stream::ArrowArrayStream;
use crate::error::{Refused, Result};
use crate::memory::release;

/// A struct of Arrow with a `release`: a schema, an array, or a stream.
pub trait Struct: sealed::Sealed {}

mod sealed {
    pub trait Sealed: Sized {
        const EMPTY: Self;

        fn is_empty(&self) -> bool;

        /// # Safety
        /// The struct is valid (released or not), and nobody else uses it now.
        unsafe fn give_up(&mut self);
    }
}

macro_rules! structs {
    ($($Name:ident $(= $part:ident)?,)*) => {$(
        impl Struct for $Name {}
        impl sealed::Sealed for $Name {
            const EMPTY: Self = Self::RELEASED;

            fn is_empty(&self) -> bool {
                self$(.$part)?.release.is_none()
            }

            unsafe fn give_up(&mut self) {
                let this = self;
                $(let this = &mut this.$part;)?
                // SAFETY: the caller's contract.
                unsafe { release(this) }
            }
        }
    )*};
}
structs! { ArrowSchema, ArrowArray, ArrowDeviceArray = array, ArrowArrayStream, ArrowDeviceArrayStream, }

/// A struct that was handed over and not taken yet, or room for one. The holder of this value owns the struct; dropping it
/// releases the struct, on the thread that drops it, unless somebody has taken it.
///
/// A batch goes to a consumer in C and to one in Rust; neither `?` would leave anything behind:
///
/// ```
/// use devexchange_core::arrow::{Owned, OwnedBatch};
/// use devexchange_core::dlpack::Copying;
/// use devexchange_core::{Batch, Result, Tensor, convert};
///
/// # fn main() -> Result<()> {
/// let rows = Tensor::from_vec(vec![0.5_f64, 1.5, 2.5], &[3, 1])?;
/// let batch = convert::batch(&rows, &["x"], Copying::Never)?;
///
/// let mut handed = batch.clone().export_owned()?;
/// let (_schema, _array) = handed.as_mut_ptrs(); // for a function in C that takes both, for example `ImportRecordBatch`
///
/// let seen: Batch = batch.export_owned()?.import()?;
/// assert_eq!(seen.column_named("x").unwrap().values::<f64>()?, [0.5, 1.5, 2.5]);
/// # Ok(())
/// # }
/// ```
///
/// In memory this is the struct and nothing else. So it can be the value of a Python capsule (`arrow_schema`, `arrow_array`,
/// `arrow_array_stream`; Arrow PyCapsule interface), which a consumer reads as the struct, and whose end drops it: with pyo3,
/// `PyCapsule::new_with_value(py, stream.export_owned()?, c"arrow_array_stream")`.
#[repr(transparent)]
pub struct Owned<S: Struct>(S);

// SAFETY: Arrow lets a struct be used and released on any thread.
unsafe impl<S: Struct> Send for Owned<S> {}
// SAFETY: as above; a shared reference only reads the members.
unsafe impl<S: Struct> Sync for Owned<S> {}

impl<S: Struct> Owned<S> {
    /// Room for a producer, which writes the struct to [`Owned::as_mut_ptr`]. There is nothing to release yet.
    pub fn empty() -> Self {
        Self(S::EMPTY)
    }

    /// Takes ownership of a struct from outside.
    ///
    /// # Safety
    /// `given` is a valid struct (released or not) that the caller owns and does not use any more. It is as its import
    /// requires: [`Schema::import`], [`Batch::import`], [`BatchStream::import`].
    pub unsafe fn from_raw(given: S) -> Self {
        Self(given)
    }

    /// Returns the struct for a consumer, which then has to release it.
    pub fn into_raw(mut self) -> S {
        replace(&mut self.0, S::EMPTY)
    }

    /// Returns the struct, which this value still owns.
    pub fn as_raw(&self) -> &S {
        &self.0
    }

    /// Returns the address of the struct, for a consumer that moves the struct out of it (and sets its `release` to NULL), or
    /// for a producer that fills an empty one. A producer must keep to the contract of [`Owned::from_raw`]. The address is
    /// valid until this value is moved or dropped.
    pub fn as_mut_ptr(&mut self) -> *mut S {
        &raw mut self.0
    }

    /// Whether there is nothing to release: the struct was taken, or none was written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<S: Struct> Drop for Owned<S> {
    fn drop(&mut self) {
        // SAFETY: owned and valid, by `from_raw` or because it was exported by this library. One that was taken is not
        // released here.
        unsafe { self.0.give_up() }
    }
}

impl<S: Struct> fmt::Debug for Owned<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}

/// An array and the schema that it was made with, both handed over and not taken yet; see [`Owned`]. `A` is [`ArrowArray`] or
/// [`ArrowDeviceArray`].
#[derive(Debug)]
pub struct OwnedBatch<A: Struct> {
    schema: Owned<ArrowSchema>,
    array: Owned<A>,
}

impl<A: Struct> OwnedBatch<A> {
    /// Puts an array and its schema together.
    ///
    /// # Safety
    /// The type of the array is that of the schema.
    pub unsafe fn from_parts(schema: Owned<ArrowSchema>, array: Owned<A>) -> Self {
        Self { schema, array }
    }

    /// Returns both for a consumer that takes one without the other.
    pub fn into_parts(self) -> (Owned<ArrowSchema>, Owned<A>) {
        (self.schema, self.array)
    }

    /// Returns the addresses of both; see [`Owned::as_mut_ptr`].
    pub fn as_mut_ptrs(&mut self) -> (*mut ArrowSchema, *mut A) {
        (self.schema.as_mut_ptr(), self.array.as_mut_ptr())
    }
}

impl OwnedBatch<ArrowArray> {
    /// Imports the batch, which leaves nothing here. If it is refused, it stays here.
    ///
    /// # Errors
    /// Same as [`Batch::import_pair`].
    pub fn import(&mut self) -> Result<Batch> {
        let (schema, array) = self.as_mut_ptrs();
        // SAFETY: both are owned and valid, and belong together.
        unsafe { Batch::import_pair(array, schema) }
    }
}

impl OwnedBatch<ArrowDeviceArray> {
    /// Imports the batch, which leaves nothing here. If it is refused, it stays here.
    ///
    /// # Errors
    /// Same as [`Batch::import_pair_device`].
    pub fn import(&mut self) -> Result<Batch> {
        let (schema, array) = self.as_mut_ptrs();
        // SAFETY: both are owned and valid, and belong together.
        unsafe { Batch::import_pair_device(array, schema) }
    }
}

impl Owned<ArrowSchema> {
    /// Imports the schema, which leaves nothing here. If it is refused, it stays here.
    ///
    /// # Errors
    /// Same as [`Schema::import`].
    pub fn import(&mut self) -> Result<Schema> {
        // SAFETY: owned and valid.
        unsafe { Schema::import(self.as_mut_ptr()) }
    }
}

impl Owned<ArrowArray> {
    /// Imports the array, which leaves nothing here. If it is refused, it stays here.
    ///
    /// # Errors
    /// Same as [`Batch::import`].
    ///
    /// # Safety
    /// The type of the array is that of `schema`.
    pub unsafe fn import(&mut self, schema: &Schema) -> Result<Batch> {
        // SAFETY: owned and valid; the type is the caller's to know.
        unsafe { Batch::import(self.as_mut_ptr(), schema) }
    }
}

impl Owned<ArrowDeviceArray> {
    /// Imports the array, which leaves nothing here. If it is refused, it stays here.
    ///
    /// # Errors
    /// Same as [`Batch::import_device`].
    ///
    /// # Safety
    /// The type of the array is that of `schema`.
    pub unsafe fn import(&mut self, schema: &Schema) -> Result<Batch> {
        // SAFETY: owned and valid; the type is the caller's to know.
        unsafe { Batch::import_device(self.as_mut_ptr(), schema) }
    }
}

impl Owned<ArrowArrayStream> {
    /// Imports the stream, which leaves nothing here. If it is refused, it stays here.
    ///
    /// # Errors
    /// Same as [`BatchStream::import`].
    pub fn import(&mut self) -> Result<BatchStream> {
        // SAFETY: owned and valid.
        unsafe { BatchStream::import(self.as_mut_ptr()) }
    }
}

impl Owned<ArrowDeviceArrayStream> {
    /// Imports the stream, which leaves nothing here. If it is refused, it stays here.
    ///
    /// # Errors
    /// Same as [`BatchStream::import_device`].
    pub fn import(&mut self) -> Result<BatchStream> {
        // SAFETY: owned and valid.
        unsafe { BatchStream::import_device(self.as_mut_ptr()) }
    }
}

impl Schema {
    /// Like [`Schema::export`], but returns the struct with its owner.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn export_owned(&self) -> Result<Owned<ArrowSchema>> {
        let mut out = Owned::empty();
        // SAFETY: there is room, and nothing in it that would have to be released.
        unsafe { self.export(out.as_mut_ptr()) }?;
        Ok(out)
    }
}

impl Batch {
    /// Like [`Batch::export`], but returns the struct with its owner, together with that of the schema.
    ///
    /// # Errors
    /// Those of [`Batch::export`] and [`Schema::export`]. The batch is given back.
    pub fn export_owned(self) -> std::result::Result<OwnedBatch<ArrowArray>, Refused<Self>> {
        // SAFETY: `owned` gives room, with nothing in it that would have to be released.
        self.owned(|batch, out| unsafe { batch.export(out) })
    }

    /// Like [`Batch::export_device`], but returns the struct with its owner, together with that of the schema.
    ///
    /// # Errors
    /// Those of [`Batch::export_device`] and [`Schema::export`]. The batch is given back.
    pub fn export_device_owned(self) -> std::result::Result<OwnedBatch<ArrowDeviceArray>, Refused<Self>> {
        // SAFETY: `owned` gives room, with nothing in it that would have to be released.
        self.owned(|batch, out| unsafe { batch.export_device(out) })
    }

    fn owned<A: Struct>(
        self,
        export: impl FnOnce(Self, *mut A) -> std::result::Result<(), Refused<Self>>,
    ) -> std::result::Result<OwnedBatch<A>, Refused<Self>> {
        let schema = match self.schema().export_owned() {
            Ok(schema) => schema,
            Err(error) => return Err(Refused { error, returned: self }),
        };
        let mut array = Owned::empty();
        export(self, array.as_mut_ptr())?;
        Ok(OwnedBatch { schema, array })
    }
}

impl BatchStream {
    /// Like [`BatchStream::export`], but returns the struct with its owner.
    ///
    /// # Errors
    /// Same as [`BatchStream::export`].
    pub fn export_owned(self) -> std::result::Result<Owned<ArrowArrayStream>, Refused<Self>> {
        let mut out = Owned::empty();
        // SAFETY: there is room, and nothing in it that would have to be released.
        unsafe { self.export(out.as_mut_ptr()) }?;
        Ok(out)
    }

    /// Like [`BatchStream::export_device`], but returns the struct with its owner.
    ///
    /// # Errors
    /// Same as [`BatchStream::export_device`].
    pub fn export_device_owned(self) -> std::result::Result<Owned<ArrowDeviceArrayStream>, Refused<Self>> {
        let mut out = Owned::empty();
        // SAFETY: there is room, and nothing in it that would have to be released.
        unsafe { self.export_device(out.as_mut_ptr()) }?;
        Ok(out)
    }
}
