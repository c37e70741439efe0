//! The C API of devexchange: `libdevexchange` and its headers.
//!
//! Conventions:
//! - Errors. A function that can fail returns a `devx_status`, 0 for success, and takes a
//!   `devx_error *` last, or NULL: it says which field has which value, and what was expected.
//!   Outputs are written only on success. A column that is an output may be the one that the call
//!   is about: `devx_column_child(batch, &column, 0, &column, &error)`.
//! - NULL for a handle, a description or an output is DEVX_NULL_ARGUMENT, unless the function
//!   says what it means.
//! - Handles are counted references: any thread may use one, several may at once, and it is
//!   released once, when no call uses it any more. `_produced_on` needs the handle alone. A
//!   stream of batches takes one call at a time, and an asynchronous writer none that would
//!   call its consumer while another one does (DEVX_BUSY). `_release(T **)` sets the handle to NULL, and does nothing for NULL.
//! - Ownership. An `_import` takes its source only on success. `_share` keeps the handle,
//!   `_move(T **)` sets it to NULL, `_borrow` is a view that owns nothing and is valid as long
//!   as the handle. An owner is released exactly once, on any thread, and not at all if the
//!   call that was given it fails.
//! - Streams of a device are numbers, as in DLPack: 1 is CUDA's legacy default stream, 2 the
//!   per-thread one, -1 none, others are handles (`CUstream`); 0 is refused.
//! - Units. Shapes, strides and offsets are in elements, `byte_offset` and sizes in bytes,
//!   times to wait (`timeout_ns`) in nanoseconds: 0 is not at all, negative as long as it takes.

mod async_reader;
mod async_writer;
mod batch;
mod batch_stream;
mod column;
mod convert;
mod ctypes;
mod cuda_array;
mod device;
mod dlpack;
mod error;
mod ipc;
mod ledger;
mod library;
mod manager;
mod metadata;
mod order;
mod schema;
mod stream;
mod tensor;
mod wake;
