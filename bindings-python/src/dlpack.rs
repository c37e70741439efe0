//! Tensors in and out as DLPack (array API, `__dlpack__`, `__dlpack_device__`, `from_dlpack`).

use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned, DLPackVersion};
use devexchange_core::dlpack::{self, Copying, Request, VERSION};
use devexchange_core::order::{self, NO_SYNC, Ready};
use devexchange_core::runtime::cuda::RawStream;
use devexchange_core::{Device, Flags, Tensor as CoreTensor};
use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::offer::Offer;
use crate::order::{raw_stream, stream};
use crate::python::error::{Error, Result, refuse, wrong_type};
use crate::python::{call, queue};
use crate::request::{request, request_quickly};
use crate::tensor_type::New;
use crate::{capsule, device, exchange, quick};

/// Takes a tensor from an object whose type has `__dlpack_c_exchange_api__`, or with `__dlpack__`: a view of the same
/// memory, which is released when the last user of the tensor is gone.
///
/// `device` is where the elements are wanted, a name such as "cpu", "cuda" or "cuda:1", a pair of device type and number
/// (`Device`), or a `torch.device`; by default where they are. `copy` is True for a copy in any case, False for none in any
/// case, None for one where it is needed, which is for another device. On a GPU the data is ready for work on `stream`, or on the
/// legacy default stream (1), which is made to wait for the producer's work; with -1 nothing waits.
///
/// Raises BufferError if the exchange is not possible as asked, TypeError for objects without the protocol,
/// ValueError for what no tensor or stream can be. Then nothing was taken.
#[pyfunction]
#[pyo3(signature = (obj, /, *, device=None, copy=None, stream=None))]
pub(crate) fn from_dlpack(
    obj: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
    stream: Option<&Bound<'_, PyAny>>,
) -> Result<New> {
    queue::drain();
    let device = device.map(device::asked).transpose()?;
    let wanted = Wanted { device, copy, stream: stream::optional(stream)? };
    let tensor = take(obj, &wanted)?;
    if copy == Some(false) && tensor.flags().has(Flags::IS_COPIED) {
        return refuse!(DEVX_COPY_REQUIRED, "the producer made a copy, and copy is False");
    }
    let target = wanted.device.unwrap_or(tensor.device());
    if target != tensor.device() || copy == Some(true) {
        return Ok(New(duplicate(obj.py(), &tensor, target, wanted.stream)?));
    }
    Ok(New(tensor))
}

/// What a caller of `from_dlpack` asks for.
#[derive(Default)]
pub(crate) struct Wanted {
    device: Option<Device>,
    copy: Option<bool>,
    stream: Option<RawStream>,
}

impl Wanted {
    /// The stream that data on `source` is to be ready for: always one where there are streams. Refuses what is not
    /// possible with data that is there.
    pub(crate) fn stream_for(&self, source: Device) -> Result<Option<RawStream>> {
        let target = self.device.unwrap_or(source);
        if target != source && self.copy == Some(false) {
            return refuse!(DEVX_COPY_REQUIRED, "device is {target}: the data is on {source}, and copy is False");
        }
        if source.has_streams() {
            let value = self.stream.unwrap_or(RawStream::LEGACY);
            order::check_stream(source, value.value())?;
            return Ok(Some(value));
        }
        // A stream may still be for a copy to where there are some.
        order::check_stream(target, self.stream.map_or(NO_SYNC, RawStream::value))?;
        Ok(None)
    }
}

/// Takes a tensor by the function table of its type, or else by `__dlpack__`.
fn take(obj: &Bound<'_, PyAny>, wanted: &Wanted) -> Result<CoreTensor> {
    Offer::with(obj, |offer| {
        let Some(table) = &offer.table else { return by_capsule(obj, offer.on_host, wanted) };
        if offer.marks && exchange::is_marked(obj)? {
            return by_capsule(obj, false, wanted);
        }
        settle(obj, offer.marks, table.take(obj, wanted)?, wanted)
    })
}

/// What to do with what a function table gave, or with its error.
fn settle(obj: &Bound<'_, PyAny>, marks: bool, taken: Result<CoreTensor>, wanted: &Wanted) -> Result<CoreTensor> {
    match taken {
        Ok(tensor) if marks && exchange::is_conjugated(obj, &tensor)? => by_capsule(obj, false, wanted),
        Ok(tensor) => Ok(tensor),
        Err(error) if error.is_end(obj.py()) || !has_method(obj)? => Err(error),
        Err(error) => by_capsule(obj, false, wanted).map_err(|second| second.after(error, obj.py())),
    }
}

/// Takes a tensor that nothing special is asked of, and makes no `PyErr` for that. None if it is not as simple as that:
/// nothing was taken then, and [`from_dlpack`] says why; or if something is raised that is to stay so.
#[inline]
pub(crate) fn take_quickly(obj: &Bound<'_, PyAny>) -> Option<CoreTensor> {
    let (table, marks) = match Offer::known(obj.get_type_ptr()) {
        Some(Offer { table: Some(table), marks, .. }) => (*table, *marks),
        Some(Offer { table: None, on_host, .. }) if *on_host || device::is_said_to_be_host(obj) => {
            return quick::or_raise(from_there(capsule::take_quickly(&request_quickly(obj)?)?, Device::CPU));
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
    quick::or_raise(Python::attach(|py| {
        let wanted = Wanted::default();
        settle(obj, marks, table.in_order(py, tensor, &wanted)?, &wanted)
    }))
}

fn has_method(obj: &Bound<'_, PyAny>) -> Result<bool> {
    let py = obj.py();
    Ok(obj.hasattr(intern!(py, "__dlpack__"))? && obj.hasattr(intern!(py, "__dlpack_device__"))?)
}

/// Takes a tensor by way of `__dlpack__`. Where it is, is asked first, because the stream that the producer is given
/// depends on that; `on_host` says that it is known.
fn by_capsule(obj: &Bound<'_, PyAny>, on_host: bool, wanted: &Wanted) -> Result<CoreTensor> {
    match by_methods(obj, on_host, wanted) {
        Err(Error::Python(error)) if error.is_instance_of::<PyAttributeError>(obj.py()) && !has_method(obj)? => {
            wrong_type!("{} has no __dlpack__ and __dlpack_device__", obj.get_type())
        }
        taken => taken,
    }
}

fn by_methods(obj: &Bound<'_, PyAny>, on_host: bool, wanted: &Wanted) -> Result<CoreTensor> {
    let source = match on_host {
        true => Device::CPU,
        false => device::from_python(&call::call_method(obj, intern!(obj.py(), "__dlpack_device__"))?)?,
    };
    let wanted_on = wanted.stream_for(source)?;
    // SAFETY: the stream is the caller's, alive as it was named.
    let asked = wanted_on.map(|stream| unsafe { RawStream::new(stream.value()) });
    let mut tensor = from_there(capsule::take(&request(obj, asked, wanted.copy)?, asked)?, source)?;
    // The producer takes the number of a default stream for that of its own device: one of another device waits for it.
    if let Some(named) = wanted_on.filter(|_| wanted_on != asked) {
        let consumer = tensor.stream(named)?;
        tensor.wait(consumer)?;
        // SAFETY: it has just been made to wait for the data.
        unsafe { tensor.produced_on(consumer) }?;
    }
    Ok(tensor)
}

/// A tensor that has to be where the object said.
#[inline(always)]
fn from_there(tensor: CoreTensor, source: Device) -> Result<CoreTensor> {
    if tensor.device() != source {
        return refuse!(DEVX_DEVICE, "the tensor is on {}: __dlpack_device__ said {source}", tensor.device());
    }
    Ok(tensor)
}

/// A copy on a device, queued on a stream (the legacy default one if none is named), from which on it is ready.
pub(crate) fn duplicate(
    py: Python<'_>,
    tensor: &CoreTensor,
    target: Device,
    stream: Option<RawStream>,
) -> Result<CoreTensor> {
    let value = raw_stream::of_copy(stream);
    let _hold = raw_stream::hold(value)?;
    let copy = py.detach(|| {
        if tensor.device() == Device::CPU && target == Device::CPU {
            return tensor.copy();
        }
        tensor.copy_to(target, tensor.stream_to(target, value)?)
    });
    Ok(copy?)
}

/// What `__dlpack__` was asked for.
pub(crate) struct Asked {
    pub(crate) stream: Option<RawStream>,
    pub(crate) max_version: Option<(u32, u32)>,
    pub(crate) device: Option<Device>,
    pub(crate) copy: Option<bool>,
}

/// A capsule with the tensor. A legacy consumer cannot be told that memory is read-only or a copy, so it gets a copy
/// only if it asked for one.
pub(crate) fn export<'py>(py: Python<'py>, tensor: CoreTensor, asked: &Asked) -> Result<Bound<'py, PyAny>> {
    let source = tensor.device();
    let target = asked.device.unwrap_or(source);
    if target != source && asked.copy == Some(false) {
        return refuse!(DEVX_COPY_REQUIRED, "dl_device is {target}: the data is on {source}, and copy is False");
    }
    let either = if source.has_streams() { source } else { target };
    let stream = asked.stream.unwrap_or_else(|| raw_stream::default(either));
    order::check_stream(either, stream.value())?;
    let tensor = if target != source || asked.copy == Some(true) {
        duplicate(py, &tensor, target, Some(stream))?
    } else {
        tensor
    };
    if asked.stream.is_none() && target.is_host() {
        wait_on_host(py, &tensor)?;
    }
    let (major, minor) = asked.max_version.unwrap_or_default();
    let request = Request {
        max_version: DLPackVersion { major, minor },
        // What is copied to the host was waited for.
        stream: if target.has_streams() { stream } else { RawStream::NO_SYNC },
        copy: Copying::Never,
    };
    if major >= VERSION.major {
        capsule::give(py, dlpack::export::<DLManagedTensorVersioned>(tensor, &request)?)
    } else {
        capsule::give(py, dlpack::export::<DLManagedTensor>(tensor, &request)?)
    }
}

/// Waits for memory that the host can read: who names no stream may have none, as NumPy, and read it at once.
fn wait_on_host(py: Python<'_>, tensor: &CoreTensor) -> Result<()> {
    if matches!(tensor.ready(), Ready::Now) || !tensor.device().has_streams() {
        return Ok(());
    }
    let legacy = tensor.stream(RawStream::LEGACY)?;
    Ok(py.detach(|| tensor.wait(legacy).and_then(|()| legacy.synchronize()))?)
}
