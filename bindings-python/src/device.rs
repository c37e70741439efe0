//! Devices, as the pairs that DLPack's `__dlpack_device__` gives.

use core::ffi::c_long;

use devexchange_core::{Device, DeviceType};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::{Result, wrong_type};
use crate::python::{self, Class};

static DEVICE: Class = Class::new("devexchange._types", "Device");

/// As Python has it: `devexchange.Device`.
pub(crate) fn to_python(py: Python<'_>, device: Device) -> Result<Bound<'_, PyAny>> {
    Ok(DEVICE.make(py, (device.kind.0, device.id))?)
}

/// From a pair of a device type and a number, as protocols write it.
pub(crate) fn from_python(pair: &Bound<'_, PyAny>) -> Result<Device> {
    match pair.extract::<(i32, i64)>() {
        Ok((kind, id)) => Ok(Device::new(DeviceType(kind), id)?),
        Err(_) => wrong_type!("device is {pair}: a pair (device type, number) is needed"),
    }
}

/// From what a caller names it by: such a pair, or a name.
pub(crate) fn asked(device: &Bound<'_, PyAny>) -> Result<Device> {
    if let Ok(name) = device.cast::<PyString>() {
        return Ok(name.to_string_lossy().parse()?);
    }
    match device.extract::<(i32, i64)>() {
        Ok((kind, id)) => Ok(Device::new(DeviceType(kind), id)?),
        Err(_) => {
            wrong_type!("device is {device}: a name such as \"cuda:0\" or a pair (device type, number) is needed")
        }
    }
}

/// Whether an object says that its memory is the host's, in a way that is read without a `PyErr`.
pub(crate) fn is_said_to_be_host(obj: &Bound<'_, PyAny>) -> bool {
    let Some(pair) = python::answer(obj, intern!(obj.py(), "__dlpack_device__")) else { return false };
    let Device { kind, id } = Device::CPU;
    number(&pair, 0) == Some(kind.0.into()) && number(&pair, 1) == Some(id.into())
}

/// One of a tuple of two numbers; none if it is not that, which `from_python` says.
fn number(pair: &Bound<'_, PyAny>, at: isize) -> Option<c_long> {
    // SAFETY: attached, and an object.
    let is_tuple = unsafe { ffi::PyTuple_Check(pair.as_ptr()) } != 0;
    // SAFETY: as above, and a tuple.
    if !is_tuple || unsafe { ffi::PyTuple_Size(pair.as_ptr()) } != 2 {
        return None;
    }
    // SAFETY: one of two items, which the tuple keeps.
    let item = unsafe { ffi::PyTuple_GetItem(pair.as_ptr(), at) };
    // SAFETY: an object.
    if unsafe { ffi::PyLong_Check(item) } == 0 {
        return None;
    }
    // SAFETY: a number.
    let value = unsafe { ffi::PyLong_AsLong(item) };
    // What is too large is -1, with an exception.
    (value != -1 || !python::has_raised(pair.py())).then_some(value)
}
