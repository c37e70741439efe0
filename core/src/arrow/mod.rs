//! The Arrow C data, C Device data, C stream and asynchronous interfaces: schemas, arrays, record batches and streams
//! of them, in both directions.

pub mod asynchronous;
pub mod batch;
pub mod batch_stream;
pub(crate) mod bitmap;
pub mod builder;
pub(crate) mod check;
pub mod column;
mod count;
mod depth_first;
mod field;
pub mod format;
pub mod metadata;
mod names;
mod node;
mod offsets;
mod owned;
mod pointers;
mod read;
mod record;
pub mod schema;
mod sizes;
pub mod table;
mod taken;
mod temporal;
mod transfer;
mod tree;
mod type_name;
pub mod value;

pub use asynchronous::{AsyncReader, AsyncWriter};
pub use batch::Batch;
pub use batch_stream::BatchStream;
pub use builder::ArrayBuilder;
pub use column::{Column, Rows};
pub use field::Field;
pub use format::{TimeUnit, Type};
pub use owned::{Owned, OwnedBatch, Struct};
pub use schema::Schema;
pub use type_name::TypeName;
pub use value::Value;

use crate::abi::arrow_data::{ArrowArray, ArrowSchema};
use crate::abi::arrow_device_stream::ArrowDeviceArrayStream;
use crate::abi::arrow_stream::ArrowArrayStream;
use crate::memory::release_given;

/// The deepest nesting that is accepted. The root has depth 1.
pub const MAX_DEPTH: usize = 64;

/// The most nodes (fields or arrays) that one tree may have.
pub const MAX_NODES: usize = 1 << 20;

/// Releases an array that the caller holds and nobody imports, unless it is released already.
///
/// NULL is accepted. For an `ArrowDeviceArray`, pass its member `array`.
///
/// # Safety
/// `array` is NULL, or points to a valid `ArrowArray` (released or not) that nobody else uses now.
pub unsafe fn release_array(array: *mut ArrowArray) {
    // SAFETY: the caller's contract.
    unsafe { release_given(array) }
}

/// Like [`release_array`], but for a schema.
///
/// # Safety
/// Same as [`release_array`].
pub unsafe fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the caller's contract.
    unsafe { release_given(schema) }
}

/// Like [`release_array`], but for a stream.
///
/// # Safety
/// Same as [`release_array`].
pub unsafe fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: the caller's contract.
    unsafe { release_given(stream) }
}

/// Like [`release_array`], but for a stream of device arrays.
///
/// # Safety
/// Same as [`release_array`].
pub unsafe fn release_device_stream(stream: *mut ArrowDeviceArrayStream) {
    // SAFETY: the caller's contract.
    unsafe { release_given(stream) }
}
