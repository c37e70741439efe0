//! What the driver says of itself and of its devices.

use core::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys::{CUdevice, CUuuid};

use super::context::{self, Current};
use super::driver::Driver;
use crate::error::Result;

/// A device, as people tell one from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// What it is called in every process, whatever the order of devices there.
    pub uuid: [u8; 16],
}

/// How many CUDA devices there are.
///
/// # Errors
/// `DEVX_DEVICE` if there is no driver, `DEVX_DRIVER`.
pub fn device_count() -> Result<usize> {
    context::device_count(Driver::get()?)
}

/// The driver's version as CUDA writes it: 12040 is 12.4.
///
/// # Errors
/// `DEVX_DEVICE` if there is no driver, `DEVX_DRIVER`.
pub fn driver_version() -> Result<i32> {
    let driver = Driver::get()?;
    let mut version: c_int = 0;
    // SAFETY: a call of the driver with room for its result.
    driver.check("cuDriverGetVersion", unsafe { (driver.driver_get_version)(&mut version) })?;
    Ok(version)
}

/// What a device is called.
///
/// # Errors
/// `DEVX_DEVICE`, `DEVX_DRIVER`.
pub fn device_info(ordinal: i32) -> Result<DeviceInfo> {
    context::require_device(ordinal)?;
    let driver = Driver::get()?;
    let mut device: CUdevice = 0;
    // SAFETY: a call of the driver with room for its result.
    driver.check("cuDeviceGet", unsafe { (driver.device_get)(&mut device, ordinal) })?;
    let mut name = [0 as c_char; 256];
    // SAFETY: as above; the driver ends the name with a NUL.
    let code = unsafe { (driver.device_get_name)(name.as_mut_ptr(), name.len() as c_int, device) };
    driver.check("cuDeviceGetName", code)?;
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: as above.
    driver.check("cuDeviceGetUuid", unsafe { (driver.device_get_uuid)(&mut uuid, device) })?;
    // SAFETY: a text of the driver, NUL-terminated.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    Ok(DeviceInfo { name, uuid: uuid.bytes.map(|byte| byte as u8) })
}

/// Free and total bytes of a device's memory.
///
/// # Errors
/// `DEVX_DEVICE`, `DEVX_DRIVER`.
pub fn memory_info(ordinal: i32) -> Result<(usize, usize)> {
    let driver = Driver::get()?;
    let _current = Current::enter(driver, context::primary(driver, ordinal)?)?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: a call of the driver with room for its results.
    driver.check("cuMemGetInfo", unsafe { (driver.mem_get_info)(&mut free, &mut total) })?;
    Ok((free, total))
}
