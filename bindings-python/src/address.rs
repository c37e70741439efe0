//! Structs at addresses: how libraries of one process exchange that share no Python, for example one of Java's.

use devexchange_core::Tensor as CoreTensor;
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::dlpack::{self, Request};
use devexchange_core::runtime::cuda::RawStream;

use crate::dlpack::default_stream;
use crate::error::Result;

/// What a number stands for that a program uses as an address.
pub(crate) fn pointer<T>(address: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address)
}

/// A struct that the caller owns.
pub(crate) fn export_dlpack(tensor: CoreTensor, stream: Option<RawStream>) -> Result<usize> {
    let stream = stream.unwrap_or_else(|| default_stream(tensor.device()));
    let exported = dlpack::export::<DLManagedTensorVersioned>(tensor, &Request { stream, ..Request::default() })?;
    Ok(exported.into_raw().expose_provenance())
}

/// # Safety
/// As [`dlpack::import_on`].
pub(crate) unsafe fn import_dlpack(address: usize, stream: Option<RawStream>) -> Result<CoreTensor> {
    // SAFETY: the caller's contract.
    Ok(unsafe { dlpack::import_on(pointer::<DLManagedTensorVersioned>(address), stream) }?)
}
