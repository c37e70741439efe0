//! Devices, as the pairs that DLPack's `__dlpack_device__` gives.

use devexchange_core::{Device, DeviceType};
use pyo3::prelude::*;

use crate::error::{Result, wrong_type};
use crate::python::Class;

static DEVICE: Class = Class::new("devexchange._types", "Device");

/// As Python has it: `devexchange.Device`.
pub(crate) fn to_python(py: Python<'_>, device: Device) -> Result<Bound<'_, PyAny>> {
    Ok(DEVICE.make(py, (device.kind.0, device.id))?)
}

/// From a pair of a device type and a number.
pub(crate) fn from_python(pair: &Bound<'_, PyAny>) -> Result<Device> {
    match pair.extract::<(i32, i64)>() {
        Ok((kind, id)) => Ok(Device::new(DeviceType(kind), id)?),
        Err(_) => wrong_type!("device is {pair}: a pair (device type, number) is needed"),
    }
}
