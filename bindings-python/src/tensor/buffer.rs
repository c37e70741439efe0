//! Host memory in and out through Python's buffer protocol (PEP 3118).

use core::ffi::{CStr, c_int, c_void};

use devexchange_core::abi::dlpack::{self as dl, DLDataType};
use devexchange_core::abi::types::DEVX_UNSUPPORTED;
use devexchange_core::layout::{self, MAX_NDIM};
use devexchange_core::{DType, Device, Error as CoreError, Flags, Owner, Tensor as CoreTensor, TensorDesc};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use pyo3::{ffi, intern};

use crate::python::argument::is_index;
use crate::python::error::{Error, Result, refuse};
use crate::python::queue::{self, Held};
use crate::python::{aside, call};
use crate::tensor::Tensor;
use crate::tensor::type_object::New;

// ---- in ----

/// Returns a view of the memory of an object with the buffer protocol.
///
/// Such objects are bytes, bytearray, array.array, memoryview, NumPy arrays and others. The buffer stays locked until the
/// last user of the tensor is gone. An object that refers to the tensor made over it has to close the tensor, because
/// Python's cycle collector cannot see such a cycle.
///
/// Raises TypeError for objects without the protocol, BufferError for elements that are not numbers in this machine's byte
/// order.
#[pyfunction]
#[pyo3(signature = (obj, /))]
pub(crate) fn from_buffer(obj: &Bound<'_, PyAny>) -> Result<New> {
    queue::drain();
    Ok(New(view_of(obj)?))
}

/// See [`from_buffer`].
pub(super) fn view_of(obj: &Bound<'_, PyAny>) -> Result<CoreTensor> {
    let mut view = call::buffer(obj, ffi::PyBUF_RECORDS_RO).map_err(|error| indescribable(obj, error))?;
    let Described { data, dtype, shape, strides, flags } = Described::new(&view).inspect_err(|_| {
        // SAFETY: attached; the view was filled in above, and is given back only here.
        unsafe { call::give_back(&mut view) }
    })?;
    let owner = queue::owner(Held::Buffer(view));
    let strides = strides.as_deref();
    let desc = TensorDesc { data, device: Device::CPU, dtype, shape: &shape, strides, byte_offset: 0, flags };
    // SAFETY: the object promises memory of this description until the view is given back.
    Ok(queue::keep(unsafe { CoreTensor::from_raw_parts(&desc, owner) })?)
}

/// The error of an object that gave no buffer. NumPy raises a `ValueError` for elements that only a package beside it knows,
/// such as bfloat16, and does not say what to do.
fn indescribable(obj: &Bound<'_, PyAny>, error: PyErr) -> Error {
    let py = obj.py();
    if !error.is_instance_of::<PyValueError>(py) {
        return error.into();
    }
    match obj.getattr_opt(intern!(py, "dtype")) {
        Ok(Some(dtype)) => {
            let text =
                format_args!("dtype is {dtype}: buffers have no format for it; array.view(\"u1\") gives its bytes");
            Error::from(CoreError::new(DEVX_UNSUPPORTED, text)).after(error.into(), py)
        }
        Ok(None) => error.into(),
        Err(other) => other.into(),
    }
}

/// The bytes of an object with the buffer protocol, and the owner that keeps them in place. `None` for a number: those of NumPy
/// (`numpy.int64`) have the protocol, too, without a dimension and read-only, unlike its arrays without a dimension.
pub(crate) fn bytes_of(obj: &Bound<'_, PyAny>) -> Result<Option<(*mut c_void, usize, Owner)>> {
    if obj.is_instance_of::<PyInt>() {
        return Ok(None);
    }
    let mut view = call::buffer(obj, ffi::PyBUF_SIMPLE)?;
    if is_index(obj) && view.ndim == 0 && view.readonly != 0 {
        // SAFETY: attached; the view was filled in above, and is given back only here.
        unsafe { call::give_back(&mut view) };
        return Ok(None);
    }
    Ok(Some((view.buf, view.len as usize, queue::owner(Held::Buffer(view)))))
}

/// A buffer view, translated.
struct Described {
    data: *mut c_void,
    dtype: DType,
    shape: Vec<i64>,
    /// In elements; `None` for compact row-major.
    strides: Option<Vec<i64>>,
    flags: Flags,
}

impl Described {
    fn new(view: &ffi::Py_buffer) -> Result<Self> {
        // SAFETY: a format ends with a NUL. Without a format the elements are bytes.
        let format = if view.format.is_null() { c"B" } else { unsafe { CStr::from_ptr(view.format) } };
        let width = (view.itemsize as i64).max(1);
        let shape = extents(view, view.shape)?;
        // The arrays of ctypes are row-major and have no strides.
        let mut strides = (!view.strides.is_null()).then(|| extents(view, view.strides)).transpose()?;
        for (i, stride) in strides.iter_mut().flatten().enumerate() {
            if *stride % width != 0 && layout::is_stepped(&shape, i) {
                return refuse!(
                    DEVX_UNSUPPORTED,
                    "strides has {stride} bytes: not a multiple of the {width} of an element"
                );
            }
            *stride /= width;
        }
        Ok(Self {
            data: view.buf,
            dtype: dtype_of(&format.to_string_lossy(), view.itemsize)?,
            shape,
            strides,
            flags: if view.readonly != 0 { Flags::READ_ONLY } else { Flags::default() },
        })
    }
}

/// The shape or strides of a view, one number for each dimension.
fn extents(view: &ffi::Py_buffer, from: *const ffi::Py_ssize_t) -> Result<Vec<i64>> {
    let ndim = match usize::try_from(view.ndim) {
        Ok(ndim) if ndim <= MAX_NDIM => ndim,
        _ => return refuse!(DEVX_INVALID_SHAPE, "ndim is {}: it must be between 0 and {MAX_NDIM}", view.ndim),
    };
    if ndim == 0 {
        return Ok(Vec::new());
    }
    if from.is_null() {
        return refuse!(DEVX_INVALID_SHAPE, "the view has {ndim} dimensions, but no shape");
    }
    // SAFETY: not NULL, so there is one number for each dimension.
    Ok(unsafe { std::slice::from_raw_parts(from, ndim) }.iter().map(|&extent| extent as i64).collect())
}

/// The element type of a format of the module `struct`; `Z` before a floating point format makes it complex.
fn dtype_of(format: &str, itemsize: isize) -> Result<DType> {
    let foreign: &[char] = if cfg!(target_endian = "little") { &['>', '!'] } else { &['<'] };
    if itemsize > 1 && format.starts_with(foreign) {
        return refuse!(DEVX_UNSUPPORTED, "format is {format:?}: the bytes are not in the order of this machine");
    }
    let (code, sizes): (_, &[isize]) = match format.trim_start_matches(['@', '=', '<', '>', '!']) {
        "?" => (dl::kDLBool, &[1]),
        "b" => (dl::kDLInt, &[1]),
        "h" => (dl::kDLInt, &[2]),
        "i" => (dl::kDLInt, &[4]),
        "l" | "n" => (dl::kDLInt, &[4, 8]),
        "q" => (dl::kDLInt, &[8]),
        "B" | "c" => (dl::kDLUInt, &[1]),
        "H" => (dl::kDLUInt, &[2]),
        "I" => (dl::kDLUInt, &[4]),
        "L" | "N" => (dl::kDLUInt, &[4, 8]),
        "Q" => (dl::kDLUInt, &[8]),
        "e" => (dl::kDLFloat, &[2]),
        "f" => (dl::kDLFloat, &[4]),
        "d" => (dl::kDLFloat, &[8]),
        "Zf" => (dl::kDLComplex, &[8]),
        "Zd" => (dl::kDLComplex, &[16]),
        _ => return refuse!(DEVX_UNSUPPORTED, "format is {format:?}: a tensor cannot have such elements"),
    };
    if !sizes.contains(&itemsize) {
        return refuse!(DEVX_INVALID_DTYPE, "itemsize is {itemsize}: the format {format:?} has {sizes:?}");
    }
    Ok(DType::from_dlpack(DLDataType { code, bits: (itemsize * 8) as u8, lanes: 1 })?)
}

// ---- out ----

/// The data that a lent view points to, kept in the view's `internal`.
struct Lent {
    tensor: CoreTensor,
    /// In bytes.
    strides: Vec<isize>,
}

/// Fills in a view of a tensor in host memory. The view keeps the tensor until it is given back.
///
/// # Safety
/// `view` can be written, and is not filled in.
pub(crate) unsafe fn lend(object: Bound<'_, Tensor>, view: *mut ffi::Py_buffer, flags: c_int) -> Result<()> {
    // SAFETY: the caller's contract.
    let Some(view) = (unsafe { view.as_mut() }) else {
        return refuse!(DEVX_NULL_ARGUMENT, "view is NULL");
    };
    view.obj = std::ptr::null_mut();
    let tensor = object.get().get()?;
    tensor.require_host()?;
    let format = format_of(tensor.dtype())?;
    let read_only = tensor.flags().has(Flags::READ_ONLY);
    let wants = |flag: c_int| flags & flag == flag;
    if read_only && wants(ffi::PyBUF_WRITABLE) {
        return refuse!(DEVX_READ_ONLY, "flags has READ_ONLY: the tensor must not be written");
    }
    let row_major = tensor.layout().row_major;
    let needs_rows = !wants(ffi::PyBUF_STRIDES) || wants(ffi::PyBUF_C_CONTIGUOUS);
    let fits = match () {
        () if wants(ffi::PyBUF_ANY_CONTIGUOUS) => row_major || is_column_major(&tensor),
        () if wants(ffi::PyBUF_F_CONTIGUOUS) => is_column_major(&tensor),
        () => row_major || !needs_rows,
    };
    if !fits {
        let (strides, shape) = (tensor.strides(), tensor.shape());
        let order = match () {
            () if wants(ffi::PyBUF_ANY_CONTIGUOUS) => "row-major or column-major",
            () if wants(ffi::PyBUF_F_CONTIGUOUS) => "column-major",
            () => "row-major",
        };
        return refuse!(
            DEVX_COPY_REQUIRED,
            "strides {strides:?} of shape {shape:?} are not {order}, which was asked for"
        );
    }
    let width = tensor.dtype().element_bytes().unwrap_or(1) as isize;
    let strides = tensor.strides().iter().map(|&stride| stride as isize * width).collect();
    let lent = Box::into_raw(Box::new(Lent { tensor, strides }));
    // SAFETY: the box was made above.
    let Lent { tensor, strides } = unsafe { &*lent };
    // Even a view without elements has an address.
    view.buf = if tensor.data().is_null() { lent.cast() } else { tensor.data() };
    view.len = tensor.layout().bytes as isize;
    view.itemsize = width;
    view.readonly = read_only.into();
    // A request without a shape gets plain bytes in one dimension, as from a `memoryview`: `hashlib` takes no other view.
    view.ndim = if wants(ffi::PyBUF_ND) { tensor.shape().len() as c_int } else { 1 };
    view.format = if wants(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { std::ptr::null_mut() };
    // With zero dimensions there is neither shape nor strides (buffer protocol, `ndim`).
    let has = |flag: c_int| wants(flag) && !strides.is_empty();
    view.shape = if has(ffi::PyBUF_ND) { tensor.shape().as_ptr().cast_mut().cast() } else { std::ptr::null_mut() };
    view.strides = if has(ffi::PyBUF_STRIDES) { strides.as_ptr().cast_mut() } else { std::ptr::null_mut() };
    view.suboffsets = std::ptr::null_mut();
    view.internal = lent.cast::<c_void>();
    view.obj = object.into_ptr();
    Ok(())
}

/// Takes a view back.
///
/// # Safety
/// `view` was filled in by [`lend`], and is taken back once.
pub(crate) unsafe fn take_back(view: *mut ffi::Py_buffer) {
    // SAFETY: the caller's contract.
    let internal = unsafe { (*view).internal };
    // SAFETY: as above.
    let lent = unsafe { Box::from_raw(internal.cast::<Lent>()) };
    aside::quietly(|_| drop(lent));
    queue::drain();
}

fn is_column_major(tensor: &CoreTensor) -> bool {
    let mut expected = 1;
    tensor.layout().elements == 0
        || tensor.shape().iter().zip(tensor.strides()).all(|(&extent, &stride)| {
            let fits = extent == 1 || stride == expected;
            expected *= extent;
            fits
        })
}

fn format_of(dtype: DType) -> Result<&'static CStr> {
    let DLDataType { code, bits, lanes } = dtype.to_dlpack();
    Ok(match (dl::DLDataTypeCode::from(code), bits, lanes) {
        (dl::kDLBool, 8, 1) => c"?",
        (dl::kDLInt, 8, 1) => c"b",
        (dl::kDLInt, 16, 1) => c"h",
        (dl::kDLInt, 32, 1) => c"i",
        (dl::kDLInt, 64, 1) => c"q",
        (dl::kDLUInt, 8, 1) => c"B",
        (dl::kDLUInt, 16, 1) => c"H",
        (dl::kDLUInt, 32, 1) => c"I",
        (dl::kDLUInt, 64, 1) => c"Q",
        (dl::kDLFloat, 16, 1) => c"e",
        (dl::kDLFloat, 32, 1) => c"f",
        (dl::kDLFloat, 64, 1) => c"d",
        (dl::kDLComplex, 64, 1) => c"Zf",
        (dl::kDLComplex, 128, 1) => c"Zd",
        _ => return refuse!(DEVX_UNSUPPORTED, "dtype is {dtype}: buffers have no format for it"),
    })
}

const _: () = assert!(size_of::<ffi::Py_ssize_t>() == size_of::<i64>(), "extents are those of 64-bit machines");
