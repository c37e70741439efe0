//! Arrow: batches, their columns, schemas and values, streams of batches, and `from_arrow`, the way in for all of them.
//! `capsule` fills all capsules for consumers.

pub(crate) mod asynchronous;
pub(crate) mod batch;
mod batch_source;
pub(crate) mod batch_stream;
mod capsule;
pub(crate) mod column;
mod export;
pub(crate) mod field;
pub(crate) mod from_arrow;
mod metadata;
pub(crate) mod schema;
mod value;
