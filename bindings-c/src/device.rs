//! `devx_device_*`: which devices there are.

use devexchange_core::abi::types::{DEVX_DEVICE, DEVX_DEVICE_NAME_BYTES, DevxDeviceInfo};
use devexchange_core::device::{Device, DeviceType};
use devexchange_core::runtime::cuda::{info, reaper};
use devexchange_core::{Error, Result, text};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{DeviceInfoRecord, DlDevice, ErrorRecord, Status};
use crate::error::{guard, required};

/// How many devices of a type there are (1, the CPU: one; 2, CUDA: as many as the driver shows). `DEVX_DEVICE` if there
/// is no driver for that type on this machine, or none of its devices.
#[ffi_export]
fn devx_device_count(device_type: i32, out: Option<Out<'_, i32>>, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        let count = match DeviceType(device_type) {
            DeviceType::CPU => 1,
            DeviceType::CUDA => info::device_count()? as i32,
            kind => {
                return Err(Error::new(
                    DEVX_DEVICE,
                    format!("device_type is {kind}: cpu (1) and cuda (2) are counted"),
                ));
            }
        };
        required(out, "out")?.write(count);
        Ok(())
    })
}

/// What a device is called and how much memory it has.
#[ffi_export]
fn devx_device_get_info(
    device: DlDevice,
    out: Option<Out<'_, DeviceInfoRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        out.write(DeviceInfoRecord(describe(Device::from_dlpack(device.0)?)?));
        Ok(())
    })
}

fn describe(device: Device) -> Result<DevxDeviceInfo> {
    let mut name = [0; DEVX_DEVICE_NAME_BYTES];
    if device == Device::CPU {
        text::fill("host memory", &mut name);
        let (free_bytes, total_bytes) = (-1, -1);
        return Ok(DevxDeviceInfo { name, uuid: [0; 16], free_bytes, total_bytes, driver_version: 0, reserved: 0 });
    }
    let found = info::device_info(device.id)?;
    let (free, total) = info::memory_info(device.id)?;
    text::fill(&found.name, &mut name);
    Ok(DevxDeviceInfo {
        name,
        uuid: found.uuid,
        free_bytes: free as i64,
        total_bytes: total as i64,
        driver_version: info::driver_version()?,
        reserved: 0,
    })
}

/// How many releases wait for work that is queued on a device.
#[ffi_export]
fn devx_releases_waiting() -> i64 {
    reaper::waiting()
}

/// How many releases were never called, because the driver could not say whether the work that used the memory is done.
#[ffi_export]
fn devx_releases_lost() -> i64 {
    reaper::leaked()
}
