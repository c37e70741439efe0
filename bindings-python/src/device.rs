//! Devices, as the pairs that DLPack's `__dlpack_device__` returns.

use devexchange_core::{Device, DeviceType, text};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::class::Class;
use crate::python::error::{Error, Result, wrong_type};
use crate::python::{argument, ask};

static DEVICE: Class = Class::new("devexchange._types", "Device");
static DEVICE_INFO: Class = Class::new("devexchange._types", "DeviceInfo");
static UUID: Class = Class::new("uuid", "UUID");

/// Returns how many devices of a type there are: one CPU, and as many CUDA devices as the driver shows.
///
/// Raises BufferError (`DEVX_DEVICE`) with the reason if this machine has no driver or no device of the type, and for types
/// other than the CPU and CUDA.
#[pyfunction]
#[pyo3(signature = (device_type=2))]
pub(crate) fn device_count(py: Python<'_>, #[pyo3(from_py_with = kind)] device_type: i32) -> Result<i32> {
    Ok(py.detach(|| Device::count(DeviceType(device_type)))?)
}

/// Returns the name of a device, for example "cuda:0"; a type without a name is shown as its number.
#[pyfunction]
pub(crate) fn device_name(device: &Bound<'_, PyAny>) -> PyResult<String> {
    let (kind, id) = numbers(device)?;
    Ok(Device { kind: DeviceType(kind), id }.to_string())
}

/// Returns the name of a device and how much memory it has.
///
/// Raises BufferError (`DEVX_DEVICE`) for a device that does not exist, and for types other than the CPU and CUDA;
/// RuntimeError if the driver fails.
#[pyfunction]
#[pyo3(signature = (device, /))]
pub(crate) fn device_info<'py>(py: Python<'py>, device: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let device = asked(device)?;
    let info = py.detach(|| device.info())?;
    let uuid = UUID.make(py, (py.None(), info.uuid))?;
    let name = text::read(&info.name).to_string();
    Ok(DEVICE_INFO.make(py, (name, uuid, info.free_bytes, info.total_bytes, info.driver_version))?)
}

/// The device as a `devexchange.Device`.
pub(crate) fn to_python(py: Python<'_>, device: Device) -> Result<Bound<'_, PyAny>> {
    Ok(DEVICE.make(py, (device.kind.0, device.id))?)
}

/// Reads what a producer's `__dlpack_device__` returned. Paddle writes None for the number of the CPU.
pub(crate) fn said(pair: &Bound<'_, PyAny>) -> Result<Device> {
    match argument::pair(pair)? {
        Some((kind, Some(id))) => Ok(Device::new(DeviceType(kind), id)?),
        Some((kind, None)) if DeviceType(kind) == Device::CPU.kind => Ok(Device::CPU),
        _ => wrong_type!("__dlpack_device__ returned {pair:?}: a pair (device type, number) is needed"),
    }
}

/// The two numbers of a pair of a device type and a number, unchecked.
fn numbers(pair: &Bound<'_, PyAny>) -> Result<(i32, i32)> {
    match argument::pair(pair)? {
        Some(numbers) => Ok(numbers),
        None => wrong_type!("device is {pair:?}: a pair (device type, number) is needed"),
    }
}

/// Reads the device that a caller names by such a pair, by a name, or by a PyTorch device, whose text is its name.
pub(crate) fn asked(device: &Bound<'_, PyAny>) -> Result<Device> {
    let (kind, id) = named(device)?;
    Ok(Device::new(kind, id)?)
}

/// The device that memory is asked for: as in [`asked`], but a pair is unchecked, because pinned and managed memory is for a
/// device, too.
pub(crate) fn of_request(device: &Bound<'_, PyAny>) -> PyResult<(i32, i32)> {
    let (kind, id) = named(device)?;
    // No device has a number beyond 32 bits: the check refuses it.
    let id = id.try_into().or_else(|_| Device::new(kind, id).map(|checked| checked.id)).map_err(Error::from)?;
    Ok((kind.0, id))
}

/// The two numbers of a device that is named as for [`asked`]: those of a pair unchecked.
fn named(device: &Bound<'_, PyAny>) -> Result<(DeviceType, i64)> {
    let parsed = |name: &Bound<'_, PyString>| -> Result<_> {
        let Device { kind, id } = name.to_string_lossy().parse()?;
        Ok((kind, id.into()))
    };
    if let Ok(name) = device.cast::<PyString>() {
        return parsed(name);
    }
    let kind = device.getattr_opt(intern!(device.py(), "type"))?;
    if kind.is_some_and(|kind| kind.is_instance_of::<PyString>()) {
        return parsed(&device.str()?);
    }
    match argument::pair(device)? {
        Some((kind, id)) => Ok((DeviceType(kind), id)),
        None => {
            wrong_type!("device is {device:?}: a name such as \"cuda:0\" or a pair (device type, number) is needed")
        }
    }
}

/// The number of a device whose kind is known.
pub(crate) fn number(device_id: &Bound<'_, PyAny>) -> PyResult<i32> {
    Ok(argument::number(device_id, "device_id", i32::MIN, i32::MAX)?)
}

/// A device type, as the number that DLPack and Arrow use.
pub(crate) fn kind(device_type: &Bound<'_, PyAny>) -> PyResult<i32> {
    Ok(argument::number(device_type, "device_type", i32::MIN, i32::MAX)?)
}

/// Whether an object says that its memory is host memory, found out without a `PyErr`.
pub(crate) fn is_said_to_be_host(obj: &Bound<'_, PyAny>) -> bool {
    let Device { kind, id } = Device::CPU;
    let said = ask::answer(obj, intern!(obj.py(), "__dlpack_device__"));
    said.is_some_and(|said| ask::pair(&said) == Some([kind.0.into(), id.into()]))
}
