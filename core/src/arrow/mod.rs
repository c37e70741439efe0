//! Arrow C data and C Device data interface: schemas, arrays and record batches, both ways.

pub mod batch;
pub mod builder;
mod check;
pub mod column;
pub mod format;
pub mod metadata;
pub mod schema;
mod transfer;
mod tree;
pub mod value;

pub use batch::Batch;
pub use builder::ArrayBuilder;
pub use column::Column;
pub use format::{TimeUnit, Type};
pub use schema::{Field, Schema};
pub use value::Value;

use crate::abi::arrow_data::{ArrowArray, ArrowSchema};
use crate::memory::release;

/// Deepest nesting that is accepted, the root being depth 1.
pub const MAX_DEPTH: usize = 64;

/// Most nodes (fields or arrays) that one tree may have.
pub const MAX_NODES: usize = 1 << 20;

/// Gives up an array that the caller holds and nobody imports: calls its release, unless it is released already.
/// NULL is fine. For an `ArrowDeviceArray`, give its member.
///
/// # Safety
/// `array` is NULL, or points to a valid `ArrowArray` (released or not) that nobody else uses now.
pub unsafe fn release_array(array: *mut ArrowArray) {
    // SAFETY: the caller's contract.
    if let Some(array) = unsafe { array.as_mut() } {
        // SAFETY: as above.
        unsafe { release(array) }
    }
}

/// As [`release_array`], for a schema.
///
/// # Safety
/// As [`release_array`].
pub unsafe fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the caller's contract.
    if let Some(schema) = unsafe { schema.as_mut() } {
        // SAFETY: as above.
        unsafe { release(schema) }
    }
}
