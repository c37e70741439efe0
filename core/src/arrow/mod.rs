//! Arrow C data and C Device data interface: schemas, arrays and record batches, both ways.

pub mod batch;
pub mod column;
pub mod format;
pub mod metadata;
pub mod schema;
mod tree;

pub use batch::Batch;
pub use column::Column;
pub use format::{TimeUnit, Type};
pub use schema::{Field, Schema};

/// Deepest nesting that is accepted, the root being depth 1.
pub const MAX_DEPTH: usize = 64;

/// Most nodes (fields or arrays) that one tree may have.
pub const MAX_NODES: usize = 1 << 20;
