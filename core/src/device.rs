//! Where data is. Device types are numbers, shared by DLPack (`DLDeviceType`) and Arrow (`ArrowDeviceType`).

use std::fmt;

use crate::abi::dlpack::{self as dl, DLDevice};
use crate::error::{Result, refuse};

/// A kind of device. The set is open: a number that has no name here stays a number.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceType(pub i32);

impl DeviceType {
    /// Host memory.
    pub const CPU: Self = Self(dl::kDLCPU);
    /// CUDA device memory.
    pub const CUDA: Self = Self(dl::kDLCUDA);
    /// Host memory pinned by CUDA.
    pub const CUDA_HOST: Self = Self(dl::kDLCUDAHost);
    /// ROCm device memory.
    pub const ROCM: Self = Self(dl::kDLROCM);
    /// Host memory pinned by ROCm.
    pub const ROCM_HOST: Self = Self(dl::kDLROCMHost);
    /// CUDA managed memory.
    pub const CUDA_MANAGED: Self = Self(dl::kDLCUDAManaged);

    /// The name that people use, or `None` for a number without one.
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            dl::kDLCPU => "cpu",
            dl::kDLCUDA => "cuda",
            dl::kDLCUDAHost => "cuda_host",
            dl::kDLOpenCL => "opencl",
            dl::kDLVulkan => "vulkan",
            dl::kDLMetal => "metal",
            dl::kDLVPI => "vpi",
            dl::kDLROCM => "rocm",
            dl::kDLROCMHost => "rocm_host",
            dl::kDLExtDev => "ext_dev",
            dl::kDLCUDAManaged => "cuda_managed",
            dl::kDLOneAPI => "oneapi",
            dl::kDLWebGPU => "webgpu",
            dl::kDLHexagon => "hexagon",
            dl::kDLMAIA => "maia",
            dl::kDLTrn => "trn",
            _ => return None,
        })
    }
}

impl fmt::Display for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "unknown ({})", self.0),
        }
    }
}

impl fmt::Debug for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A device: its type and which one of that type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// The kind of device.
    pub kind: DeviceType,
    /// Which one, counted by its runtime in this process; 0 for the CPU.
    pub id: i32,
}

impl Device {
    /// Host memory.
    pub const CPU: Self = Self { kind: DeviceType::CPU, id: 0 };

    /// Checks and normalises a device from outside: the CPU is accepted as −1 (Arrow's convention)
    /// and as 0 (DLPack's), and is 0 in here.
    ///
    /// # Errors
    /// `DEVX_DEVICE` for a device type or id that is not known, or that this library has no runtime for.
    pub fn new(kind: DeviceType, id: i64) -> Result<Self> {
        match kind {
            DeviceType::CPU if id == 0 || id == -1 => Ok(Self::CPU),
            DeviceType::CPU => refuse!(DEVX_DEVICE, "device_id is {id}: the cpu is 0 or -1"),
            _ if kind.name().is_none() => {
                refuse!(DEVX_DEVICE, "device_type is {}: not a device type of DLPack 1.3 or Arrow", kind.0)
            }
            _ => refuse!(DEVX_DEVICE, "device_type is {kind}: this build has a runtime for the cpu (1) only"),
        }
    }

    /// See [`Device::new`].
    ///
    /// # Errors
    /// As [`Device::new`].
    pub fn from_dlpack(device: DLDevice) -> Result<Self> {
        Self::new(DeviceType(device.device_type), device.device_id.into())
    }

    /// As DLPack writes it.
    pub fn to_dlpack(self) -> DLDevice {
        DLDevice { device_type: self.kind.0, device_id: self.id }
    }

    /// The id as Arrow writes it: −1 for the CPU (C Device data interface, `device_id`).
    pub fn arrow_id(self) -> i64 {
        if self.kind == DeviceType::CPU { -1 } else { self.id.into() }
    }

    /// Whether the host may read the memory through the pointer as it is.
    pub fn is_host(self) -> bool {
        self.kind == DeviceType::CPU
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.name() {
            Some(name) => write!(f, "{name}:{}", self.id),
            None => write!(f, "device type {}:{}", self.kind.0, self.id),
        }
    }
}
