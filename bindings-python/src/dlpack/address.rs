//! Structs at addresses: how libraries of one process exchange that share no Python, for example one of Java's.

use devexchange_core::RawStream;
use devexchange_core::Tensor as CoreTensor;
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::dlpack::{self, Request};

use crate::order::raw_stream;
use crate::python::address::Address;
use crate::python::error::Result;

/// A struct that the caller owns.
pub(crate) fn export(tensor: CoreTensor, stream: Option<RawStream>) -> Result<usize> {
    let stream = stream.unwrap_or_else(|| raw_stream::default(tensor.device()));
    let exported = dlpack::export::<DLManagedTensorVersioned>(tensor, &Request { stream, ..Request::default() })?;
    Ok(exported.into_raw().expose_provenance())
}

/// # Safety
/// As [`dlpack::import_on`].
pub(crate) unsafe fn import(address: Address, stream: Option<RawStream>) -> Result<CoreTensor> {
    // SAFETY: the caller's contract.
    Ok(unsafe { dlpack::import_on(address.pointer::<DLManagedTensorVersioned>(), stream) }?)
}
