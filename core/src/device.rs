//! Where data is. Device types are numbers, shared by DLPack (`DLDeviceType`) and Arrow (`ArrowDeviceType`).

use core::ffi::c_void;
use std::fmt;
use std::str::FromStr;

use crate::abi::dlpack::{self as dl, DLDevice};
use crate::abi::types::{DEVX_DEVICE_NAME_BYTES, DevxDeviceInfo};
use crate::error::{Error, Result, refuse};
use crate::runtime::cuda::{self, pointer};
use crate::stream::{RawStream, Stream};
use crate::text;

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

    /// Checks and normalises a device from outside. What belongs to no device in particular (the CPU, pinned and managed
    /// memory) is accepted as −1 (Arrow's convention for it) and as 0 (DLPack's), and is 0 in here.
    ///
    /// # Errors
    /// `DEVX_DEVICE` for a device type or id that is not known, or that this library has no runtime for: of a CUDA device the
    /// driver is asked, and without one there is none.
    #[inline]
    pub fn new(kind: DeviceType, id: i64) -> Result<Self> {
        if Self::is_cpu(kind, id) { Ok(Self::CPU) } else { Self::with_runtime(kind, id) }
    }

    #[inline]
    pub(crate) fn is_cpu(kind: DeviceType, id: i64) -> bool {
        kind == DeviceType::CPU && (id == 0 || id == -1)
    }

    fn with_runtime(kind: DeviceType, id: i64) -> Result<Self> {
        match kind {
            DeviceType::CPU => refuse!(DEVX_DEVICE, "device_id is {id}: the cpu is 0 or -1"),
            _ if kind.name().is_none() => {
                refuse!(DEVX_DEVICE, "device_type is {}: not a device type of DLPack 1.3 or Arrow", kind.0)
            }
            DeviceType::CUDA | DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED => {
                let is_on_one = kind == DeviceType::CUDA;
                let Ok(ordinal) = i32::try_from(if id == -1 && !is_on_one { 0 } else { id }) else {
                    return refuse!(DEVX_DEVICE, "device_id is {id}: not the number of a CUDA device");
                };
                cuda::require_device(ordinal).map_err(|error| error.within(format_args!("device_type is {kind}: ")))?;
                Ok(Self { kind, id: if is_on_one { ordinal } else { 0 } })
            }
            _ => refuse!(
                DEVX_DEVICE,
                "device_type is {kind}: this library has runtimes for the cpu (1) and for cuda (2, 3, 13)"
            ),
        }
    }

    /// The device, whoever filled its members in, as [`Device::new`] makes it.
    ///
    /// # Errors
    /// As [`Device::new`].
    pub(crate) fn checked(self) -> Result<Self> {
        Self::new(self.kind, self.id.into())
    }

    /// See [`Device::new`].
    ///
    /// # Errors
    /// As [`Device::new`].
    #[inline]
    pub fn from_dlpack(device: DLDevice) -> Result<Self> {
        Self::new(DeviceType(device.device_type), device.device_id.into())
    }

    /// A stream for work between this device's memory and another's: of whichever of the two has streams.
    ///
    /// # Errors
    /// `DEVX_INVALID_STREAM`; `DEVX_DEVICE` if neither has streams.
    pub fn stream_with(self, other: Self, value: RawStream) -> Result<Stream> {
        // Pinned and managed memory is used by the streams of every device: the other one says which.
        let of_device = if self.kind != DeviceType::CUDA && other.has_streams() { other } else { self };
        match of_device.stream(value) {
            Some(stream) => stream,
            None if self == other => {
                refuse!(DEVX_DEVICE, "stream is {}: device is {self}, which has no streams", value.value())
            }
            None => refuse!(DEVX_DEVICE, "stream is {}: neither {self} nor {other} has streams", value.value()),
        }
    }

    /// As DLPack writes it.
    #[inline]
    pub fn to_dlpack(self) -> DLDevice {
        DLDevice { device_type: self.kind.0, device_id: self.id }
    }

    /// The id as Arrow writes it: −1 for the CPU (C Device data interface, `device_id`).
    #[inline]
    pub fn arrow_id(self) -> i64 {
        if self.kind == DeviceType::CPU { -1 } else { self.id.into() }
    }

    /// Whether the host can read the memory through the pointer as it is, once it is ready.
    pub fn is_host(self) -> bool {
        matches!(self.kind, DeviceType::CPU | DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED)
    }

    /// How many devices of a type there are: one CPU, and as many CUDA devices as the driver shows.
    ///
    /// # Errors
    /// `DEVX_DEVICE` if there is no driver for the type, or another type is asked for; `DEVX_DRIVER`.
    pub fn count(kind: DeviceType) -> Result<i32> {
        match kind {
            DeviceType::CPU => Ok(1),
            DeviceType::CUDA => Ok(cuda::info::device_count()? as i32),
            _ => refuse!(DEVX_DEVICE, "device_type is {kind}: cpu (1) and cuda (2) are counted"),
        }
    }

    /// What the device is called and how much memory it has, as the C record.
    ///
    /// # Errors
    /// `DEVX_DEVICE` for one that is not there, and for other types than CPU and CUDA; `DEVX_DRIVER`.
    pub fn info(self) -> Result<DevxDeviceInfo> {
        let mut name = [0; DEVX_DEVICE_NAME_BYTES];
        if self == Self::CPU {
            text::fill("host memory", &mut name);
            let (free_bytes, total_bytes) = (-1, -1);
            return Ok(DevxDeviceInfo { name, uuid: [0; 16], free_bytes, total_bytes, driver_version: 0, reserved: 0 });
        }
        if self.kind != DeviceType::CUDA {
            return refuse!(DEVX_DEVICE, "device is {self}: it must be cpu or cuda");
        }
        let found = cuda::info::device_info(self.id)?;
        let (free, total) = cuda::info::memory_info(self.id)?;
        text::fill(&found.name, &mut name);
        Ok(DevxDeviceInfo {
            name,
            uuid: found.uuid,
            free_bytes: free as i64,
            total_bytes: total as i64,
            driver_version: cuda::info::driver_version()?,
            reserved: 0,
        })
    }

    #[inline]
    pub(crate) fn require_host(self) -> Result<()> {
        if self.is_host() { Ok(()) } else { refuse!(DEVX_DEVICE, "device is {self}, not host memory") }
    }

    /// Checks that the device has streams.
    ///
    /// # Errors
    /// `DEVX_DEVICE`.
    pub fn require_streams(self) -> Result<()> {
        if self.has_streams() { Ok(()) } else { refuse!(DEVX_DEVICE, "device is {self}, which has no streams") }
    }

    /// Whether work on this device's memory is queued on streams.
    #[inline]
    pub fn has_streams(self) -> bool {
        matches!(self.kind, DeviceType::CUDA | DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED)
    }

    /// A stream for work on this device's memory; `None` for a device that has no streams. Where the memory is known, ask
    /// [`crate::Tensor::stream`] or [`crate::Batch::stream`]: to pinned and managed memory a default stream is not always
    /// that of device 0.
    ///
    /// # Errors
    /// `DEVX_INVALID_STREAM`.
    #[inline]
    pub fn stream(self, value: RawStream) -> Option<Result<Stream>> {
        self.has_streams().then(|| Stream::new(self.id, value))
    }

    /// A stream of this device, to be used with data wherever that is: a default stream is named with its GPU. Pinned and
    /// managed memory names none, so of that the data says.
    ///
    /// # Errors
    /// `DEVX_INVALID_STREAM`; `DEVX_DEVICE` if this has no streams.
    pub fn own_stream(self, value: RawStream) -> Result<RawStream> {
        self.stream_with(self, value)?;
        Ok(if self.kind == DeviceType::CUDA { value.on(self.id) } else { value })
    }

    /// The device whose stream a number stands for, for work on this device's memory at an address. A default stream is one
    /// of a device: pinned and managed memory belongs to none, but was made for one, which is meant; no other device is used
    /// for the sake of a convention. The driver is asked only for that.
    #[inline]
    pub(crate) fn of_stream(self, value: RawStream, address: impl FnOnce() -> *const c_void) -> Self {
        let belongs_to_none = matches!(self.kind, DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED);
        if belongs_to_none && value.is_default() { self.made_for(address()) } else { self }
    }

    /// With the number of the device that memory was made for; as it is where the driver does not know.
    #[cold]
    fn made_for(self, address: *const c_void) -> Self {
        match if address.is_null() { None } else { pointer::locate(address).ok() } {
            Some(place) => Self { id: place.ordinal.max(0), ..self },
            None => self,
        }
    }

    /// The legacy default stream; `None` for a device that has no streams.
    #[inline]
    pub fn legacy_stream(self) -> Option<Stream> {
        self.has_streams().then(|| Stream::legacy(self.id))
    }
}

impl FromStr for Device {
    type Err = Error;

    /// From the name that it is shown by, for example `cuda:1`; without a number it is the first one.
    ///
    /// # Errors
    /// As [`Device::new`], also for what is no name.
    fn from_str(name: &str) -> Result<Self> {
        let (kind, id) = name.split_once(':').unwrap_or((name, "0"));
        let kind = (0..=i8::MAX.into()).map(DeviceType).find(|known| known.name() == Some(kind));
        let is_number = id.bytes().all(|byte| byte.is_ascii_digit());
        match (kind, id.parse()) {
            (Some(kind), Ok(id)) if is_number => Self::new(kind, id),
            _ => refuse!(DEVX_DEVICE, "device is {name:?}: not the name of a device, such as cpu, cuda or cuda:1"),
        }
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
