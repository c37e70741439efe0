//! PyCapsules around the structs of DLPack and Arrow: how Python libraries hand them to each other. A destructor
//! gives up what nobody took. It may run while an exception is on its way, which it puts aside.

use core::ffi::{CStr, c_void};
use std::ptr::NonNull;

use devexchange_core::Tensor;
use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::arrow_device_stream::ArrowDeviceArrayStream;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::abi::dlpack::{
    DLManagedTensor, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader,
};
use devexchange_core::arrow;
use devexchange_core::dlpack::{self, Managed, Owned};
use devexchange_core::runtime::cuda::RawStream;
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;

use crate::python::aside::Aside;
use crate::python::error::{Result, refuse, wrong_type};
use crate::python::{ask, waiting};

/// Whether it is a capsule of this name.
fn is_named(capsule: &Bound<'_, PyAny>, name: &CStr) -> bool {
    // SAFETY: attached; any object may be asked.
    unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1 }
}

/// What a thing holds if it is a capsule of this name.
#[inline]
fn named<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> Option<*mut T> {
    // SAFETY: any object may be asked.
    if unsafe { ffi::PyCapsule_CheckExact(capsule.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: attached, and a capsule.
    let own = unsafe { ffi::PyCapsule_GetName(capsule.as_ptr()) };
    // SAFETY: a capsule's name is NULL or a text that lives as long as the capsule.
    if own.is_null() || unsafe { CStr::from_ptr(own) } != name {
        return None;
    }
    // SAFETY: as above; the name is its own.
    Some(unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), own) }.cast())
}

/// As [`named`], for what hardly ever is something else: then an exception is made and forgotten.
#[inline]
fn surely_named<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> Option<*mut T> {
    // SAFETY: attached; any object may be asked.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
    if pointer.is_null() {
        ask::has_raised(capsule.py());
        return None;
    }
    Some(pointer.cast())
}

/// What a capsule holds, for this call only: meanwhile it has another name, under which nobody else finds it, and
/// afterwards its own again.
pub(crate) struct Claim<'a, 'py, T> {
    capsule: &'a Bound<'py, PyAny>,
    pub(crate) pointer: *mut T,
    meanwhile: &'static CStr,
    afterwards: &'static CStr,
}

impl<'a, 'py, T> Claim<'a, 'py, T> {
    /// Of several threads that try it only one finds the name, with `find`; `None` for the others, and for other things.
    #[inline]
    fn new(
        capsule: &'a Bound<'py, PyAny>,
        find: impl FnOnce(&Bound<'py, PyAny>, &CStr) -> Option<*mut T>,
        name: &'static CStr,
        meanwhile: &'static CStr,
    ) -> Option<Self> {
        with_critical_section(capsule, || {
            let pointer = find(capsule, name)?;
            rename(capsule, meanwhile);
            Some(Self { capsule, pointer, meanwhile, afterwards: name })
        })
    }
}

impl<T> Drop for Claim<'_, '_, T> {
    fn drop(&mut self) {
        if self.afterwards != self.meanwhile {
            rename(self.capsule, self.afterwards);
        }
    }
}

/// Gives a capsule another name, which fails only for what is no capsule.
fn rename(capsule: &Bound<'_, PyAny>, name: &'static CStr) {
    // SAFETY: attached; the name lives for ever.
    unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) };
}

/// # Safety
/// `destructor` is right for a capsule of this name around `pointer`.
unsafe fn new<'py>(
    py: Python<'py>,
    pointer: *mut c_void,
    name: &'static CStr,
    destructor: Option<ffi::PyCapsule_Destructor>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: attached; the name lives for ever.
    let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), destructor) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

// ---- DLPack: tables that nobody owns ----

const TABLE: &CStr = c"dlpack_exchange_api";

/// A capsule around a function table.
pub(crate) fn of_table<'py>(py: Python<'py>, table: &'static DLPackExchangeAPI) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: nothing is to be given up.
    unsafe { new(py, std::ptr::from_ref(table).cast_mut().cast(), TABLE, None) }
}

/// The function table in a capsule; none if this is no capsule of that name.
pub(crate) fn table_in(capsule: &Bound<'_, PyAny>) -> Option<NonNull<DLPackExchangeAPIHeader>> {
    if !is_named(capsule, TABLE) {
        return None;
    }
    // SAFETY: attached, and a capsule of this name.
    NonNull::new(unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), TABLE.as_ptr()) }.cast())
}

// ---- DLPack: the struct is the producer's, its deleter frees it; a consumer renames the capsule ----

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

/// A capsule for a consumer of a tensor.
pub(crate) fn give<M: DlpackStruct>(py: Python<'_>, tensor: Owned<M>) -> Result<Bound<'_, PyAny>> {
    // SAFETY: a new reference, or NULL with an exception.
    Ok(unsafe { Bound::from_owned_ptr_or_err(py, give_quickly(py, tensor)) }?)
}

/// As [`give`], without a `PyErr`: a new reference, or NULL with an exception.
#[inline]
pub(crate) fn give_quickly<M: DlpackStruct>(py: Python<'_>, tensor: Owned<M>) -> *mut ffi::PyObject {
    let raw = tensor.into_raw();
    // SAFETY: attached; the name lives for ever, and the destructor is that of this struct.
    let capsule = unsafe { ffi::PyCapsule_New(raw.cast(), M::NAME.as_ptr(), Some(drop_tensor::<M>)) };
    if capsule.is_null()
        && let Some(raw) = NonNull::new(raw)
    {
        let _aside = Aside::new(py);
        // SAFETY: exported above, and nobody took it.
        drop(unsafe { Owned::from_raw(raw) });
    }
    capsule
}

unsafe extern "C" fn drop_tensor<M: DlpackStruct>(capsule: *mut ffi::PyObject) {
    // SAFETY: a destructor is called by who is attached. The name says that nobody took the tensor.
    if unsafe { ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) } == 1 {
        // SAFETY: as above.
        let _aside = Aside::new(unsafe { Python::assume_attached() });
        // SAFETY: attached, and of this name.
        let raw = unsafe { ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()) };
        // SAFETY: the capsule owns the tensor, and is gone after this.
        drop(NonNull::new(raw.cast::<M>()).map(|raw| unsafe { Owned::from_raw(raw) }));
    }
}

/// Takes the tensor out of a capsule of either name, whose producer was asked for it with `stream`. If that fails, the
/// capsule is as it was, and still owns the tensor.
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

/// As [`take`], of a capsule of DLPack 1, where all is as it should be; otherwise none.
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
    // SAFETY: what a capsule of this name owns, and owns no more; its producer was asked for it with this stream.
    let tensor = unsafe { dlpack::import_on(claim.pointer, stream) }?;
    claim.afterwards = M::USED;
    Ok(Some(tensor))
}

/// A struct of Arrow, with the name of its capsule (Arrow PyCapsule interface).
pub(crate) trait ArrowStruct: Sized + 'static {
    const NAME: &'static CStr;
    /// # Safety
    /// `this` is valid, and nobody else uses it.
    unsafe fn release(this: *mut Self);
}

macro_rules! arrow_structs {
    ($($Struct:ident = $name:literal: |$this:ident| $release:expr;)*) => {$(
        impl ArrowStruct for $Struct {
            const NAME: &'static CStr = $name;
            unsafe fn release($this: *mut Self) {
                // SAFETY: the caller's contract.
                unsafe { $release }
            }
        }
    )*};
}
arrow_structs! {
    ArrowSchema = c"arrow_schema": |this| arrow::release_schema(this);
    ArrowArray = c"arrow_array": |this| arrow::release_array(this);
    // A device array begins with its array.
    ArrowDeviceArray = c"arrow_device_array": |this| arrow::release_array(this.cast());
    ArrowArrayStream = c"arrow_array_stream": |this| waiting(this, arrow::release_stream);
    ArrowDeviceArrayStream = c"arrow_device_array_stream": |this| waiting(this, arrow::release_device_stream);
}

/// Releases a stream, whose producer may wait for threads that are in Python.
///
/// # Safety
/// `release` may be called with `this`.
unsafe fn waiting<T>(this: *mut T, release: unsafe fn(*mut T)) {
    // SAFETY: the caller's contract; a capsule's destructor is called by who is attached.
    waiting::detached(unsafe { Python::assume_attached() }, this, |this| unsafe { release(this) });
}

/// A capsule around a struct that `fill` writes to the address that it gets.
pub(crate) fn filled<T: ArrowStruct>(
    py: Python<'_>,
    fill: impl FnOnce(*mut T) -> Result<()>,
) -> Result<Bound<'_, PyAny>> {
    // SAFETY: attached. Python's memory is aligned for every type of C.
    let raw = unsafe { ffi::PyMem_Malloc(size_of::<T>()) }.cast::<T>();
    if raw.is_null() {
        return Err(PyMemoryError::new_err(()).into());
    }
    // SAFETY: there is room for one; all zero is a released struct.
    unsafe { raw.write_bytes(0, 1) };
    // SAFETY: the destructor is that of this struct.
    match unsafe { new(py, raw.cast(), T::NAME, Some(drop_struct::<T>)) } {
        Ok(capsule) => fill(raw).map(|()| capsule),
        Err(error) => {
            // SAFETY: attached; made above, and nobody has it.
            unsafe { ffi::PyMem_Free(raw.cast()) };
            Err(error.into())
        }
    }
}

unsafe extern "C" fn drop_struct<T: ArrowStruct>(capsule: *mut ffi::PyObject) {
    // SAFETY: a destructor is called by who is attached.
    let py = unsafe { Python::assume_attached() };
    let _aside = Aside::new(py);
    // SAFETY: attached; a capsule of ours keeps its name.
    let raw = unsafe { ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()) }.cast::<T>();
    if !raw.is_null() {
        // SAFETY: made by `filled`, and nobody else uses it any more.
        unsafe { T::release(raw) };
        // SAFETY: attached, and as above.
        unsafe { ffi::PyMem_Free(raw.cast()) };
    }
}

const TAKING: &CStr = c"devexchange is taking this";

/// The struct in a capsule of somebody else's, to be moved out of it or left as it is.
pub(crate) fn claim<'a, 'py, T: ArrowStruct>(capsule: &'a Bound<'py, PyAny>) -> Result<Claim<'a, 'py, T>> {
    match Claim::new(capsule, named, T::NAME, TAKING) {
        Some(claim) => Ok(claim),
        None if is_named(capsule, TAKING) => refuse!(DEVX_BUSY, "another thread is taking what the capsule holds"),
        None => wrong_type!("{capsule} is not a capsule with the name {:?}", T::NAME),
    }
}
