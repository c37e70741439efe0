//! `devx_device_*`: which devices there are.

use devexchange_core::device::{Device, DeviceType};
use devexchange_core::runtime::{releases_lost, releases_waiting};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{DeviceInfoRecord, DlDevice, ErrorRecord, Status};
use crate::error::{guard, required};

/// How many devices of a type there are (1, the CPU: one; 2, CUDA: as many as the driver shows). `DEVX_DEVICE` if there
/// is no driver for that type on this machine, or none of its devices.
#[ffi_export]
fn devx_device_count(device_type: i32, out: Option<Out<'_, i32>>, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        let count = Device::count(DeviceType(device_type))?;
        required(out, "out")?.write(count);
        Ok(())
    })
}

/// What a device is called and how much memory it has. `DEVX_DEVICE` for one that is not there, and for other types than the CPU
/// and CUDA.
#[ffi_export]
fn devx_device_get_info(
    device: DlDevice,
    out: Option<Out<'_, DeviceInfoRecord>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        out.write(DeviceInfoRecord(Device::from_dlpack(device.0)?.info()?));
        Ok(())
    })
}

/// How many releases wait for work that is queued on a device.
#[ffi_export]
fn devx_releases_waiting() -> i64 {
    releases_waiting()
}

/// How many releases were never called, because the driver could not say whether the work that used the memory is done; and
/// how much memory, and how many events and streams, the driver did not take back.
#[ffi_export]
fn devx_releases_lost() -> i64 {
    releases_lost()
}
