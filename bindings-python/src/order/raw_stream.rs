//! Streams as the protocols write them: numbers, and objects with a number.

use devexchange_core::runtime::cuda::Hold;
use devexchange_core::stream::PER_THREAD;
use devexchange_core::{Device, RawStream};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};

use crate::python::argument::{self, is_index};
use crate::python::call;
use crate::python::error::{Result, refuse, wrong_type};

/// Reads a stream: an integer as the protocols write it, an object that stands for one (`numpy.int64`), or an object with
/// `__cuda_stream__`, which returns a pair of a version and a handle (cuda.core, "CUDA stream protocol"). A handle 0, which
/// objects of PyTorch, CuPy and Numba can have, is a default stream.
pub(crate) fn number(stream: &Bound<'_, PyAny>) -> Result<RawStream> {
    if stream.is_instance_of::<PyBool>() {
        return wrong_type!("stream is {stream}: a bool is not a stream");
    }
    if stream.is_instance_of::<PyInt>() {
        return integer(stream);
    }
    let Some(protocol) = stream.getattr_opt("__cuda_stream__")? else {
        if is_index(stream) {
            return integer(stream);
        }
        return wrong_type!("stream is {stream:?}: neither an integer nor an object with __cuda_stream__");
    };
    let given = call::call(&protocol, ())?;
    let Ok((version, handle)) = given.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        return wrong_type!("__cuda_stream__ gave {given:?}: a pair of a version and a handle was expected");
    };
    let is_int = |value: &Bound<'_, PyAny>| is_index(value) && !value.is_instance_of::<PyBool>();
    if !is_int(&version) || !is_int(&handle) {
        return wrong_type!("__cuda_stream__ gave {given:?}: two ints were expected");
    }
    if argument::fitting(&version)? != Some(0) {
        return refuse!(DEVX_UNSUPPORTED, "__cuda_stream__ is of version {version}: this library knows version 0");
    }
    // Only a number of the protocols, not a handle, can be -1 (no synchronisation).
    let Some(value) = argument::fitting(&handle)?.filter(|&value| value >= 0) else {
        return refuse!(DEVX_INVALID_STREAM, "__cuda_stream__ gave {given:?}: {handle} is not a stream handle");
    };
    // Which of the two default streams that is depends on how the other library was built. The legacy one serves for either:
    // it waits for the per-thread ones, and they wait for it (CUDA, "Stream synchronization behavior").
    Ok(if value == 0 { RawStream::LEGACY } else { named(value) })
}

fn integer(value: &Bound<'_, PyAny>) -> Result<RawStream> {
    match argument::fitting(value)? {
        Some(value) => Ok(named(value)),
        None => refuse!(DEVX_INVALID_STREAM, "stream is {value}: neither -1 nor a stream handle"),
    }
}

fn named(value: i64) -> RawStream {
    // SAFETY: a program that names a stream keeps it alive, as the documentation of the package demands.
    unsafe { RawStream::new(value) }
}

/// Holds a stream for a call during which Python runs, on this thread or on others: if the stream is closed then, it is
/// destroyed after the call.
pub(crate) fn hold(stream: RawStream) -> Result<Hold> {
    if stream.value() > PER_THREAD { Ok(Hold::new(stream.value())?) } else { Ok(Hold::none()) }
}

/// The stream of a consumer that names none: the legacy default stream, if the device has streams.
pub(crate) fn default(device: Device) -> RawStream {
    if device.has_streams() { RawStream::LEGACY } else { RawStream::NO_SYNC }
}

/// The stream for a copy: the legacy default stream if none is named.
pub(crate) fn of_copy(stream: Option<RawStream>) -> RawStream {
    stream.filter(|&value| value != RawStream::NO_SYNC).unwrap_or(RawStream::LEGACY)
}
