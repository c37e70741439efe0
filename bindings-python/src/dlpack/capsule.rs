//! Capsules around the structs of DLPack. The destructor gives up a tensor that nobody took. It may run while an exception
//! propagates, and puts that aside.

use core::ffi::CStr;
use std::ptr::NonNull;

use devexchange_core::abi::dlpack::{
    DLManagedTensor, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader,
};
use devexchange_core::dlpack::{self, Managed, Owned};
use devexchange_core::{RawStream, Tensor};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::aside::Aside;
use crate::python::capsule::{self, Claim, is_named, named, surely_named};
use crate::python::error::{Result, refuse, wrong_type};

// ---- tables, which nobody owns ----

const TABLE: &CStr = c"dlpack_exchange_api";

/// A capsule around a function table.
pub(crate) fn of_table<'py>(py: Python<'py>, table: &'static DLPackExchangeAPI) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the table is static, so there is nothing to give up.
    unsafe { capsule::new(py, std::ptr::from_ref(table).cast_mut().cast(), TABLE, None) }
}

/// The function table in a capsule; `None` if the object is not a capsule of that name.
pub(crate) fn table_in(capsule: &Bound<'_, PyAny>) -> Option<NonNull<DLPackExchangeAPIHeader>> {
    if !is_named(capsule, TABLE) {
        return None;
    }
    // SAFETY: attached, and a capsule of this name.
    NonNull::new(unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), TABLE.as_ptr()) }.cast())
}

// ---- tensors: the struct is the producer's, its deleter frees it; a consumer renames the capsule ----

/// A struct of DLPack, with the names of its capsules.
pub(crate) trait DlpackStruct: Managed + 'static {
    const NAME: &'static CStr;
    const USED: &'static CStr;
}

impl DlpackStruct for DLManagedTensorVersioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    const USED: &'static CStr = c"used_dltensor_versioned";
}

impl DlpackStruct for DLManagedTensor {
    const NAME: &'static CStr = c"dltensor";
    const USED: &'static CStr = c"used_dltensor";
}

/// Makes a capsule with a tensor, for a consumer.
pub(crate) fn give<M: DlpackStruct>(py: Python<'_>, tensor: Owned<M>) -> Result<Bound<'_, PyAny>> {
    // SAFETY: a new reference, or NULL with an exception.
    Ok(unsafe { Bound::from_owned_ptr_or_err(py, give_quickly(py, tensor)) }?)
}

/// Like [`give`], but without a `PyErr`: a new reference, or NULL with an exception.
#[inline]
pub(crate) fn give_quickly<M: DlpackStruct>(py: Python<'_>, tensor: Owned<M>) -> *mut ffi::PyObject {
    let raw = tensor.into_raw();
    // SAFETY: attached; the name lives for ever, and the destructor is that of this struct.
    let capsule = unsafe { ffi::PyCapsule_New(raw.cast(), M::NAME.as_ptr(), Some(drop_tensor::<M>)) };
    if capsule.is_null()
        && let Some(raw) = NonNull::new(raw)
    {
        let _aside = Aside::new(py);
        // SAFETY: the tensor was exported above, and nobody took it.
        drop(unsafe { Owned::from_raw(raw) });
    }
    capsule
}

unsafe extern "C" fn drop_tensor<M: DlpackStruct>(capsule: *mut ffi::PyObject) {
    // SAFETY: a thread that runs a destructor is attached. The name says that nobody took the tensor.
    if unsafe { ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) } == 1 {
        // SAFETY: as above.
        let _aside = Aside::new(unsafe { Python::assume_attached() });
        // SAFETY: attached, and of this name.
        let raw = unsafe { ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()) };
        // SAFETY: the capsule owns the tensor, and is gone after this.
        drop(NonNull::new(raw.cast::<M>()).map(|raw| unsafe { Owned::from_raw(raw) }));
    }
}

/// Takes the tensor out of a capsule of either name; its producer was given `stream` in the request. If that fails, the
/// capsule is unchanged and still owns the tensor.
pub(crate) fn take(capsule: &Bound<'_, PyAny>, stream: Option<RawStream>) -> Result<Tensor> {
    if let Some(tensor) = take_as::<DLManagedTensorVersioned>(capsule, named, stream)? {
        return Ok(tensor);
    }
    if let Some(tensor) = take_as::<DLManagedTensor>(capsule, named, stream)? {
        return Ok(tensor);
    }
    if is_named(capsule, DLManagedTensorVersioned::USED) || is_named(capsule, DLManagedTensor::USED) {
        return refuse!(DEVX_RELEASED, "the capsule is used: its tensor was taken already");
    }
    wrong_type!("__dlpack__ gave {capsule}: not a capsule with the name dltensor_versioned or dltensor")
}

/// Like [`take`], but only for a valid capsule of DLPack 1; otherwise `None`.
#[inline]
pub(crate) fn take_quickly(capsule: &Bound<'_, PyAny>) -> Option<Tensor> {
    take_as::<DLManagedTensorVersioned>(capsule, surely_named, None).ok().flatten()
}

#[inline]
fn take_as<M: DlpackStruct>(
    capsule: &Bound<'_, PyAny>,
    find: impl FnOnce(&Bound<'_, PyAny>, &CStr) -> Option<*mut M>,
    stream: Option<RawStream>,
) -> devexchange_core::Result<Option<Tensor>> {
    let Some(mut claim) = Claim::new(capsule, find, M::NAME, M::USED) else { return Ok(None) };
    // SAFETY: a capsule of this name owns a valid tensor, which this call has claimed; its producer was given this stream.
    let tensor = unsafe { dlpack::import_on(claim.pointer, stream) }?;
    claim.taken();
    Ok(Some(tensor))
}
