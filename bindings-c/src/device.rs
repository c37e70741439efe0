//! `devx_device_*`: the devices of this machine. `devx_releases_*`: releases that wait for a device.

use devexchange_core::device::{Device, DeviceType};
use devexchange_core::runtime::{releases_lost, releases_waiting};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{DeviceInfoRecord, DlDevice, ErrorRecord, Status};
use crate::error::{guard, required};

/// Counts the devices of a type: one for the CPU (type 1), as many as the driver shows for CUDA (type 2).
///
/// `DEVX_DEVICE` if this machine has no driver or no device of the type, and for types other than the CPU and CUDA.
#[ffi_export]
fn devx_device_count(device_type: i32, out: Option<Out<'_, i32>>, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        let count = Device::count(DeviceType(device_type))?;
        required(out, "out")?.write(count);
        Ok(())
    })
}

/// Tells the name of a device and how much memory it has.
///
/// `DEVX_DEVICE` if the device is not there, or its type is neither the CPU nor CUDA.
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

/// Returns how many releases wait for work that is queued on a device.
#[ffi_export]
fn devx_releases_waiting() -> i64 {
    releases_waiting()
}

/// Returns how many releases were lost.
///
/// That is the number of releases that were never called, because the driver could not say whether the work that used the
/// memory is done, plus the number of pieces of memory, events and streams that the driver did not take back.
#[ffi_export]
fn devx_releases_lost() -> i64 {
    releases_lost()
}
