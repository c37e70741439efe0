//! Which devices there are, and what the runtimes know about them.

use core::ffi::c_void;
use std::str::FromStr;

use super::cuda::{self, pointer};
use crate::abi::dlpack::DLDevice;
use crate::abi::types::{DEVX_DEVICE_NAME_BYTES, DevxDeviceInfo};
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result, refuse};
use crate::stream::RawStream;
use crate::text;

impl Device {
    /// Checks and normalises a device from outside. The CPU, pinned and managed memory belong to no device in particular: their
    /// id may be −1 (Arrow's convention) or 0 (DLPack's), and is 0 in the result.
    ///
    /// # Errors
    /// `DEVX_DEVICE` for a device type or id that is not known, or that this library has no runtime for. The driver decides
    /// which CUDA devices there are; without a driver there are none.
    #[inline]
    pub fn new(kind: DeviceType, id: i64) -> Result<Self> {
        if Self::is_cpu(kind, id) { Ok(Self::CPU) } else { Self::with_runtime(kind, id) }
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

    /// Checks and normalises a device whose members anybody may have filled in; see [`Device::new`].
    ///
    /// # Errors
    /// Same as [`Device::new`].
    pub(crate) fn checked(self) -> Result<Self> {
        Self::new(self.kind, self.id.into())
    }

    /// Like [`Device::new`], for a device of DLPack.
    ///
    /// # Errors
    /// Same as [`Device::new`].
    #[inline]
    pub fn from_dlpack(device: DLDevice) -> Result<Self> {
        Self::new(DeviceType(device.device_type), device.device_id.into())
    }

    /// Counts the devices of a type: one CPU, and as many CUDA devices as the driver shows.
    ///
    /// # Errors
    /// `DEVX_DEVICE` if there is no driver for the type, or another type is asked for; `DEVX_DRIVER`.
    pub fn count(kind: DeviceType) -> Result<i32> {
        match kind {
            DeviceType::CPU => Ok(1),
            DeviceType::CUDA => Ok(cuda::info::device_count()? as i32),
            _ => refuse!(DEVX_DEVICE, "device_type is {kind}: only devices of cpu (1) and cuda (2) can be counted"),
        }
    }

    /// Returns the name, memory and other properties of the device as the C record.
    ///
    /// # Errors
    /// `DEVX_DEVICE` for a device that does not exist, and for types other than CPU and CUDA; `DEVX_DRIVER`.
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

    /// The device whose stream `value` names, for work on this device's memory at an address. A default stream is one of a
    /// device. Pinned and managed memory belongs to no device, so a default stream is that of the device that the memory was
    /// made for; no other device is used just for a convention. Only this case asks the driver.
    #[inline]
    pub(crate) fn of_stream(self, value: RawStream, address: impl FnOnce() -> *const c_void) -> Self {
        let belongs_to_none = matches!(self.kind, DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED);
        if belongs_to_none && value.is_default() { self.made_for(address()) } else { self }
    }

    /// This device with the number of the one that memory was made for; unchanged if the driver does not know it.
    #[cold]
    fn made_for(self, address: *const c_void) -> Self {
        match if address.is_null() { None } else { pointer::locate(address).ok() } {
            Some(place) => Self { id: place.ordinal.max(0), ..self },
            None => self,
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Parses the name that a device is shown by, for example `cuda:1`. Without a number it is the first device.
    ///
    /// # Errors
    /// Same as [`Device::new`], also for a text that names no device.
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
