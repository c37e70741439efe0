//! Tensors: the object that Python has, its methods and its type, and the ways in and out: DLPack, our own function table,
//! the CUDA Array Interface, buffers and NumPy.

pub(crate) mod buffer;
pub(crate) mod cuda_array;
mod exchange_table;
pub(crate) mod from_dlpack;
pub(crate) mod methods;
pub(crate) mod numpy;
mod quick_methods;
mod transfer;
pub(crate) mod type_object;

use devexchange_core::abi::dlpack::DLPackVersion;
use devexchange_core::dlpack::{Managed, Owned, Request, share};
use devexchange_core::{Device, Tensor as CoreTensor};
use pyo3::prelude::*;

use crate::python::error::Result;
use crate::python::handle::Handle;

/// N-dimensional memory of somebody's: what it is, where it is, who keeps it alive and when it may be touched.
///
/// It comes from `from_dlpack`, `from_cuda_array_interface`, `from_buffer` or a column, and goes to every consumer of
/// DLPack, of the CUDA Array Interface and, in host memory, of the buffer protocol. The memory is released when the
/// last user is gone: this object, or whoever it was handed to. `close`, or a `with` block, gives up this object's
/// part.
#[pyclass(frozen, subclass, module = "devexchange", weakref)]
pub(crate) struct Tensor(Handle<CoreTensor>);

impl Tensor {
    /// # Safety
    /// Nobody else has the object.
    pub(super) unsafe fn fill_alone(&self, tensor: CoreTensor) {
        // SAFETY: the caller's contract.
        unsafe { self.0.fill_alone(tensor) };
    }

    /// What the object holds, if it is not closed.
    ///
    /// # Safety
    /// As [`Tensor::fill_alone`].
    pub(super) unsafe fn take_alone(&self) -> Option<CoreTensor> {
        // SAFETY: the caller's contract.
        unsafe { self.0.take_alone() }
    }

    /// What a consumer is handed that reads this version, of host memory. None if it is elsewhere or closed, or cannot be
    /// handed over so, which [`devexchange_core::dlpack::export`] says.
    #[inline]
    pub(super) fn share_on_host<M: Managed>(&self, py: Python<'_>, max_version: DLPackVersion) -> Option<Owned<M>> {
        let on_host = |tensor: &CoreTensor| match tensor.device() {
            // Nothing is waited for, so nothing foreign is called.
            Device::CPU => share(tensor, &Request { max_version, ..Request::default() }).ok(),
            _ => None,
        };
        // SAFETY: no method of a tensor detaches while it uses the handle.
        unsafe { self.0.with_attached(py, on_host) }.flatten()
    }

    /// Where it is; none if it is closed.
    #[inline]
    pub(super) fn device_now(&self, py: Python<'_>) -> Option<Device> {
        // SAFETY: as above.
        unsafe { self.0.with_attached(py, CoreTensor::device) }
    }

    #[inline]
    pub(crate) fn get(&self) -> Result<CoreTensor> {
        self.0.get()
    }
}
