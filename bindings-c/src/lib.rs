//! The C API of devexchange: `libdevexchange` and its headers.
//!
//! Conventions, without exceptions:
//! * A function that can fail returns a `devx_status` and takes a nullable `devx_error *` last; outputs are written
//!   only on success.
//! * `_create` and `_import` make a handle, `_release(T **)` gives it up and sets it to NULL; NULL is fine.
//! * An import takes its source only on success. `_share` keeps the handle, `_move(T **)` gives it up, `_borrow` is a
//!   view that owns nothing.
//! * Handles are counted references: any thread may use and release one, but one handle is released once.

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
mod schema;
mod stream;
mod tensor;
mod wake;
