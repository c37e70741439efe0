//! The CUDA Array Interface as a C struct (source of `devexchange/cuda_array.h`). The interface itself is defined for
//! Python only. Each member of this struct is an entry of its dictionary; the release function is added.

use core::ffi::{c_char, c_void};

/// The version of the CUDA Array Interface that has a `stream`.
pub const DEVX_CUDA_ARRAY_VERSION: i32 = 3;
/// Value of `devx_cuda_array.stream` for Python's `None`: there is nothing to wait for.
pub const DEVX_CUDA_ARRAY_NO_STREAM: i64 = -1;

/// An array in memory that a CUDA device can access (CUDA Array Interface, versions 0 to 3).
///
/// To take the array, a consumer moves it: it copies the struct and sets `release` of the source to NULL. It then calls
/// `release` once, from any thread, when its work is done or ordered behind `stream`. Everything that the members point to
/// belongs to the struct and lives until then.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxCudaArray {
    /// Version of the interface that the members follow; `stream` has a meaning only from version 3 on.
    pub version: i32,
    /// 1 if the elements must not be written, otherwise 0.
    pub read_only: i32,
    /// Address of the first element; NULL if there are none.
    pub data: *mut c_void,
    /// Number of dimensions.
    pub ndim: i64,
    /// `ndim` extents.
    pub shape: *const i64,
    /// `ndim` strides in bytes, or NULL for compact row-major order.
    pub strides: *const i64,
    /// Type of the elements as NumPy writes it: byte order, kind, bytes; for example `"<f4"`.
    pub typestr: *const c_char,
    /// NumPy's `descr` as text for structured elements, or NULL.
    pub descr: *const c_char,
    /// An array that is true where an element is valid, and whose shape is that of this array or can be broadcast to it; NULL
    /// if all are valid. The mask has its own stream. It is part of this struct and released with it: its `release` is NULL.
    pub mask: *const DevxCudaArray,
    /// The stream that the producer works on, in version 3: 1 is the legacy default stream, 2 the per-thread one, any other
    /// value a handle; `DEVX_CUDA_ARRAY_NO_STREAM` if there is nothing to wait for. Never 0.
    pub stream: i64,
    /// Releases the array and sets this field to NULL. NULL if the array was released or moved from.
    pub release: Option<unsafe extern "C" fn(array: *mut DevxCudaArray)>,
    /// For the producer's own use.
    pub private_data: *mut c_void,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<DevxCudaArray>() == 88);

/// The legacy default stream takes the place of the producer's: it is waited for at the import, and waits for the consumer's
/// work at the release.
pub const DEVX_NO_STREAM_LEGACY_DEFAULT: i32 = 0;
/// The host waits: at an import until the device has done all its work, which breaks any graph capture that is going on there;
/// at an export until the data is ready and no noted use is left.
pub const DEVX_NO_STREAM_HOST_SYNC: i32 = 1;
/// Nobody waits: the caller knows that the data is ready.
pub const DEVX_NO_STREAM_TRUST: i32 = 2;

/// How a CUDA array is imported or exported.
///
/// A NULL request means version 3, no stream and `DEVX_NO_STREAM_LEGACY_DEFAULT`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DevxCudaArrayRequest {
    /// Export: highest version that the consumer reads, 0 to 3.
    pub max_version: i32,
    /// What takes the place of the stream in versions that have none: one of `DEVX_NO_STREAM_…`.
    pub no_stream: i32,
    /// Import: the stream that the consumer works on; it is made to wait for the data. Export: the stream to order the data
    /// on, which must not be destroyed before the array is released; it may be closed (`devx_stream_close`).
    /// `DEVX_CUDA_ARRAY_NO_STREAM` if there is none: then an export orders data that is not ready, or in use, on the stream
    /// that it is queued on already, or else on the legacy default stream.
    pub stream: i64,
}
