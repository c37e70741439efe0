//! DLPack 1.3 (source of `dlpack/dlpack.h`): a tensor, its owner, and the function table that array
//! libraries offer each other.

#![expect(non_upper_case_globals, reason = "the names are those of the C standard")]

use core::ffi::{c_char, c_int, c_void};

/// Major version that this header describes. Another major version has another memory layout.
pub const DLPACK_MAJOR_VERSION: u32 = 1;
/// Minor version that this header describes. A higher one only adds values to the open sets.
pub const DLPACK_MINOR_VERSION: u32 = 3;

/// Flag of a versioned tensor: the memory must not be written.
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u64 = 1 << 0;
/// Flag of a versioned tensor: the producer made a copy, and nobody else accesses it until the
/// deleter is called.
pub const DLPACK_FLAG_BITMASK_IS_COPIED: u64 = 1 << 1;
/// Flag of a versioned tensor: each element of less than 8 bits is padded to whole bytes.
/// Without the flag such elements are packed.
pub const DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED: u64 = 1 << 2;

/// The kind of device that memory belongs to.
///
/// The set is open: a newer producer may use numbers that are not named here.
pub type DLDeviceType = i32;

/// Main memory.
pub const kDLCPU: DLDeviceType = 1;
/// Memory of a CUDA GPU.
pub const kDLCUDA: DLDeviceType = 2;
/// Page-locked main memory of CUDA (`cudaMallocHost`).
pub const kDLCUDAHost: DLDeviceType = 3;
/// An OpenCL device.
pub const kDLOpenCL: DLDeviceType = 4;
/// A Vulkan buffer.
pub const kDLVulkan: DLDeviceType = 7;
/// Metal on an Apple GPU.
pub const kDLMetal: DLDeviceType = 8;
/// A buffer of a Verilog simulator.
pub const kDLVPI: DLDeviceType = 9;
/// Memory of an AMD GPU (ROCm).
pub const kDLROCM: DLDeviceType = 10;
/// Page-locked main memory of ROCm (`hipMallocHost`).
pub const kDLROCMHost: DLDeviceType = 11;
/// Reserved for trying out a new kind of device; its meaning is a private agreement.
pub const kDLExtDev: DLDeviceType = 12;
/// Unified memory of CUDA (`cudaMallocManaged`).
pub const kDLCUDAManaged: DLDeviceType = 13;
/// Unified shared memory of a oneAPI device. Only the oneAPI runtime can tell the device behind it,
/// the kind of the allocation, and the context that the allocation is bound to.
pub const kDLOneAPI: DLDeviceType = 14;
/// A WebGPU buffer.
pub const kDLWebGPU: DLDeviceType = 15;
/// A Qualcomm Hexagon DSP.
pub const kDLHexagon: DLDeviceType = 16;
/// A Microsoft MAIA device.
pub const kDLMAIA: DLDeviceType = 17;
/// An AWS Trainium device.
pub const kDLTrn: DLDeviceType = 18;

/// The meaning of an element's bits: the values of `DLDataType.code`.
///
/// The set is open: a newer producer may use numbers that are not named here.
pub type DLDataTypeCode = u8;

/// Signed integer.
pub const kDLInt: DLDataTypeCode = 0;
/// Unsigned integer.
pub const kDLUInt: DLDataTypeCode = 1;
/// IEEE 754 floating point.
pub const kDLFloat: DLDataTypeCode = 2;
/// Opaque handle, for tests; both sides must agree on what it is.
pub const kDLOpaqueHandle: DLDataTypeCode = 3;
/// bfloat16.
pub const kDLBfloat: DLDataTypeCode = 4;
/// Complex number: the real and then the imaginary part, each half of the bits.
pub const kDLComplex: DLDataTypeCode = 5;
/// Boolean, one byte each.
pub const kDLBool: DLDataTypeCode = 6;
/// 8-bit float: 3 bits exponent, 4 bits mantissa.
pub const kDLFloat8_e3m4: DLDataTypeCode = 7;
/// 8-bit float: 4 bits exponent, 3 bits mantissa.
pub const kDLFloat8_e4m3: DLDataTypeCode = 8;
/// 8-bit float: 4 bits exponent with bias 11, 3 bits mantissa; no infinity, no negative zero.
pub const kDLFloat8_e4m3b11fnuz: DLDataTypeCode = 9;
/// 8-bit float: 4 bits exponent, 3 bits mantissa; no infinity.
pub const kDLFloat8_e4m3fn: DLDataTypeCode = 10;
/// 8-bit float: 4 bits exponent, 3 bits mantissa; no infinity, no negative zero.
pub const kDLFloat8_e4m3fnuz: DLDataTypeCode = 11;
/// 8-bit float: 5 bits exponent, 2 bits mantissa.
pub const kDLFloat8_e5m2: DLDataTypeCode = 12;
/// 8-bit float: 5 bits exponent, 2 bits mantissa; no infinity, no negative zero.
pub const kDLFloat8_e5m2fnuz: DLDataTypeCode = 13;
/// 8-bit exponent without sign and mantissa: a power of two, used as a scale.
pub const kDLFloat8_e8m0fnu: DLDataTypeCode = 14;
/// 6-bit float: 2 bits exponent, 3 bits mantissa; no infinity. `bits` must be 6.
pub const kDLFloat6_e2m3fn: DLDataTypeCode = 15;
/// 6-bit float: 3 bits exponent, 2 bits mantissa; no infinity. `bits` must be 6.
pub const kDLFloat6_e3m2fn: DLDataTypeCode = 16;
/// 4-bit float: 2 bits exponent, 1 bit mantissa; no infinity. `bits` must be 4.
pub const kDLFloat4_e2m1fn: DLDataTypeCode = 17;

/// Version of a struct that crosses the boundary.
///
/// A consumer that does not know the major version reads nothing else of the struct and calls the
/// deleter.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Changes with the memory layout.
    pub major: u32,
    /// Changes when values are added to the open sets.
    pub minor: u32,
}

/// One device: its kind and its number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// Kind of the device, one of `kDLCPU`, `kDLCUDA`, …
    pub device_type: DLDeviceType,
    /// Number among the devices of that kind; 0 for main, page-locked and unified memory.
    pub device_id: i32,
}

/// Type of an element, in the byte order of the machine.
///
/// Elements of less than 8 bits are packed from the lowest bit upwards.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// One of the `DLDataTypeCode` values.
    pub code: u8,
    /// Bits of one lane.
    pub bits: u8,
    /// Lanes of one element: 1, unless the element is a vector.
    pub lanes: u16,
}

/// A view of a tensor. It owns nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// Address on the device (a `cl_mem` for OpenCL); the first element is `byte_offset` bytes after it.
    /// NULL if the tensor has no elements.
    ///
    /// The standard requires alignment to 256 bytes, but many producers do not observe it: do not rely
    /// on it.
    pub data: *mut c_void,
    /// Where the memory is.
    pub device: DLDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of an element.
    pub dtype: DLDataType,
    /// Elements along each dimension, `ndim` numbers; may be NULL if `ndim` is 0.
    pub shape: *mut i64,
    /// Step along each dimension in elements, not bytes, `ndim` numbers; may be NULL if `ndim` is 0.
    ///
    /// Before 1.2, NULL also stood for compact row-major order.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// A tensor and its owner, without a version: the struct of DLPack before 1.0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// For the producer's own use.
    pub manager_ctx: *mut c_void,
    /// Called exactly once, when the consumer is done; also frees the struct. NULL: nothing to call.
    pub deleter: Option<unsafe extern "C" fn(tensor: *mut DLManagedTensor)>,
}

/// A tensor and its owner, with a version: the struct of DLPack from 1.0 on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLManagedTensorVersioned {
    /// Version of this struct; read it before anything else.
    pub version: DLPackVersion,
    /// For the producer's own use.
    pub manager_ctx: *mut c_void,
    /// Called exactly once, when the consumer is done; also frees the struct. NULL: nothing to call.
    ///
    /// The fields up to here keep their places in every version, so that the deleter can always be called.
    pub deleter: Option<unsafe extern "C" fn(tensor: *mut DLManagedTensorVersioned)>,
    /// `DLPACK_FLAG_BITMASK_…` bits; the others are 0.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// Makes a new tensor in the library that offers the function.
///
/// Only dtype, ndim, shape and device of `prototype` are read. Returns 0 and writes `out`; or
/// returns -1 and calls `set_error` with `error_ctx`, the kind of the error and a text.
/// Like all functions of the table, it does not throw.
pub type DLPackManagedTensorAllocator = Option<
    unsafe extern "C" fn(
        prototype: *mut DLTensor,
        out: *mut *mut DLManagedTensorVersioned,
        error_ctx: *mut c_void,
        set_error: Option<unsafe extern "C" fn(error_ctx: *mut c_void, kind: *const c_char, message: *const c_char)>,
    ) -> c_int,
>;

/// Exports a Python tensor (`PyObject *`) as a tensor that the caller then owns.
///
/// Does not synchronise: the caller queues its work on the stream that `DLPackCurrentWorkStream` gives.
/// Returns 0, or -1 with a Python exception set.
pub type DLPackManagedTensorFromPyObjectNoSync =
    Option<unsafe extern "C" fn(py_object: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int>;

/// Describes a Python tensor (`PyObject *`) in the caller's struct; the producer stays the owner.
///
/// Data, shape and strides are valid only until control goes back to the producer. Does not
/// synchronise. Returns 0, or -1 with a Python exception set.
pub type DLPackDLTensorFromPyObjectNoSync =
    Option<unsafe extern "C" fn(py_object: *mut c_void, out: *mut DLTensor) -> c_int>;

/// Gives the stream of a device on which the library currently queues its work.
///
/// The CPU has no stream: the answer is NULL.
/// Returns 0, or -1 with a Python exception set.
pub type DLPackCurrentWorkStream = Option<
    unsafe extern "C" fn(device_type: DLDeviceType, device_id: i32, out_current_stream: *mut *mut c_void) -> c_int,
>;

/// Turns a tensor into a Python tensor (`PyObject *`) of the library that offers the function.
///
/// Takes ownership of `tensor`. Does not synchronise. Returns 0, or -1 with a Python exception set.
pub type DLPackManagedTensorToPyObjectNoSync =
    Option<unsafe extern "C" fn(tensor: *mut DLManagedTensorVersioned, out_py_object: *mut *mut c_void) -> c_int>;

/// Head of the function table; its layout is the same in every version.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLPackExchangeAPIHeader {
    /// Version of the table that follows; a consumer checks the major version before it reads on.
    pub version: DLPackVersion,
    /// Table of an older version, or NULL.
    pub prev_api: *mut DLPackExchangeAPIHeader,
}

/// Function table of an array library.
///
/// Python types offer it as their attribute `__dlpack_c_exchange_api__`, a capsule with the name
/// `dlpack_exchange_api`. The table stays valid until the process ends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLPackExchangeAPI {
    /// Version and older tables.
    pub header: DLPackExchangeAPIHeader,
    /// Makes a tensor; never NULL.
    pub managed_tensor_allocator: DLPackManagedTensorAllocator,
    /// Exports a Python tensor; never NULL.
    pub managed_tensor_from_py_object_no_sync: DLPackManagedTensorFromPyObjectNoSync,
    /// Imports into a Python tensor; never NULL.
    pub managed_tensor_to_py_object_no_sync: DLPackManagedTensorToPyObjectNoSync,
    /// Describes a Python tensor for the duration of a call; NULL if not offered.
    pub dltensor_from_py_object_no_sync: DLPackDLTensorFromPyObjectNoSync,
    /// Gives the current stream; never NULL.
    pub current_work_stream: DLPackCurrentWorkStream,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<DLPackVersion>() == 8);
    assert!(size_of::<DLDevice>() == 8);
    assert!(size_of::<DLDataType>() == 4);
    assert!(size_of::<DLTensor>() == 48);
    assert!(size_of::<DLManagedTensor>() == 64);
    assert!(size_of::<DLManagedTensorVersioned>() == 80);
    assert!(size_of::<DLPackExchangeAPIHeader>() == 16);
    assert!(size_of::<DLPackExchangeAPI>() == 56);
};
