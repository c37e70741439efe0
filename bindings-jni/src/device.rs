//! Which devices there are, and what waits for their work.

use devexchange_core::abi::types::{DEVX_DEVICE_NAME_BYTES, DevxDeviceInfo};
use devexchange_core::runtime::cuda::{info, reaper};
use devexchange_core::{Device, DeviceType, Result as CoreResult, text};
use jni::Env;
use jni::objects::JClass;
use jni::sys::{jint, jlong};

use crate::error::{Result, native, refuse};
use crate::handle::take;
use crate::stream::destroy_closed;

/// A device as Java passes it: the type and, above 32 bits, the id.
pub(crate) fn device(packed: jlong) -> CoreResult<Device> {
    Device::new(DeviceType(packed as i32), packed >> 32)
}

native! { device_count(device_type: jint) -> jint }
/// How many devices of a type there are.
fn device_count<'l>(_: &mut Env<'l>, _: JClass<'l>, device_type: jint) -> Result<jint> {
    match DeviceType(device_type) {
        DeviceType::CPU => Ok(1),
        DeviceType::CUDA => Ok(info::device_count()? as jint),
        kind => refuse!(DEVX_DEVICE, "device_type is {kind}: cpu (1) and cuda (2) are counted"),
    }
}

native! { device_info(device: jlong, out: jlong) }
/// Writes what a device is called and how much memory it has.
fn device_info<'l>(_: &mut Env<'l>, _: JClass<'l>, packed: jlong, out: jlong) -> Result<()> {
    let info = describe(device(packed)?)?;
    // SAFETY: Java gives the address of room for the record.
    unsafe { take::<DevxDeviceInfo>(out).write(info) };
    Ok(())
}

fn describe(device: Device) -> CoreResult<DevxDeviceInfo> {
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

native! { releases_waiting() -> jlong }
/// How many releases wait for work that is queued on a device. Whoever waits for the last of them finds the streams
/// destroyed that were closed.
fn releases_waiting<'l>(_: &mut Env<'l>, _: JClass<'l>) -> Result<jlong> {
    let waiting = reaper::waiting();
    if waiting == 0 {
        destroy_closed()?;
    }
    Ok(waiting)
}

native! { releases_lost() -> jlong }
/// How many releases were never called, because the driver could not say whether their work is done.
fn releases_lost<'l>(_: &mut Env<'l>, _: JClass<'l>) -> Result<jlong> {
    Ok(reaper::leaked())
}
