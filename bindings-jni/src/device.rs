//! Which devices there are, and what waits for their work.

use devexchange_core::abi::types::DevxDeviceInfo;
use devexchange_core::runtime;
use devexchange_core::{Device, DeviceType, Result as CoreResult, Stream};
use jni::sys::{jint, jlong};

use crate::error::Result;
use crate::handle::take;
use crate::native::plain;

/// A device as Java passes it, if there is such a one.
pub(crate) fn device(packed: jlong) -> CoreResult<Device> {
    let Device { kind, id } = unpack(packed);
    Device::new(kind, id.into())
}

/// What Java says for a device: the type and, above 32 bits, the id.
pub(crate) fn pack(device_type: i32, device_id: i32) -> jlong {
    jlong::from(device_type.cast_unsigned()) | jlong::from(device_id) << 32
}

/// What [`pack`] made of a device. Nobody is asked whether it is there.
pub(crate) fn unpack(packed: jlong) -> Device {
    Device { kind: DeviceType(packed as i32), id: (packed >> 32) as i32 }
}

plain! { device_count(device_type: jint) -> jint }
/// How many devices of a type there are.
fn device_count(device_type: jint) -> Result<jint> {
    Ok(Device::count(DeviceType(device_type))?)
}

plain! { device_info(device: jlong, out: jlong) }
/// Writes what a device is called and how much memory it has.
fn device_info(packed: jlong, out: jlong) -> Result<()> {
    let info = device(packed)?.info()?;
    // SAFETY: Java gives the address of room for the record.
    unsafe { take::<DevxDeviceInfo>(out).write(info) };
    Ok(())
}

plain! { releases_waiting() -> jlong }
/// How many releases wait for work that is queued on a device. Whoever waits for the last of them finds the streams
/// destroyed that were closed.
fn releases_waiting() -> Result<jlong> {
    let waiting = runtime::releases_waiting();
    if waiting == 0 {
        Stream::destroy_closed()?;
    }
    Ok(waiting)
}

plain! { releases_lost() -> jlong }
/// How many releases were never called, because the driver could not say whether their work is done.
fn releases_lost() -> Result<jlong> {
    Ok(runtime::releases_lost())
}
