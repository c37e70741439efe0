//! Tensors over new memory.

use devexchange_core::{DType, Device, Tensor};
use pyo3::prelude::*;

use crate::manager::{MemoryManager, stream_or_none};
use crate::python::error::Result;
use crate::python::{queue, raised};
use crate::tensor::type_object::New;
use crate::{device, dtype, shape};

/// Returns a tensor over new, uninitialised memory, compact and row-major.
///
/// `dtype` is a name, a dtype of NumPy or PyTorch, or a type (`float`); by default it is "float64". `device` is named as for
/// `from_dlpack`; by default it is the CPU.
///
/// Without a `manager` the library allocates by itself. With a `stream`, device memory then comes from the device's default
/// pool, ready for work on that stream; without one it can be used at once, and counts as filled on the legacy default stream
/// (`produced_on`). (Without one, memory of a manager that is a pool is in the order of the legacy default stream.) Memory from
/// the pool is given back on its stream, which must not be destroyed before everybody has released the memory; a `DeviceStream`
/// that is closed waits for that by itself. Pinned and managed memory is made for the device of the stream, without a stream
/// for device 0, whatever number `device` has.
#[pyfunction]
#[pyo3(signature = (shape, dtype=None, *, device=None, stream=None, manager=None))]
pub(crate) fn empty(
    py: Python<'_>,
    shape: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
    stream: Option<&Bound<'_, PyAny>>,
    manager: Option<&Bound<'_, PyAny>>,
) -> Result<New> {
    queue::drain();
    let shape = shape::from_python(shape)?;
    let dtype = dtype.map_or(Ok(DType::FLOAT64), dtype::from_python)?;
    let device = device.map_or(Ok(Device::CPU), device::asked)?;
    let (stream, _hold) = stream_or_none(device, stream)?;
    let manager = manager.map(|manager| MemoryManager::wanted(manager, "manager")).transpose()?;
    let made = raised::calling(py, || match manager {
        Some(manager) => Tensor::allocate_with(&*manager, device, dtype, &shape, stream),
        None => Tensor::allocate(device, dtype, &shape, stream),
    });
    Ok(New(made?))
}
