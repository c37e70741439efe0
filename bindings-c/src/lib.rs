//! The C API of devexchange: `libdevexchange` and its headers.
//!
//! Conventions:
//! - Errors. A function that can fail returns a `devx_status`, 0 for success. Its last parameter
//!   is a `devx_error *`, or NULL: on failure, the record names the field and its value, and says
//!   what was expected. Outputs are written only on success. A column may be both input and
//!   output: `devx_column_child(batch, &column, 0, &column, &error)`.
//! - NULL for a handle, a description or an output is DEVX_NULL_ARGUMENT, unless the
//!   documentation of the function says what it means.
//! - Handles are counted references. Any thread may use a handle, and several threads may do so
//!   at once; one of them releases it, when no call uses it any more. `_release(T **)` sets the
//!   handle to NULL, and does nothing for NULL.
//! - Cancellation. No thread may be cancelled (`pthread_cancel`) in a call of the library, nor in one
//!   that may release what it handed out: that ends the process. Disable it around such calls
//!   (`pthread_setcancelstate`). A stack of 64 KiB is enough for data of 64 levels, the most there
//!   may be, unless the driver or a callback needs more.
//! - One call at a time. No other call may use the handle during a `_produced_on`. A stream of
//!   batches takes one call at a time, and an asynchronous writer one call at a time that calls
//!   its consumer; a second one gets DEVX_BUSY.
//! - Ownership. An `_import` takes its source only on success. `_share` keeps the handle,
//!   `_move(T **)` sets it to NULL, and `_borrow` gives a view that owns nothing and is valid as
//!   long as the handle. An owner is released exactly once, on any thread, and not at all if the
//!   call that was given it fails. A shared object whose callbacks may still be called must stay
//!   loaded, whichever library it is linked with (`-Wl,-z,nodelete`).
//! - Streams of a device are numbers, as in DLPack: 1 is CUDA's legacy default stream, 2 the
//!   per-thread default stream, -1 no stream, any other number a handle (`CUstream`); 0 is refused.
//! - Units. Shapes, strides and offsets are in elements, `byte_offset` and sizes in bytes, times
//!   to wait (`timeout_ns`) in nanoseconds: 0 does not wait, a negative time is as long as it takes.

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
