//! Arrow C device data interface (source of `arrow/c/device.h`): an array on a device, and what to
//! wait for before its buffers are touched.

use super::arrow_data::ArrowArray;
use core::ffi::c_void;

/// The kind of device that memory belongs to; the numbers are those of DLPack.
///
/// The set is open: a newer producer may use numbers that are not named here.
pub type ArrowDeviceType = i32;

/// Main memory: just like a plain `ArrowArray`.
pub const ARROW_DEVICE_CPU: ArrowDeviceType = 1;
/// Memory of a CUDA GPU.
pub const ARROW_DEVICE_CUDA: ArrowDeviceType = 2;
/// Page-locked main memory of CUDA (`cudaMallocHost`).
pub const ARROW_DEVICE_CUDA_HOST: ArrowDeviceType = 3;
/// An OpenCL device.
pub const ARROW_DEVICE_OPENCL: ArrowDeviceType = 4;
/// A Vulkan buffer.
pub const ARROW_DEVICE_VULKAN: ArrowDeviceType = 7;
/// Metal on an Apple GPU.
pub const ARROW_DEVICE_METAL: ArrowDeviceType = 8;
/// A buffer of a Verilog simulator.
pub const ARROW_DEVICE_VPI: ArrowDeviceType = 9;
/// Memory of an AMD GPU (ROCm).
pub const ARROW_DEVICE_ROCM: ArrowDeviceType = 10;
/// Page-locked main memory of ROCm (`hipMallocHost`).
pub const ARROW_DEVICE_ROCM_HOST: ArrowDeviceType = 11;
/// Reserved for trying out a new kind of device; its meaning is a private agreement.
pub const ARROW_DEVICE_EXT_DEV: ArrowDeviceType = 12;
/// Unified memory of CUDA (`cudaMallocManaged`).
pub const ARROW_DEVICE_CUDA_MANAGED: ArrowDeviceType = 13;
/// Unified shared memory of a oneAPI device.
pub const ARROW_DEVICE_ONEAPI: ArrowDeviceType = 14;
/// A WebGPU buffer.
pub const ARROW_DEVICE_WEBGPU: ArrowDeviceType = 15;
/// A Qualcomm Hexagon DSP.
pub const ARROW_DEVICE_HEXAGON: ArrowDeviceType = 16;

/// An array whose buffers, and those of its children, lie on a device.
///
/// Released and moved through `array`. The structs themselves lie in main memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrowDeviceArray {
    /// The array.
    pub array: ArrowArray,
    /// Number of the device; -1 where it has no meaning.
    pub device_id: i64,
    /// Kind of the device, one of `ARROW_DEVICE_…`.
    pub device_type: ArrowDeviceType,
    /// Address of the event to wait for before the buffers are touched (CUDA: a `cudaEvent_t *`), or
    /// NULL if they are ready. The event belongs to the array and is released with it.
    pub sync_event: *mut c_void,
    /// Always zero.
    pub reserved: [i64; 3],
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<ArrowDeviceArray>() == 128);
