//! The devices, and the releases that wait for their work.

use devexchange_core::abi::types::DevxDeviceInfo;
use devexchange_core::runtime;
use devexchange_core::{Device, DeviceType, Result as CoreResult, Stream};
use jni::sys::{jint, jlong};

use crate::error::Result;
use crate::handle::take;
use crate::native::plain;

/// The device that Java passes as a number, checked.
pub(crate) fn device(packed: jlong) -> CoreResult<Device> {
    let Device { kind, id } = unpack(packed);
    Device::new(kind, id.into())
}

/// The number that Java uses for a device: the type in the lower 32 bits, the id in the upper ones.
pub(crate) fn pack(device_type: i32, device_id: i32) -> jlong {
    jlong::from(device_type.cast_unsigned()) | jlong::from(device_id) << 32
}

/// The device of a number from [`pack`], without a check whether it exists.
pub(crate) fn unpack(packed: jlong) -> Device {
    Device { kind: DeviceType(packed as i32), id: (packed >> 32) as i32 }
}

plain! { device_count(device_type: jint) -> jint }
/// The number of devices of a type.
fn device_count(device_type: jint) -> Result<jint> {
    Ok(Device::count(DeviceType(device_type))?)
}

plain! { device_info(device: jlong, out: jlong) }
/// Writes the name of a device and the size of its memory.
fn device_info(packed: jlong, out: jlong) -> Result<()> {
    let info = device(packed)?.info()?;
    // SAFETY: Java gives the address of room for the record.
    unsafe { take::<DevxDeviceInfo>(out).write(info) };
    Ok(())
}

plain! { releases_waiting() -> jlong }
/// The number of releases that wait for work queued on a device. When it is 0, streams that were closed are destroyed
/// before this returns.
fn releases_waiting() -> Result<jlong> {
    let waiting = runtime::releases_waiting();
    if waiting == 0 {
        Stream::destroy_closed()?;
    }
    Ok(waiting)
}

plain! { releases_lost() -> jlong }
/// The number of releases that were never called because the driver could not say whether their work is done.
fn releases_lost() -> Result<jlong> {
    Ok(runtime::releases_lost())
}
