//! Tensors through the CUDA Array Interface: versions 0 to 3 in, version 3 out. Only the dictionary is translated here.

use core::ffi::{CStr, c_void};
use std::ffi::CString;

use devexchange_core::abi::cuda_array::{DEVX_CUDA_ARRAY_NO_STREAM, DEVX_CUDA_ARRAY_VERSION, DevxCudaArray};
use devexchange_core::abi::types::{
    DEVX_DEVICE, DEVX_INVALID_SHAPE, DEVX_INVALID_STREAM, DEVX_UNSUPPORTED, DEVX_VERSION, DevxStatus,
};
use devexchange_core::cuda_array::{self, Imported, NoStream, Request};
use devexchange_core::layout::MAX_NDIM;
use devexchange_core::{Owner, Tensor as CoreTensor};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple};

use crate::order::{raw_stream, stream};
use crate::python::call::{self, Reference};
use crate::python::error::{Error, Result, built_in, refuse, wrong_type};
use crate::python::queue::{self, Held};
use crate::python::{argument, waiting};
use crate::tensor::type_object::{self, New};

// ---- in ----

/// Takes a tensor from an object with `__cuda_array_interface__`.
///
/// The object is kept alive until the last user of the tensor is gone. An object that refers to the tensor made over it has
/// to close the tensor, because Python's cycle collector cannot see such a cycle. The driver says where the memory is.
///
/// The work that the producer queued on its stream is waited for on the device: by `stream`, if one is given, and by whoever
/// the tensor is handed to. Producers before version 3 name no stream; `no_stream` says what takes its place:
/// "legacy-default", "host-sync" (the host waits until the device has done all its work), or "trust" (the data is ready).
/// When the tensor is given up, the producer's stream is made to wait for the work declared with `used_on`; it must exist until
/// then.
///
/// With `mask=True` the result is a pair: the tensor, and None or a tensor of the same shape that is true where an element is
/// valid. Without it, an array with a mask is refused.
///
/// Raises TypeError for objects without the protocol and entries of a wrong type, ValueError for an invalid array,
/// BufferError for host memory and for elements that a tensor cannot describe (structured elements, foreign byte order).
#[pyfunction]
#[pyo3(signature = (obj, /, *, stream=None, no_stream="legacy-default", mask=false))]
pub(crate) fn from_cuda_array_interface<'py>(
    obj: &Bound<'py, PyAny>,
    stream: Option<&Bound<'py, PyAny>>,
    no_stream: &str,
    mask: bool,
) -> Result<Bound<'py, PyAny>> {
    queue::drain();
    let no_stream = match no_stream {
        "legacy-default" => NoStream::LegacyDefault,
        "host-sync" => NoStream::HostSync,
        "trust" => NoStream::Trust,
        _ => {
            return refuse!(
                DEVX_INVALID_ARGUMENT,
                "no_stream is {no_stream:?}: legacy-default, host-sync or trust was expected"
            );
        }
    };
    let request = Request { no_stream, stream: stream::optional(stream)?, ..Request::default() };
    let _hold = request.stream.map(raw_stream::hold).transpose()?;
    let source = Source::read(obj, |given| match mask {
        true => Mask::read(given),
        false => refuse!(
            DEVX_UNSUPPORTED,
            "mask is there: some elements are not valid, which a tensor cannot express; mask=True gives the mask"
        ),
    })?;
    // From here on only the copy of the dictionary is read, because the object may change its own.
    let mut array = source.into_array();
    // The host may have to wait; other threads run Python meanwhile.
    let imported = import(obj.py(), &mut array, &request, mask);
    if imported.is_err() {
        // SAFETY: the import was refused, so the array is unchanged and still ours.
        unsafe { cuda_array::release(&raw mut array) };
        queue::drain();
    }
    let Imported { tensor, mask: valid } = imported?;
    let tensor = type_object::make(obj.py(), tensor)?;
    if !mask {
        return Ok(tensor.into_any());
    }
    Ok((tensor, valid.map(New)).into_pyobject(obj.py())?.into_any())
}

fn import(
    py: Python<'_>,
    array: &mut DevxCudaArray,
    request: &Request,
    mask: bool,
) -> devexchange_core::Result<Imported> {
    // SAFETY: the array was made just now, and nobody else has it; its producer vouches for the stream.
    waiting::detached(py, array, |array| unsafe { cuda_array::import(array, request, mask) })
}

/// A copy of the dictionary, including everything that the array points to.
struct Source {
    version: i32,
    read_only: bool,
    data: usize,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    typestr: CString,
    stream: i64,
    mask: Option<Box<Mask>>,
    _owner: Owner,
}

/// The mask of an array, which is released with the array.
struct Mask {
    array: DevxCudaArray,
    /// The data that the array points to.
    _source: Source,
}

// SAFETY: the array points only into its source, which the mask owns.
unsafe impl Send for Mask {}

impl Source {
    fn read(obj: &Bound<'_, PyAny>, mask: impl FnOnce(&Bound<'_, PyAny>) -> Result<Box<Mask>>) -> Result<Self> {
        let interface = match call::property(obj, c"__cuda_array_interface__") {
            Err(error) if error.is_instance_of::<PyAttributeError>(obj.py()) => {
                let text = format!("{} has no __cuda_array_interface__", obj.get_type());
                let refused = built_in::<PyTypeError>(text);
                // If a property raised this, it may say why.
                refused.set_cause(obj.py(), Some(error));
                return Err(refused.into());
            }
            interface => interface?,
        };
        let Ok(interface) = interface.cast_into::<PyDict>() else {
            return wrong_type!("__cuda_array_interface__ is not a dict");
        };
        let interface = &interface;
        let version = integer(&required(interface, "version")?, "version", DEVX_VERSION)?;
        let Ok(version) = i32::try_from(version) else {
            return refuse!(DEVX_VERSION, "version is {version}: this library reads 0 to {DEVX_CUDA_ARRAY_VERSION}");
        };
        let Ok(data) = required(interface, "data")?.cast_into::<PyTuple>() else {
            return wrong_type!("data is not a tuple of an address and a bool");
        };
        let (address, read_only) = match data.len() {
            2 => (data.get_item(0)?, data.get_item(1)?),
            n => return refuse!(DEVX_INVALID_ARGUMENT, "data has {n} entries: an address and a bool were expected"),
        };
        // A bool of Python or of NumPy.
        let Ok(read_only) = read_only.extract::<bool>() else {
            return wrong_type!("data[1] is {read_only:?}: a bool was expected");
        };
        let shape = integers(&required(interface, "shape")?, "shape")?;
        let strides = optional(interface, "strides")?.map(|strides| integers(&strides, "strides")).transpose()?;
        if let Some(n) = strides.as_ref().map(Vec::len).filter(|&n| n != shape.len()) {
            return refuse!(DEVX_INVALID_SHAPE, "there are {n} strides for {} dimensions", shape.len());
        }
        let Ok(typestr) = required(interface, "typestr")?.cast_into::<PyString>() else {
            return wrong_type!("typestr is not a str");
        };
        let Ok(typestr) = CString::new(typestr.to_string_lossy().as_bytes()) else {
            return refuse!(DEVX_INVALID_DTYPE, "typestr has a NUL in it");
        };
        let mask = optional(interface, "mask")?.map(|given| mask(&given)).transpose()?;
        Ok(Self {
            version,
            read_only,
            data: self::address(&address)?,
            shape,
            strides,
            typestr,
            // Before version 3 the entry has no meaning.
            stream: match optional(interface, "stream")?.filter(|_| version >= DEVX_CUDA_ARRAY_VERSION) {
                None => DEVX_CUDA_ARRAY_NO_STREAM,
                Some(value) => match integer(&value, "stream", DEVX_INVALID_STREAM)? {
                    value if value < 0 => return refuse!(DEVX_INVALID_STREAM, "stream is {value}: negative"),
                    value => value,
                },
            },
            mask,
            _owner: queue::owner(Held::Object(Reference::new(obj.clone()))),
        })
    }

    /// Describes this source as a struct without a release.
    fn describe(&self) -> DevxCudaArray {
        DevxCudaArray {
            version: self.version,
            read_only: self.read_only.into(),
            data: std::ptr::with_exposed_provenance_mut(self.data),
            ndim: self.shape.len() as i64,
            shape: self.shape.as_ptr(),
            strides: self.strides.as_ref().map_or(std::ptr::null(), |strides| strides.as_ptr()),
            typestr: self.typestr.as_ptr(),
            descr: std::ptr::null(),
            mask: self.mask.as_ref().map_or(std::ptr::null(), |mask| &raw const mask.array),
            stream: self.stream,
            release: None,
            private_data: std::ptr::null_mut(),
        }
    }

    fn into_array(self) -> DevxCudaArray {
        let array = self.describe();
        let private_data = Box::into_raw(Box::new(self)).cast::<c_void>();
        DevxCudaArray { release: Some(release), private_data, ..array }
    }
}

impl Mask {
    fn read(mask: &Bound<'_, PyAny>) -> Result<Box<Self>> {
        let source = Source::read(mask, |_| refuse!(DEVX_UNSUPPORTED, "a mask has no mask of its own"))
            .map_err(|error| error.within("mask: "))?;
        Ok(Box::new(Self { array: source.describe(), _source: source }))
    }
}

unsafe extern "C" fn release(array: *mut DevxCudaArray) {
    // SAFETY: a release callback is called with a valid struct.
    let Some(array) = (unsafe { array.as_mut() }) else { return };
    if array.release.take().is_some() {
        // SAFETY: `into_array` made it, and it was marked as released above.
        drop(unsafe { Box::from_raw(array.private_data.cast::<Source>()) });
    }
}

fn optional<'py>(interface: &Bound<'py, PyDict>, key: &str) -> Result<Option<Bound<'py, PyAny>>> {
    Ok(interface.get_item(key)?.filter(|value| !value.is_none()))
}

fn required<'py>(interface: &Bound<'py, PyDict>, key: &str) -> Result<Bound<'py, PyAny>> {
    match interface.get_item(key)? {
        Some(value) => Ok(value),
        None => refuse!(DEVX_INVALID_ARGUMENT, "__cuda_array_interface__ has no {key}"),
    }
}

/// Reads an int, or what stands for one: shapes and addresses are often NumPy numbers. `None` if it does not fit its type.
fn fitting<'py, T: FromPyObjectOwned<'py>>(value: &Bound<'py, PyAny>, what: &str) -> Result<Option<T>> {
    if !argument::is_index(value) || value.is_instance_of::<PyBool>() {
        return wrong_type!("{what} is {value:?}: an int was expected");
    }
    Ok(argument::fitting(value)?)
}

/// Reads an int of 64 bits; `beyond` is the error status for a larger one.
fn integer(value: &Bound<'_, PyAny>, what: &str, beyond: DevxStatus) -> Result<i64> {
    match fitting(value, what)? {
        Some(value) => Ok(value),
        None => Err(devexchange_core::Error::new(beyond, format_args!("{what} is {value}: more than 64 bits")).into()),
    }
}

fn integers(values: &Bound<'_, PyAny>, what: &str) -> Result<Vec<i64>> {
    let Ok(values) = values.cast::<PyTuple>() else {
        return wrong_type!("{what} is {values:?}: a tuple of ints was expected");
    };
    match argument::entries(values.as_sequence(), MAX_NDIM, |value| integer(&value, what, DEVX_INVALID_SHAPE))? {
        Some(integers) => Ok(integers),
        None => {
            let n = values.len();
            refuse!(DEVX_INVALID_SHAPE, "{what} has {n} entries, so ndim is {n}: it must be between 0 and {MAX_NDIM}")
        }
    }
}

fn address(value: &Bound<'_, PyAny>) -> Result<usize> {
    match fitting(value, "data[0]")? {
        Some(address) => Ok(address),
        None => refuse!(DEVX_INVALID_ARGUMENT, "data[0] is {value}: not an address"),
    }
}

// ---- out ----

/// The dictionary for a tensor. For host memory it raises an `AttributeError`, so that `hasattr` finds none.
pub(crate) fn export(py: Python<'_>, tensor: CoreTensor) -> Result<Bound<'_, PyDict>> {
    let exported = match cuda_array::export(tensor, &Request::default()).map_err(|refused| refused.error) {
        Ok(exported) => exported,
        Err(error) if [DEVX_DEVICE, DEVX_UNSUPPORTED].contains(&error.status()) => {
            return Err(Error::Python(built_in::<PyAttributeError>(error.message().to_owned())));
        }
        Err(error) => return Err(error.into()),
    };
    let array = exported.as_raw();
    let extents = |from: *const i64| {
        let n = if from.is_null() { 0 } else { array.ndim as usize };
        // SAFETY: an exported array has `ndim` extents and as many strides.
        let values = if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from, n) } };
        PyTuple::new(py, values)
    };
    // SAFETY: the `typestr` of an exported array ends with a NUL.
    let typestr = unsafe { CStr::from_ptr(array.typestr) }.to_string_lossy();
    let interface = PyDict::new(py);
    interface.set_item("version", array.version)?;
    interface.set_item("shape", extents(array.shape)?)?;
    interface.set_item("typestr", typestr)?;
    interface.set_item("data", (array.data.addr(), array.read_only != 0))?;
    interface.set_item("strides", (!array.strides.is_null()).then(|| extents(array.strides)).transpose()?)?;
    interface.set_item("stream", (array.stream != DEVX_CUDA_ARRAY_NO_STREAM).then_some(array.stream))?;
    Ok(interface)
}
