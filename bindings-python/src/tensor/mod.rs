//! Tensors: the Python object, its methods and its type, and the ways in and out: DLPack, our own function table, the CUDA
//! Array Interface, buffers and NumPy.

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

/// N-dimensional memory: what it is, where it is, who keeps it alive and when it may be touched.
///
/// A tensor comes from `from_dlpack`, `from_cuda_array_interface`, `from_buffer`, `empty` or a column. It goes to every
/// consumer of DLPack, of the CUDA Array Interface and, in host memory, of the buffer protocol. The memory is released when
/// its last user is gone: this object, or whoever it was handed to. `close`, or a `with` block, gives up this object's part.
#[pyclass(frozen, subclass, module = "devexchange", weakref)]
pub(crate) struct Tensor(Handle<CoreTensor>);

impl Tensor {
    /// Puts a tensor into a closed object.
    ///
    /// # Safety
    /// Nobody else has the object.
    pub(super) unsafe fn fill_alone(&self, tensor: CoreTensor) {
        // SAFETY: the caller's contract.
        unsafe { self.0.fill_alone(tensor) };
    }

    /// Takes out what the object holds; `None` if it is closed.
    ///
    /// # Safety
    /// As for [`Tensor::fill_alone`].
    pub(super) unsafe fn take_alone(&self) -> Option<CoreTensor> {
        // SAFETY: the caller's contract.
        unsafe { self.0.take_alone() }
    }

    /// Exports a tensor in host memory to a consumer that reads this version.
    ///
    /// `None` if the memory is elsewhere, the object is closed, or the tensor cannot be exported in this way;
    /// [`devexchange_core::dlpack::export`] reports why.
    #[inline]
    pub(super) fn share_on_host<M: Managed>(&self, py: Python<'_>, max_version: DLPackVersion) -> Option<Owned<M>> {
        let on_host = |tensor: &CoreTensor| match tensor.device() {
            // There is nothing to wait for, so no foreign code is called.
            Device::CPU => share(tensor, &Request { max_version, ..Request::default() }).ok(),
            _ => None,
        };
        // SAFETY: no method of a tensor detaches while it uses the handle.
        unsafe { self.0.with_attached(py, on_host) }.flatten()
    }

    /// The device; `None` if the object is closed.
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
