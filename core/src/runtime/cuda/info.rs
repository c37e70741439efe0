//! What the driver says about itself and its devices.

use core::ffi::{c_char, c_int};

use cudarc::driver::sys::{CUdevice, CUuuid};

use super::context::{self, Apart, Current};
use super::driver::Driver;
use crate::error::Result;
use crate::memory::said;
use crate::text;

/// The name and UUID of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The name of the device.
    pub name: String,
    /// The UUID, which is the same in every process, whatever the order of devices there.
    pub uuid: [u8; 16],
}

/// Returns the number of CUDA devices.
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

/// Returns the name and UUID of a device.
///
/// # Errors
/// `DEVX_DEVICE`, `DEVX_DRIVER`.
pub fn device_info(ordinal: i32) -> Result<DeviceInfo> {
    let (driver, device) = device(ordinal)?;
    let mut name = [0 as c_char; 256];
    // SAFETY: a call of the driver with room for its result, of the given size.
    let code = unsafe { (driver.device_get_name)(name.as_mut_ptr(), name.len() as c_int, device) };
    driver.check("cuDeviceGetName", code)?;
    let uuid = uuid_of(driver, device)?;
    Ok(DeviceInfo { name: said(format_args!("{}", text::read(&name)))?.into_owned(), uuid })
}

/// The UUID of a device, which is the same in every process.
///
/// # Errors
/// `DEVX_DEVICE`, `DEVX_DRIVER`.
pub(crate) fn uuid(ordinal: i32) -> Result<[u8; 16]> {
    let (driver, device) = device(ordinal)?;
    uuid_of(driver, device)
}

fn device(ordinal: i32) -> Result<(&'static Driver, CUdevice)> {
    context::require_device(ordinal)?;
    let driver = Driver::get()?;
    Ok((driver, context::device(driver, ordinal)?))
}

fn uuid_of(driver: &Driver, device: CUdevice) -> Result<[u8; 16]> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: a call of the driver with room for its result.
    driver.check("cuDeviceGetUuid", unsafe { (driver.device_get_uuid)(&mut uuid, device) })?;
    Ok(uuid.bytes.map(|byte| byte as u8))
}

/// Free and total bytes of a device's memory.
///
/// # Errors
/// `DEVX_DEVICE`, `DEVX_DRIVER`.
pub fn memory_info(ordinal: i32) -> Result<(usize, usize)> {
    let driver = Driver::get()?;
    let _current = Current::enter(driver, context::primary(driver, ordinal)?)?;
    let _apart = Apart::enter(driver)?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: a call of the driver with room for its results.
    driver.check("cuMemGetInfo", unsafe { (driver.mem_get_info)(&mut free, &mut total) })?;
    Ok((free, total))
}
