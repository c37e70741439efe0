//! The CUDA Array Interface as a C struct (source of `devexchange/cuda_array.h`). The interface itself is defined for
//! Python only; this struct has an entry of the dictionary in each member, and says who releases it.

use core::ffi::{c_char, c_void};

/// The version of the CUDA Array Interface that has a `stream`.
pub const DEVX_CUDA_ARRAY_VERSION: i32 = 3;
/// `devx_cuda_array.stream` in place of Python's `None`: nothing to wait for.
pub const DEVX_CUDA_ARRAY_NO_STREAM: i64 = -1;

/// An array in memory that a CUDA device can access (CUDA Array Interface, versions 0 to 3).
///
/// A consumer that takes it moves it: copies the struct and sets `release` of the source to NULL; it calls `release` once,
/// from any thread, when its work is done or ordered behind `stream`. Everything that the members point to belongs to the
/// struct and lives until then.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxCudaArray {
    /// Version of the interface that the members follow; `stream` has a meaning from 3 on.
    pub version: i32,
    /// 1 if the elements must not be written, otherwise 0.
    pub read_only: i32,
    /// Address of the first element; NULL if there are none.
    pub data: *mut c_void,
    /// Number of dimensions.
    pub ndim: i64,
    /// `ndim` extents.
    pub shape: *const i64,
    /// `ndim` distances in bytes, or NULL for compact row-major order.
    pub strides: *const i64,
    /// Type of the elements as NumPy writes it: byte order, kind, bytes; for example `"<f4"`.
    pub typestr: *const c_char,
    /// NumPy's `descr` as text for structured elements, or NULL.
    pub descr: *const c_char,
    /// Which elements are valid: an array, true or not true, whose shape is this one's or can be broadcast to it; or NULL
    /// if all are. It has a stream of its own, and is part of this struct and released with it: its own `release` is NULL.
    pub mask: *const DevxCudaArray,
    /// The stream that the producer works on, in version 3: 1 the legacy default stream, 2 the per-thread one, otherwise a
    /// handle; `DEVX_CUDA_ARRAY_NO_STREAM` if there is nothing to wait for; never 0.
    pub stream: i64,
    /// Gives the array up and sets itself to NULL. NULL if the array was moved from.
    pub release: Option<unsafe extern "C" fn(array: *mut DevxCudaArray)>,
    /// For the producer's own use.
    pub private_data: *mut c_void,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<DevxCudaArray>() == 88);

/// The legacy default stream stands for the producer's: it is waited for, and it waits at the end.
pub const DEVX_NO_STREAM_LEGACY_DEFAULT: i32 = 0;
/// The host waits until the device has done all its work. That breaks what is captured on the device meanwhile.
pub const DEVX_NO_STREAM_HOST_SYNC: i32 = 1;
/// Nobody waits: the caller knows that the data is ready.
pub const DEVX_NO_STREAM_TRUST: i32 = 2;

/// How a CUDA array is taken in or handed out.
///
/// A NULL request means: version 3, no stream, `DEVX_NO_STREAM_LEGACY_DEFAULT`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxCudaArrayRequest {
    /// Highest version that the consumer reads (for an export): 0 to 3.
    pub max_version: i32,
    /// What takes the place of a stream in versions that have none: one of `DEVX_NO_STREAM_…`.
    pub no_stream: i32,
    /// Import: the stream that the consumer works on; it waits for the data. Export: the stream that the data is to be
    /// ordered on if it does not lie behind one already, alive until the array is released. `DEVX_CUDA_ARRAY_NO_STREAM` if
    /// there is none.
    pub stream: i64,
}
