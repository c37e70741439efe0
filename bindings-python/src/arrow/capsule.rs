//! Capsules around the structs of Arrow (Arrow PyCapsule interface). The destructor releases a struct that nobody took. It
//! may run while an exception propagates, and puts that aside.

use core::ffi::CStr;

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::arrow_device_stream::ArrowDeviceArrayStream;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::arrow;
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::aside::Aside;
use crate::python::capsule::{self, Claim, is_named, named};
use crate::python::error::{Result, refuse, wrong_type};
use crate::python::waiting;

/// A struct of Arrow, with the name of its capsule (Arrow PyCapsule interface).
pub(super) trait ArrowStruct: Sized + 'static {
    const NAME: &'static CStr;
    /// Releases the struct, unless it was released or moved from.
    ///
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

/// Releases a stream, detached from the interpreter because its producer may wait for threads that are in Python.
///
/// # Safety
/// `release` may be called with `this`.
unsafe fn waiting<T>(this: *mut T, release: unsafe fn(*mut T)) {
    // SAFETY: the caller's contract; a thread that runs a capsule's destructor is attached.
    waiting::detached(unsafe { Python::assume_attached() }, this, |this| unsafe { release(this) });
}

/// A capsule around a struct that `fill` writes to the given address.
pub(super) fn filled<T: ArrowStruct>(
    py: Python<'_>,
    fill: impl FnOnce(*mut T) -> Result<()>,
) -> Result<Bound<'_, PyAny>> {
    // SAFETY: attached. Python's memory is aligned for every type of C.
    let raw = unsafe { ffi::PyMem_Malloc(size_of::<T>()) }.cast::<T>();
    if raw.is_null() {
        return Err(PyMemoryError::new_err(()).into());
    }
    // SAFETY: there is room for one struct; all zeros is a released struct.
    unsafe { raw.write_bytes(0, 1) };
    // SAFETY: the destructor is that of this struct.
    match unsafe { capsule::new(py, raw.cast(), T::NAME, Some(drop_struct::<T>)) } {
        Ok(capsule) => fill(raw).map(|()| capsule),
        Err(error) => {
            // SAFETY: attached; the memory was allocated above, and nobody else has it.
            unsafe { ffi::PyMem_Free(raw.cast()) };
            Err(error.into())
        }
    }
}

unsafe extern "C" fn drop_struct<T: ArrowStruct>(capsule: *mut ffi::PyObject) {
    // SAFETY: a thread that runs a destructor is attached.
    let py = unsafe { Python::assume_attached() };
    let _aside = Aside::new(py);
    // SAFETY: attached; our capsules keep their names.
    let raw = unsafe { ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()) }.cast::<T>();
    if !raw.is_null() {
        // SAFETY: `filled` made the struct, and nobody else uses it any more.
        unsafe { T::release(raw) };
        // SAFETY: attached, and as above.
        unsafe { ffi::PyMem_Free(raw.cast()) };
    }
}

const TAKING: &CStr = c"devexchange is taking this";

/// Claims the struct in somebody else's capsule, to be moved out of it or left as it is.
pub(super) fn claim<'a, 'py, T: ArrowStruct>(capsule: &'a Bound<'py, PyAny>) -> Result<Claim<'a, 'py, T>> {
    match Claim::new(capsule, named, T::NAME, TAKING) {
        Some(claim) => Ok(claim),
        None if is_named(capsule, TAKING) => refuse!(DEVX_BUSY, "another thread is taking what the capsule holds"),
        None => wrong_type!("{capsule} is not a capsule with the name {:?}", T::NAME),
    }
}
