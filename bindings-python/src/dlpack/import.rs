//! Imports of tensors from objects with `__dlpack__` (array API), or whose type has a function table (DLPack 1.3).

use devexchange_core::abi::types::{DEVX_DEVICE, DEVX_INVALID_ARGUMENT};
use devexchange_core::{Device, DeviceType, Flags, RawStream, Tensor as CoreTensor};
use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::dlpack::offer::Offer;
use crate::dlpack::request::{request, request_quickly};
use crate::dlpack::wanted::Wanted;
use crate::dlpack::{capsule, exchange};
use crate::order::raw_stream;
use crate::python::error::{Error, Result, refuse, wrong_type};
use crate::python::{call, quick};
use crate::{copy, device};

/// Imports a tensor as wanted: a view of the object's memory, or a copy where that is needed.
pub(crate) fn import(obj: &Bound<'_, PyAny>, wanted: &Wanted) -> Result<CoreTensor> {
    let _hold = wanted.stream.map(raw_stream::hold).transpose()?;
    let mut by_producer = false;
    let tensor = match take(obj, wanted) {
        Err(first) if wanted.copy == Some(true) && only_producer_copies(obj.py(), &first) => {
            by_producer = true;
            match by_capsule(obj, false, &Wanted { by_producer, ..*wanted }) {
                // It is refused, copied or not.
                Err(second) if only_producer_copies(obj.py(), &second) => return Err(first),
                Err(second) => return Err(second.after(first, obj.py())),
                Ok(copied) => copied,
            }
        }
        Err(first) if wanted.allows_host() && is_of_device(&first) => {
            by_producer = true;
            match to_host(obj, wanted) {
                Err(second) if second.is_end(obj.py()) => return Err(second),
                Err(_) => return Err(first),
                Ok(copied) => copied,
            }
        }
        taken => taken?,
    };
    if wanted.copy == Some(false) && tensor.flags().has(Flags::IS_COPIED) {
        return refuse!(DEVX_COPY_REQUIRED, "the producer made a copy, and copy is False");
    }
    let target = wanted.device.unwrap_or(tensor.device());
    let is_copied = by_producer && tensor.flags().has(Flags::IS_COPIED);
    if target != tensor.device() || (wanted.copy == Some(true) && !is_copied) {
        return copy::tensor(obj.py(), &tensor, target, wanted.stream);
    }
    Ok(tensor)
}

/// Whether the error may be about memory that no tensor can describe, so that nobody else can copy it: memory that is not
/// aligned, or whose strides are no whole elements, which the producer refuses itself.
fn only_producer_copies(py: Python<'_>, error: &Error) -> bool {
    match error {
        Error::Refused(refused) => refused.status() == DEVX_INVALID_ARGUMENT,
        Error::Python(raised) => raised.is_instance_of::<PyBufferError>(py),
    }
}

/// Whether the error is about the device, so that the producer may have to bring the elements to the host.
fn is_of_device(error: &Error) -> bool {
    matches!(error, Error::Refused(refused) if refused.status() == DEVX_DEVICE)
}

/// Takes a tensor that its producer brings to the host, from a device that this library has no runtime for (array API,
/// `__dlpack__`: `dl_device`).
fn to_host(obj: &Bound<'_, PyAny>, wanted: &Wanted) -> Result<CoreTensor> {
    from_there(capsule::take(&request(obj, None, wanted.copy, true)?, None)?, Device::CPU)
}

/// Takes a tensor through the function table of its type, or else through `__dlpack__`.
fn take(obj: &Bound<'_, PyAny>, wanted: &Wanted) -> Result<CoreTensor> {
    Offer::with(obj, |offer| {
        let Some(table) = &offer.table else { return by_capsule(obj, offer.on_host, wanted) };
        if offer.marks && exchange::is_marked(obj)? {
            return by_capsule(obj, false, wanted);
        }
        settle(obj, offer.marks, table.take(obj, wanted)?, wanted)
    })
}

/// Decides what to do with the tensor or the error of a function table.
fn settle(obj: &Bound<'_, PyAny>, marks: bool, taken: Result<CoreTensor>, wanted: &Wanted) -> Result<CoreTensor> {
    match taken {
        Ok(tensor) if marks && exchange::is_conjugated(obj, &tensor)? => by_capsule(obj, false, wanted),
        Ok(tensor) => Ok(tensor),
        Err(error) if error.is_end(obj.py()) || !has_method(obj)? => Err(error),
        Err(error) => by_capsule(obj, false, wanted).map_err(|second| second.after(error, obj.py())),
    }
}

/// Imports a tensor for a request without arguments, without a `PyErr`. `None` if that is not possible in the quick way: then
/// nothing was taken, and [`import`] reports why. Also `None` if an exception was raised that has to stay.
#[inline]
pub(crate) fn take_quickly(obj: &Bound<'_, PyAny>) -> Option<CoreTensor> {
    let (table, marks) = match Offer::known(obj.get_type_ptr()) {
        Some(Offer { table: Some(table), marks, .. }) => (*table, *marks),
        Some(Offer { table: None, on_host, .. }) if *on_host || device::is_said_to_be_host(obj) => {
            return quick::or_raise(obj.py(), from_there(capsule::take_quickly(&request_quickly(obj)?)?, Device::CPU));
        }
        Some(_) => return None,
        None => (Offer::table_of_class(&obj.get_type())?, true),
    };
    if marks && exchange::may_be_marked(obj) {
        return None;
    }
    let tensor = table.take_quickly(obj)?;
    if tensor.device() == Device::CPU && !(marks && exchange::may_be_conjugated(&tensor)) {
        return Some(tensor);
    }
    let settled = Python::try_attach(|py| {
        let wanted = Wanted::default();
        settle(obj, marks, table.in_order(py, tensor, &wanted)?, &wanted)
    });
    quick::or_raise(obj.py(), settled?)
}

fn has_method(obj: &Bound<'_, PyAny>) -> Result<bool> {
    let py = obj.py();
    Ok(obj.hasattr(intern!(py, "__dlpack__"))? && obj.hasattr(intern!(py, "__dlpack_device__"))?)
}

/// Takes a tensor through `__dlpack__`. The object is first asked for its device, because the stream for the producer depends
/// on it; `on_host` says that it is known to be the host.
fn by_capsule(obj: &Bound<'_, PyAny>, on_host: bool, wanted: &Wanted) -> Result<CoreTensor> {
    match by_methods(obj, on_host, wanted) {
        Err(Error::Python(error)) if error.is_instance_of::<PyAttributeError>(obj.py()) && !has_method(obj)? => {
            if obj.is_instance_of::<PyCapsule>() {
                return wrong_type!("a capsule is not a producer: the object whose __dlpack__ made it is needed");
            }
            wrong_type!("{} has no __dlpack__ and __dlpack_device__", obj.get_type())
        }
        taken => taken,
    }
}

fn by_methods(obj: &Bound<'_, PyAny>, on_host: bool, wanted: &Wanted) -> Result<CoreTensor> {
    let source = match on_host {
        true => Device::CPU,
        false => device::said(&call::call_method(obj, intern!(obj.py(), "__dlpack_device__"))?)?,
    };
    let wanted_on = wanted.stream_for(source)?;
    // SAFETY: the caller named the stream, and keeps it alive.
    let asked = wanted_on.map(|stream| unsafe { RawStream::new(stream.value()) });
    let (taken, asked) = asked_for(obj, source, asked, wanted.told())?;
    let mut tensor = from_there(taken, source)?;
    // The producer takes the number of a default stream for that of its own device. If the caller named that of another
    // device, or if the producer took no stream, the stream waits for the producer's here.
    let waits = |named: &RawStream| *named != RawStream::NO_SYNC && tensor.device().has_streams();
    if let Some(named) = wanted_on.filter(|_| wanted_on != asked).filter(waits) {
        let consumer = tensor.stream(named)?;
        tensor.wait(consumer)?;
        // SAFETY: the stream has just been made to wait for the data.
        unsafe { tensor.produced_on(consumer) }?;
    }
    Ok(tensor)
}

/// The tensor of a producer that is asked with a stream, and the stream that the producer was given.
///
/// PyTorch takes pinned memory for memory of the CPU, which has no streams ("On CPU […] only `None` is accepted", array API,
/// `__dlpack__`): it refuses the stream, and its struct says CPU. So for pinned memory, what fails with a stream is tried
/// without one.
fn asked_for(
    obj: &Bound<'_, PyAny>,
    source: Device,
    stream: Option<RawStream>,
    copy: Option<bool>,
) -> Result<(CoreTensor, Option<RawStream>)> {
    let ask = |stream| -> Result<_> { Ok((capsule::take(&request(obj, stream, copy, false)?, stream)?, stream)) };
    match ask(stream) {
        Err(first) if stream.is_some() && is_pinned(source) && !first.is_end(obj.py()) => match ask(None) {
            Err(second) if second.is_end(obj.py()) => Err(second),
            asked => asked.map_err(|_| first),
        },
        asked => asked,
    }
}

fn is_pinned(source: Device) -> bool {
    source.kind == DeviceType::CUDA_HOST
}

/// Checks that a tensor is on the device that its object named. The struct of pinned memory may say that it is memory of the
/// CPU, which it is, too.
#[inline(always)]
fn from_there(tensor: CoreTensor, source: Device) -> Result<CoreTensor> {
    if tensor.device() != source && !(is_pinned(source) && tensor.device() == Device::CPU) {
        return refuse!(DEVX_DEVICE, "the tensor is on {}: __dlpack_device__ said {source}", tensor.device());
    }
    Ok(tensor)
}
