//! Structs at addresses, for exchanges with libraries in this process that do not use Python, for example a Java library.

use devexchange_core::RawStream;
use devexchange_core::Tensor as CoreTensor;
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::dlpack::{self, Request};

use crate::order::raw_stream;
use crate::python::address::Address;
use crate::python::error::Result;

/// Exports a tensor as a struct that the caller owns, and returns its address.
pub(crate) fn export(tensor: CoreTensor, stream: Option<RawStream>) -> Result<usize> {
    let stream = stream.unwrap_or_else(|| raw_stream::default(tensor.device()));
    let exported = dlpack::export::<DLManagedTensorVersioned>(tensor, &Request { stream, ..Request::default() })?;
    Ok(exported.into_raw().expose_provenance())
}

/// Imports the struct at an address.
///
/// # Safety
/// As for [`dlpack::import_on`].
pub(crate) unsafe fn import(address: Address, stream: Option<RawStream>) -> Result<CoreTensor> {
    // SAFETY: the caller's contract.
    Ok(unsafe { dlpack::import_on(address.pointer::<DLManagedTensorVersioned>(), stream) }?)
}
