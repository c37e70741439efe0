//! Tensors of producers whose type has a function table (`__dlpack_c_exchange_api__`, DLPack 1.3): a struct instead of a
//! capsule, without a method call. The table does not synchronise, so the order is established here.

use core::ffi::{c_int, c_void};
use std::ptr::NonNull;

use devexchange_core::abi::dlpack::{
    DLDeviceType, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackVersion, kDLComplex,
};
use devexchange_core::dlpack::Owned;
use devexchange_core::{Device, RawStream, Tensor as CoreTensor};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::dlpack::wanted::Wanted;
use crate::python::aside::Aside;
use crate::python::error::{Error, Result, refuse};
use crate::python::{ask, call};

/// Makes an object of a tensor, which the object then owns.
pub(crate) type ToObject = unsafe extern "C" fn(*mut DLManagedTensorVersioned, *mut *mut c_void) -> c_int;

/// The parts of a function table that are used here. Its functions live as long as the process.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    from_object: unsafe extern "C" fn(*mut c_void, *mut *mut DLManagedTensorVersioned) -> c_int,
    work_stream: unsafe extern "C" fn(DLDeviceType, i32, *mut *mut c_void) -> c_int,
    /// For consumers.
    pub(crate) to_object: Option<ToObject>,
    pub(crate) version: DLPackVersion,
}

/// Whether an object is marked, so that its memory must not be taken as it is. PyTorch only marks a tensor that is conjugated
/// ([`is_conjugated`]), negated, or part of a gradient graph. Its table hands out the memory as if there were no mark. Its
/// `__dlpack__` refuses marked tensors, except for negated ones, which are refused here.
pub(crate) fn is_marked(obj: &Bound<'_, PyAny>) -> Result<bool> {
    let py = obj.py();
    let Some(gradient) = obj.getattr_opt(intern!(py, "requires_grad"))? else { return Ok(false) };
    if is(obj, intern!(py, "is_neg"))? {
        return refuse!(DEVX_COPY_REQUIRED, "the negative bit of the tensor is set: call resolve_neg");
    }
    Ok(gradient.is_truthy()?)
}

/// Whether an object is marked or did not answer; [`is_marked`] then has to find out.
pub(crate) fn may_be_marked(obj: &Bound<'_, PyAny>) -> bool {
    let py = obj.py();
    let no = |answer: Option<Bound<'_, PyAny>>| answer.is_some_and(|answer| answer.is(PyBool::new(py, false)));
    !no(ask::attribute(obj, intern!(py, "requires_grad"))) || !no(ask::answer(obj, intern!(py, "is_neg")))
}

/// Whether a tensor is marked as conjugated. Only complex tensors can be, so others are not asked.
pub(crate) fn is_conjugated(obj: &Bound<'_, PyAny>, taken: &CoreTensor) -> Result<bool> {
    Ok(may_be_conjugated(taken) && is(obj, intern!(obj.py(), "is_conj"))?)
}

pub(crate) fn may_be_conjugated(taken: &CoreTensor) -> bool {
    taken.dtype().to_dlpack().code == kDLComplex
}

/// The answer of a method; false if the object has no such method.
fn is(obj: &Bound<'_, PyAny>, question: &Bound<'_, PyString>) -> Result<bool> {
    match call::call_if_there(obj, question)? {
        Some(answer) => Ok(answer.is_truthy()?),
        None => Ok(false),
    }
}

impl Table {
    /// Reads a table; `None` if it lacks a required function.
    pub(crate) fn new(table: &DLPackExchangeAPI) -> Option<Self> {
        Some(Self {
            from_object: table.managed_tensor_from_py_object_no_sync?,
            to_object: table.managed_tensor_to_py_object_no_sync,
            work_stream: table.current_work_stream?,
            version: table.header.version,
        })
    }

    /// Takes the tensor of an object, ready for work on the wanted stream. The inner error is that of a function of the
    /// table: then nothing was taken, and `__dlpack__` may still provide the tensor.
    pub(crate) fn take(&self, obj: &Bound<'_, PyAny>, wanted: &Wanted) -> Result<Result<CoreTensor>> {
        match self.tensor_of(obj) {
            Ok(tensor) => self.in_order(obj.py(), tensor.import()?, wanted),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Makes a tensor that was just taken ready for work on the wanted stream.
    pub(crate) fn in_order(
        &self,
        py: Python<'_>,
        mut tensor: CoreTensor,
        wanted: &Wanted,
    ) -> Result<Result<CoreTensor>> {
        let device = tensor.device();
        let stream = wanted.stream_for(device)?.filter(|&value| value != RawStream::NO_SYNC);
        if let Some(consumer) = stream.map(|value| tensor.stream(value)).transpose()? {
            let producer = match self.work_stream_of(py, device) {
                Ok(value) => tensor.stream(value)?,
                Err(error) => return Ok(Err(error)),
            };
            // SAFETY: the producer says that it works on that stream.
            unsafe { tensor.produced_on(producer) }?;
            tensor.wait(consumer)?;
            // SAFETY: the stream has just been made to wait for the data.
            unsafe { tensor.produced_on(consumer) }?;
        }
        Ok(Ok(tensor))
    }

    /// Takes the tensor of an object, without an order yet and maybe conjugated. `None` if the call fails, or if its tensor
    /// is refused and given back.
    pub(crate) fn take_quickly(&self, obj: &Bound<'_, PyAny>) -> Option<CoreTensor> {
        let mut out = std::ptr::null_mut();
        // SAFETY: attached, an object of the type that has the table, and room for an address.
        let code = unsafe { (self.from_object)(obj.as_ptr().cast(), &raw mut out) };
        // SAFETY: the producer gave it to us.
        let taken = NonNull::new(out).filter(|_| code == 0).map(|tensor| unsafe { Owned::from_raw(tensor) });
        if ask::has_raised(obj.py()) {
            let _aside = Aside::if_raised(obj.py());
            drop(taken);
            return None;
        }
        taken?.import().ok()
    }

    /// Takes the tensor of an object. It is ours from now on; dropping it calls its deleter.
    fn tensor_of(&self, obj: &Bound<'_, PyAny>) -> Result<Owned<DLManagedTensorVersioned>> {
        let mut out = std::ptr::null_mut();
        // SAFETY: attached, an object of the type that has the table, and room for an address.
        let code = unsafe { (self.from_object)(obj.as_ptr().cast(), &raw mut out) };
        // A failed call leaves no valid tensor there.
        let taken = NonNull::new(out).filter(|_| code == 0);
        // SAFETY: the producer gave the tensor to us, and its data is touched only on a stream that waits for it.
        let taken = taken.map(|tensor| unsafe { Owned::from_raw(tensor) });
        check(obj.py(), code, "managed_tensor_from_py_object_no_sync")?;
        match taken {
            Some(tensor) => Ok(tensor),
            None => refuse!(DEVX_CALLBACK, "managed_tensor_from_py_object_no_sync gave NULL for a tensor"),
        }
    }

    /// The stream that the library queues its work on: the number that the protocols use.
    pub(crate) fn work_stream_of(&self, py: Python<'_>, device: Device) -> Result<RawStream> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: attached, and there is room for an address.
        let code = unsafe { (self.work_stream)(device.kind.0, device.id, &raw mut stream) };
        check(py, code, "current_work_stream")?;
        // NULL is a default stream, without saying which. The legacy one waits for every other default stream.
        if stream.is_null() {
            return Ok(RawStream::LEGACY);
        }
        // SAFETY: a library keeps the stream that it works on.
        Ok(unsafe { RawStream::new(stream.addr() as i64) })
    }
}

/// Checks the result of a function of a table.
#[inline]
pub(crate) fn check(py: Python<'_>, code: c_int, function: &str) -> Result<()> {
    if code == 0 && !ask::is_raised(py) {
        return Ok(());
    }
    match (PyErr::take(py), code) {
        (Some(error), _) => Err(Error::Python(error)),
        (None, code) => refuse!(DEVX_CALLBACK, "{function} returned {code} without an exception"),
    }
}
