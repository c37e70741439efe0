//! Where data is. Device types are numbers, shared by DLPack (`DLDeviceType`) and Arrow (`ArrowDeviceType`).

use std::fmt;

use crate::abi::dlpack::{self as dl, DLDevice};
use crate::error::{Result, refuse};
use crate::stream::{RawStream, Stream};

/// A kind of device. The set is open: a number without a name here is kept as a number.
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

    /// The common name, or `None` for a number without one.
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
    /// The number of the device, as its runtime counts in this process; 0 for the CPU.
    pub id: i32,
}

impl Device {
    /// Host memory.
    pub const CPU: Self = Self { kind: DeviceType::CPU, id: 0 };

    /// Memory of one GPU. Whether there is such a GPU is found out by the call that uses it.
    pub const fn cuda(id: i32) -> Self {
        Self { kind: DeviceType::CUDA, id }
    }

    /// Whether a device from outside is host memory, written as in DLPack (0) or as in Arrow (−1).
    #[inline]
    pub(crate) fn is_cpu(kind: DeviceType, id: i64) -> bool {
        kind == DeviceType::CPU && (id == 0 || id == -1)
    }

    /// The device as DLPack writes it.
    #[inline]
    pub fn to_dlpack(self) -> DLDevice {
        DLDevice { device_type: self.kind.0, device_id: self.id }
    }

    /// The id as Arrow writes it: −1 for the CPU (C Device data interface, `device_id`).
    #[inline]
    pub fn arrow_id(self) -> i64 {
        if self.kind == DeviceType::CPU { -1 } else { self.id.into() }
    }

    /// Whether the host can read the memory directly through its pointer, once it is ready.
    pub fn is_host(self) -> bool {
        matches!(self.kind, DeviceType::CPU | DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED)
    }

    #[inline]
    pub(crate) fn require_host(self) -> Result<()> {
        if self.is_host() { Ok(()) } else { refuse!(DEVX_DEVICE, "device is {self}, not host memory") }
    }

    /// Checks that the device has streams.
    ///
    /// # Errors
    /// `DEVX_DEVICE` if it has none.
    pub fn require_streams(self) -> Result<()> {
        if self.has_streams() { Ok(()) } else { refuse!(DEVX_DEVICE, "device is {self}, which has no streams") }
    }

    /// Whether work on this device's memory is queued on streams.
    #[inline]
    pub fn has_streams(self) -> bool {
        matches!(self.kind, DeviceType::CUDA | DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED)
    }

    /// The stream that `value` names for work on this device's memory; `None` for a device that has no streams. If the memory
    /// is known, use [`crate::Tensor::stream`] or [`crate::Batch::stream`] instead: for pinned and managed memory, a default
    /// stream is not always that of device 0.
    ///
    /// # Errors
    /// `DEVX_INVALID_STREAM`.
    #[inline]
    pub fn stream(self, value: RawStream) -> Option<Result<Stream>> {
        self.has_streams().then(|| Stream::new(self.id, value))
    }

    /// The stream that `value` names for work between this device's memory and another's: a stream of whichever has streams.
    ///
    /// # Errors
    /// `DEVX_INVALID_STREAM`; `DEVX_DEVICE` if neither has streams.
    pub fn stream_with(self, other: Self, value: RawStream) -> Result<Stream> {
        // Streams of every device use pinned and managed memory, so the other side decides which device is meant.
        let of_device = if self.kind != DeviceType::CUDA && other.has_streams() { other } else { self };
        match of_device.stream(value) {
            Some(stream) => stream,
            None if self == other => {
                refuse!(DEVX_DEVICE, "stream is {}: device is {self}, which has no streams", value.value())
            }
            None => refuse!(DEVX_DEVICE, "stream is {}: neither {self} nor {other} has streams", value.value()),
        }
    }

    /// Like [`Device::stream_with`], but for a copy: unpinned host memory has no streams, so for a copy within it, a default
    /// stream is that of device 0.
    ///
    /// # Errors
    /// Same as [`Device::stream_with`].
    pub(crate) fn stream_to_copy(self, other: Self, value: RawStream) -> Result<Stream> {
        match (self, other) {
            (Self::CPU, Self::CPU) => Stream::new(0, value),
            _ => self.stream_with(other, value),
        }
    }

    /// Names a stream of this device, for use with data on any device: a default stream is named with its GPU. Pinned and
    /// managed memory names no GPU, so for these the data decides.
    ///
    /// # Errors
    /// `DEVX_INVALID_STREAM`; `DEVX_DEVICE` if this device has no streams.
    pub fn own_stream(self, value: RawStream) -> Result<RawStream> {
        self.stream_with(self, value)?;
        Ok(if self.kind == DeviceType::CUDA { value.on(self.id) } else { value })
    }

    /// The legacy default stream; `None` for a device that has no streams.
    #[inline]
    pub fn legacy_stream(self) -> Option<Stream> {
        self.has_streams().then(|| Stream::legacy(self.id))
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
