//! The function table that this library offers to others: `Tensor.__dlpack_c_exchange_api__` (DLPack 1.3,
//! `DLPackExchangeAPI`).
//!
//! None of its functions makes the host wait. The stream that it names is the legacy default stream: exported data is ready
//! for work queued there, and imported data is taken to be queued there.
//!
//! Functions that take or make Python objects are called by threads that are attached to the interpreter; the other two by
//! any thread.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use devexchange_core::abi::dlpack::{
    DLDeviceType, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader, DLTensor,
};
use devexchange_core::dlpack::{self, Owned, Request, VERSION};
use devexchange_core::{Device, DeviceType, Error as CoreError, Flags, Tensor as CoreTensor, TensorDesc};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::dlpack::capsule;
use crate::order::raw_stream;
use crate::python::error::{Error, Result, builtin, refuse, wrong_type};
use crate::python::{interpreter, quick};
use crate::tensor::{Tensor, type_object};

/// A table that never changes.
#[repr(transparent)]
struct Table(DLPackExchangeAPI);
// SAFETY: nothing in the table is written, and its one pointer is NULL.
unsafe impl Sync for Table {}

static TABLE: Table = Table(DLPackExchangeAPI {
    header: DLPackExchangeAPIHeader { version: VERSION, prev_api: std::ptr::null_mut() },
    managed_tensor_allocator: Some(allocate),
    managed_tensor_from_py_object_no_sync: Some(share),
    managed_tensor_to_py_object_no_sync: Some(take),
    dltensor_from_py_object_no_sync: Some(borrow),
    current_work_stream: Some(work_stream),
});

/// The table, in its capsule.
pub(crate) fn capsule(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    capsule::of_table(py, &TABLE.0)
}

/// Runs `work` as a function of the table. Returns 0, or -1 after passing the error to `tell`.
fn answer(work: impl FnOnce() -> Result<()>, tell: impl FnOnce(Error)) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(work));
    match done.unwrap_or_else(|payload| Err(Error::Refused(CoreError::panicked(payload)))) {
        Ok(()) => 0,
        Err(error) => {
            tell(error);
            -1
        }
    }
}

fn raise(error: Error) {
    // SAFETY: the contract of the table: attached.
    quick::raise(unsafe { Python::assume_attached() }, error);
}

/// Like [`raise`], but on any thread. A thread that cannot enter the interpreter has no use for an exception.
fn raise_anywhere(error: Error) {
    let _ = interpreter::enter(|py| error.raised(py).restore(py));
}

/// Checks an argument that must not be NULL.
fn given<T>(pointer: *mut T, name: &str) -> Result<NonNull<T>> {
    match NonNull::new(pointer) {
        Some(pointer) => Ok(pointer),
        None => refuse!(DEVX_NULL_ARGUMENT, "{name} is NULL"),
    }
}

/// Checks that an object is one of our tensors.
///
/// # Safety
/// `object` is NULL or a borrowed Python object, and the caller is attached.
unsafe fn ours<'py>(object: *mut c_void) -> Result<Bound<'py, Tensor>> {
    let object = given(object, "py_object")?.cast::<ffi::PyObject>();
    // SAFETY: the caller's contract.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: as above.
    let object = unsafe { Bound::from_borrowed_ptr(py, object.as_ptr()) };
    match object.cast_into::<Tensor>() {
        Ok(tensor) => Ok(tensor),
        Err(error) => wrong_type!("py_object is a {}, not a devexchange.Tensor", error.into_inner().get_type()),
    }
}

unsafe extern "C" fn share(object: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int {
    let work = || {
        let out = given(out, "out")?;
        // SAFETY: the contract of the table.
        let object = unsafe { ours(object) }?;
        let exported = match object.get().share_on_host(object.py(), VERSION) {
            Some(shared) => shared,
            None => exported(object.get().get()?)?,
        };
        // SAFETY: room for an address, by the contract of the table.
        unsafe { out.write(exported.into_raw()) };
        Ok(())
    };
    answer(work, raise)
}

unsafe extern "C" fn borrow(object: *mut c_void, out: *mut DLTensor) -> c_int {
    let work = || {
        let out = given(out, "out")?;
        // SAFETY: the contract of the table.
        let tensor = unsafe { ours(object) }?.get().get()?;
        let borrowed = dlpack::borrow(&tensor, raw_stream::default(tensor.device()))?;
        // SAFETY: room for a tensor, by the contract of the table.
        unsafe { out.write(borrowed) };
        Ok(())
    };
    answer(work, raise)
}

/// Makes an object of a tensor. On failure the tensor still belongs to the caller.
unsafe extern "C" fn take(managed: *mut DLManagedTensorVersioned, out: *mut *mut c_void) -> c_int {
    let work = || {
        let (managed, out) = (given(managed, "tensor")?, given(out, "out_py_object")?);
        // SAFETY: the contract of the table: attached.
        let py = unsafe { Python::assume_attached() };
        // The object comes first: making it may fail, and the tensor cannot be given back once it was taken.
        let object = type_object::empty(py)?;
        // SAFETY: the caller passes a tensor that it owns; work on it was queued on the stream that this table names.
        let tensor = unsafe { dlpack::import(managed.as_ptr()) }?;
        // SAFETY: the object was made just now, so nobody else has it.
        unsafe { object.get().fill_alone(tensor) };
        // SAFETY: room for an address, by the contract of the table.
        unsafe { out.write(object.into_ptr().cast()) };
        Ok(())
    };
    answer(work, raise)
}

/// Names the legacy default stream. Any thread may call this.
unsafe extern "C" fn work_stream(kind: DLDeviceType, id: i32, out: *mut *mut c_void) -> c_int {
    let work = || {
        let out = given(out, "out_current_stream")?;
        let device = Device::new(DeviceType(kind), id.into())?;
        // NULL is for devices without streams.
        let stream = raw_stream::default(device).value().max(0) as usize;
        // SAFETY: room for an address, by the contract of the table.
        unsafe { out.write(std::ptr::without_provenance_mut(stream)) };
        Ok(())
    };
    answer(work, raise_anywhere)
}

/// Exports a tensor, ready for work on the stream that the table names.
fn exported(tensor: CoreTensor) -> Result<Owned<DLManagedTensorVersioned>> {
    let request = Request { stream: raw_stream::default(tensor.device()), ..Request::default() };
    Ok(dlpack::export(tensor, &request)?)
}

type SetError = Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char)>;

/// Allocates a tensor like a prototype. Any thread may call this, so errors go to `set_error`.
unsafe extern "C" fn allocate(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: SetError,
) -> c_int {
    let work = || {
        let (prototype, out) = (given(prototype, "prototype")?, given(out, "out")?);
        // SAFETY: the contract of the table.
        let made = new_like(unsafe { prototype.as_ref() })?;
        // SAFETY: room for an address, by the contract of the table.
        unsafe { out.write(made) };
        Ok(())
    };
    answer(work, |error| {
        let (kind, text) = in_words(&error);
        if let Some(set_error) = set_error {
            // SAFETY: the contract of the table; both texts live during the call.
            unsafe { set_error(error_ctx, kind.as_ptr(), text.as_ptr()) };
        }
    })
}

/// The kind and text of an error, made without Python.
fn in_words(error: &Error) -> (&'static CStr, CString) {
    match error {
        Error::Refused(error) => (builtin(error.status()), CString::new(error.message()).unwrap_or_default()),
        Error::Python(_) => (c"RuntimeError", CString::default()),
    }
}

/// Allocates a tensor of the prototype's type, shape and device; nothing else of the prototype is used.
fn new_like(prototype: &DLTensor) -> Result<*mut DLManagedTensorVersioned> {
    let wanted = DLTensor { data: std::ptr::null_mut(), strides: std::ptr::null_mut(), byte_offset: 0, ..*prototype };
    // SAFETY: a prototype has `ndim` extents.
    let TensorDesc { device, dtype, shape, .. } = unsafe { dlpack::describe(&wanted, Flags::default()) }?;
    let tensor = CoreTensor::allocate(device, dtype, shape, device.legacy_stream())?;
    Ok(exported(tensor)?.into_raw())
}
