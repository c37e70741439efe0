//! The CUDA Array Interface as a C struct: versions 0 to 3, import and export.
//!
//! The stream of this interface is the producer's, not the consumer's as in DLPack. A consumer waits for that stream, and at
//! the end makes it wait for its own work (version 3, "Synchronization"). Both waits are on the device. Versions before 3 have
//! no stream: [`NoStream`] says what takes its place.
//!
//! ```no_run
//! use devexchange_core::cuda_array::{self, Request};
//! use devexchange_core::{DType, Device, DeviceType, Result, Stream, Tensor};
//!
//! # fn main() -> Result<()> {
//! let stream = Stream::legacy(0);
//! let device = Device { kind: DeviceType::CUDA, id: 0 };
//! let tensor = Tensor::allocate(device, DType::FLOAT32, &[2, 3], Some(stream))?;
//! let mut handed = cuda_array::export(tensor, &Request::default())?;
//! // On the consumer's side, here in Rust, too:
//! let seen = handed.import(&Request::default(), false)?.tensor;
//! seen.wait(stream)?; // from now on, queue work with it there
//! seen.used_on(stream)?; // the memory is given back after that work
//! # Ok(())
//! # }
//! ```

use core::ffi::{CStr, c_void};

use crate::abi::cuda_array::{
    DEVX_CUDA_ARRAY_NO_STREAM, DEVX_CUDA_ARRAY_VERSION, DEVX_NO_STREAM_HOST_SYNC, DEVX_NO_STREAM_LEGACY_DEFAULT,
    DEVX_NO_STREAM_TRUST, DevxCudaArray, DevxCudaArrayRequest,
};
use crate::abi::types::DEVX_NULL_ARGUMENT;
use crate::device::{Device, DeviceType};
use crate::error::{Error, Refused, Result, refuse};
use crate::layout;
use crate::ledger::{Entry, Kind};
use crate::memory::{
    Foreign, Owner, Releasable, Slab, TailSize, Vacant, collected, entry, release_given, repeated, vector,
};
use crate::order::{Ready, release_behind};
use crate::runtime::cuda::pointer::{self, Place};
use crate::runtime::cuda::{Event, HeldStream};
use crate::stream::{LEGACY, RawStream, Stream};
use crate::tensor::{Flags, Tensor, TensorDesc};
use crate::view::Whole;

mod typestr;

pub use typestr::dtype_of;
use typestr::{typestr, typestr_of};

/// What takes the place of a stream in versions that do not have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoStream {
    /// The legacy default stream stands for the producer's stream: array libraries use it unless told otherwise.
    #[default]
    LegacyDefault,
    /// The host waits: at an import until the device has done all its work, which breaks any capture in progress on the
    /// device; at an export until the data is ready and no noted use is left.
    HostSync,
    /// Nobody waits: the caller knows that the data is ready.
    Trust,
}

/// How an array is imported or exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Highest version that the consumer reads (for an export).
    pub max_version: i32,
    /// What takes the place of a stream in versions before 3.
    pub no_stream: NoStream,
    /// Import: the consumer's stream, which is made to wait for the data. Export: the stream to order the data on. Without it,
    /// data that is ready and unused has no stream; other data keeps the stream that it is queued on, or else gets the legacy
    /// default stream.
    pub stream: Option<RawStream>,
}

impl Default for Request {
    fn default() -> Self {
        Self { max_version: DEVX_CUDA_ARRAY_VERSION, no_stream: NoStream::default(), stream: None }
    }
}

impl Request {
    /// Converts from the C record.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for a policy that does not exist, `DEVX_VERSION` for a negative version.
    ///
    /// # Safety
    /// The contract of [`RawStream::new`] holds for the request's stream.
    pub unsafe fn from_raw(raw: &DevxCudaArrayRequest) -> Result<Self> {
        let no_stream = match raw.no_stream {
            DEVX_NO_STREAM_LEGACY_DEFAULT => NoStream::LegacyDefault,
            DEVX_NO_STREAM_HOST_SYNC => NoStream::HostSync,
            DEVX_NO_STREAM_TRUST => NoStream::Trust,
            other => return refuse!(DEVX_INVALID_ARGUMENT, "no_stream is {other}: it must be 0, 1 or 2"),
        };
        if raw.max_version < 0 {
            return refuse!(DEVX_VERSION, "max_version is {}: versions are 0 to 3", raw.max_version);
        }
        // SAFETY: the caller's contract.
        let stream = (raw.stream != DEVX_CUDA_ARRAY_NO_STREAM).then(|| unsafe { RawStream::new(raw.stream) });
        Ok(Self { max_version: raw.max_version, no_stream, stream })
    }
}

// SAFETY: `release` is the struct's own member.
unsafe impl Releasable for DevxCudaArray {
    fn release(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.release
    }

    fn disarm(&mut self) {
        self.release = None;
    }
}

// ---- in ----

/// The result of an import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The elements.
    pub tensor: Tensor,
    /// True for each element that is valid; `None` if all are.
    pub mask: Option<Tensor>,
}

/// Takes an array from its producer. On success `*source` is marked as moved from, and its release is called once, when the
/// last user is gone. On failure it is untouched.
///
/// The driver, not the producer, says where the memory is. The work that the producer has queued until now is waited for on the
/// device: by the consumer's stream, and by every stream that the tensor is later handed on to. When the tensor is given up,
/// the producer's stream waits for the work that was noted with [`Tensor::used_on`]. A mask has its own order, and gets the
/// shape of its array.
///
/// # Errors
/// `DEVX_NULL_ARGUMENT`, `DEVX_RELEASED`, `DEVX_VERSION`, `DEVX_INVALID_DTYPE`, `DEVX_UNSUPPORTED` (byte order, structured
/// elements, a mask where `with_mask` is false), `DEVX_INVALID_SHAPE`, `DEVX_MISMATCH` for a mask that does not fit,
/// `DEVX_INVALID_STREAM`, `DEVX_DEVICE` for memory that no device can access, `DEVX_DRIVER`.
///
/// # Safety
/// `source` is NULL, or points to a valid array (released or not) that nobody else uses during the call. Its stream is alive
/// now and until the array is released.
pub unsafe fn import(source: *mut DevxCudaArray, request: &Request, with_mask: bool) -> Result<Imported> {
    // SAFETY: the caller's contract.
    let Some(array) = (unsafe { source.as_ref() }) else {
        return refuse!(DEVX_NULL_ARGUMENT, "array is NULL");
    };
    if array.release.is_none() {
        return refuse!(DEVX_RELEASED, "array.release is NULL: the array was released or moved from");
    }
    if !with_mask && !array.mask.is_null() {
        return refuse!(DEVX_UNSUPPORTED, "mask is there: some elements are not valid, which a tensor cannot express");
    }
    // SAFETY: the caller's contract.
    let seen = unsafe { look(array, request, None) }?;
    // SAFETY: a mask that is not NULL is valid.
    let mask = match unsafe { array.mask.as_ref() } {
        None => None,
        Some(mask) => {
            let of = &seen.tensor;
            // SAFETY: the caller's contract.
            let looked_at = unsafe { look(mask, request, Some(of.device())) };
            let mut mask = looked_at.map_err(|error| error.within("mask: "))?;
            if mask.tensor.shape() != of.shape() {
                mask.tensor = broadcast(&mask.tensor, of.shape())?;
            }
            Some(mask)
        }
    };
    let room = Vacant::new()?;
    let (mut tensor, mut mask) = (seen.ready()?, mask.map(Seen::ready).transpose()?);
    // SAFETY: the caller gives the array to us, now that nothing can fail any more.
    tensor.adopt(Owner::in_room(room, unsafe { Foreign::take(source, Kind::TensorImport) }));
    if let Some(mask) = &mut mask {
        mask.adopt(tensor.clone().into_owner());
    }
    Ok(Imported { tensor, mask })
}

/// An array to import: a tensor without an owner yet, and its order.
struct Seen {
    tensor: Tensor,
    ready: Ready,
    producer: Option<Stream>,
}

impl Seen {
    /// Sets the tensor's order: all but the owner is complete then.
    fn ready(self) -> Result<Tensor> {
        let mut tensor = self.tensor;
        tensor.set_ready(self.ready);
        if let Some(producer) = self.producer {
            tensor.set_producer(producer)?;
        }
        Ok(tensor)
    }
}

/// Reads an array, or the mask of an array on the device `masked`, and makes the consumer's stream wait for it.
///
/// # Safety
/// Same as [`import`].
unsafe fn look(array: &DevxCudaArray, request: &Request, masked: Option<Device>) -> Result<Seen> {
    if masked.is_some() && !array.mask.is_null() {
        return refuse!(DEVX_UNSUPPORTED, "a mask has no mask of its own");
    }
    // SAFETY: the caller's contract.
    let (tensor, Place { ordinal, .. }) = unsafe { describe(array, masked) }?;
    // Pinned and managed memory belongs to no device, but its producer works on one.
    let home = Device { kind: DeviceType::CUDA, id: ordinal };
    // SAFETY: the caller's contract.
    let producer = unsafe { producer_of(array, home, request) }?;
    let ready = ready_of(array, home, producer, request)?;
    if let Some(named) = request.stream {
        ready.wait(home.stream_with(home, named)?)?;
    }
    Ok(Seen { tensor, ready, producer })
}

/// Gives a mask the shape of its array (NumPy, array interface: a mask is "broadcastable" to the shape of its array).
///
/// # Errors
/// `DEVX_MISMATCH`.
fn broadcast(mask: &Tensor, shape: &[i64]) -> Result<Tensor> {
    let of_mask = || mask.shape().iter().zip(mask.strides()).rev();
    let fits = |(extent, (of_mask, _)): (&i64, (&i64, &i64))| of_mask == extent || *of_mask == 1;
    if mask.shape().len() > shape.len() || !shape.iter().rev().zip(of_mask()).all(fits) {
        return refuse!(DEVX_MISMATCH, "mask has shape {:?}, the array {shape:?}", mask.shape());
    }
    let steps = of_mask().map(|(&extent, &stride)| if extent == 1 { 0 } else { stride });
    let mut strides = repeated(0, shape.len())?;
    strides.iter_mut().rev().zip(steps).for_each(|(stride, step)| *stride = step);
    Tensor::describe(&TensorDesc {
        data: mask.data(),
        device: mask.device(),
        dtype: mask.dtype(),
        shape,
        strides: Some(&strides),
        byte_offset: 0,
        // An element that stands for several must not be written.
        flags: mask.flags().with(Flags::READ_ONLY),
    })
}

/// Describes the array as a tensor without an owner yet. Also returns the place that the driver gives for it.
///
/// # Safety
/// The array's members are valid.
unsafe fn describe(array: &DevxCudaArray, parent: Option<Device>) -> Result<(Tensor, Place)> {
    if !(0..=DEVX_CUDA_ARRAY_VERSION).contains(&array.version) {
        return refuse!(
            DEVX_VERSION,
            "version is {}: this library reads 0 to {DEVX_CUDA_ARRAY_VERSION}",
            array.version
        );
    }
    // SAFETY: the caller's contract.
    let dtype = dtype_of(unsafe { typestr_of(array.typestr) }?)?;
    let ndim = layout::dimensions(array.ndim, !array.shape.is_null())?;
    // SAFETY: a producer's shape has `ndim` extents.
    let shape: Vec<i64> = collected((0..ndim).map(|i| Ok(unsafe { entry(array.shape, i) })))?;
    let width = dtype.element_bytes().unwrap_or(1) as i64;
    let mut strides = vector(ndim)?;
    for i in 0..if array.strides.is_null() { 0 } else { ndim } {
        // SAFETY: a producer's strides are `ndim` distances.
        let bytes = unsafe { entry(array.strides, i) };
        if bytes % width != 0 && layout::is_stepped(&shape, i) {
            return refuse!(
                DEVX_INVALID_SHAPE,
                "strides[{i}] is {bytes} bytes: not a multiple of the {width} of {dtype}"
            );
        }
        strides.push(bytes / width);
    }
    let is_empty = shape.contains(&0);
    if array.data.is_null() && !is_empty {
        return refuse!(DEVX_INVALID_ARGUMENT, "data is NULL with shape {shape:?}");
    }
    let place = if is_empty {
        let device = parent.unwrap_or(Device { kind: DeviceType::CUDA, id: 0 });
        Place { device, ordinal: device.id }
    } else {
        pointer::locate(array.data)?
    };
    let device = place.device;
    if device == Device::CPU {
        return refuse!(DEVX_DEVICE, "data is {:p}: host memory that no CUDA device can access", array.data);
    }
    let tensor = Tensor::describe(&TensorDesc {
        data: array.data,
        device,
        dtype,
        shape: &shape,
        strides: (!array.strides.is_null()).then_some(&strides),
        byte_offset: 0,
        flags: if array.read_only != 0 { Flags::READ_ONLY } else { Flags::default() },
    })?;
    tensor.check_pointers()?;
    Ok((tensor, place))
}

/// Returns the stream that the producer works on, if there is one to wait for.
///
/// # Safety
/// Same as [`import`].
unsafe fn producer_of(array: &DevxCudaArray, device: Device, request: &Request) -> Result<Option<Stream>> {
    let value = match (array.version, request.no_stream) {
        (DEVX_CUDA_ARRAY_VERSION, _) if array.stream == DEVX_CUDA_ARRAY_NO_STREAM => return Ok(None),
        (DEVX_CUDA_ARRAY_VERSION, _) => array.stream,
        (_, NoStream::LegacyDefault) => LEGACY,
        _ => return Ok(None),
    };
    // The stream can be on another device than the memory; its event identifies the device.
    // SAFETY: the caller's contract.
    let stream = device.stream(unsafe { RawStream::new(value) });
    stream.transpose().map_err(|error| error.within("array: "))
}

fn ready_of(array: &DevxCudaArray, device: Device, producer: Option<Stream>, request: &Request) -> Result<Ready> {
    match producer {
        // Recorded at once, because the stream may be gone later.
        Some(producer) => {
            producer.require_no_capture()?;
            Ok(Ready::After(Event::record(producer)?))
        }
        None if array.version < DEVX_CUDA_ARRAY_VERSION && request.no_stream == NoStream::HostSync => {
            if let Some(legacy) = device.legacy_stream() {
                legacy.synchronize_device()?;
            }
            Ok(Ready::Now)
        }
        None => Ok(Ready::Now),
    }
}

// ---- out ----

/// An array that was handed over and not taken yet. The holder of this value owns the array; dropping it releases the array.
/// Since no consumer took it, the release of an export waits only for work noted with [`Tensor::used_on`].
#[derive(Debug)]
pub struct Owned {
    array: DevxCudaArray,
    /// Whether this library has exported it.
    is_ours: bool,
}

// SAFETY: the struct may be used and released on any thread.
unsafe impl Send for Owned {}
// SAFETY: as above; a shared reference only reads the struct.
unsafe impl Sync for Owned {}

impl Owned {
    /// Takes ownership of an array from outside. Dropping the result calls its release.
    ///
    /// # Safety
    /// `given` is a valid array (released or not) that the caller owns and does not use any more. Its stream is alive until it
    /// is released.
    pub unsafe fn from_raw(given: DevxCudaArray) -> Self {
        Self { array: given, is_ours: false }
    }

    /// Imports the array, which leaves nothing here. If it is refused, it stays here.
    ///
    /// # Errors
    /// Same as [`import`].
    pub fn import(&mut self, request: &Request, with_mask: bool) -> Result<Imported> {
        // SAFETY: owned and valid; an export holds its stream, and for other arrays `from_raw` was promised so.
        unsafe { import(&raw mut self.array, request, with_mask) }
    }

    /// Returns the struct for a consumer, which then has to release it.
    pub fn into_raw(mut self) -> DevxCudaArray {
        let array = self.array;
        self.array.release = None;
        array
    }

    /// Returns the struct, which this value still owns.
    pub fn as_raw(&self) -> &DevxCudaArray {
        &self.array
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.is_ours {
            // SAFETY: valid, owned and not given away.
            unsafe { release(&raw mut self.array) }
        } else if self.array.release.take().is_some() {
            // SAFETY: made by `hand_over`, owned and not given away.
            drop(unsafe { Slab::<Export>::from_raw(self.array.private_data) });
        }
    }
}

/// Releases an array that the caller holds and nobody imports, unless it is released already. NULL is accepted.
///
/// # Safety
/// `array` is NULL, or points to a valid array (released or not) that nobody else uses during the call.
pub unsafe fn release(array: *mut DevxCudaArray) {
    // SAFETY: the caller's contract.
    unsafe { release_given(array) }
}

struct Export {
    tensor: Tensor,
    typestr: [u8; 8],
    /// The stream behind which the consumer's work is queued when it releases: the stream in the struct, or the one that the
    /// policy implies.
    behind: Option<HeldStream>,
    _ready: Ready,
    _entry: Entry,
}

/// Hands a tensor to a consumer, which releases the struct. Pass a clone to share the tensor, the tensor itself to move it.
/// Takes one block of memory.
///
/// The stream of the struct is the one behind which the data is ready, and also the work that was noted with
/// [`Tensor::used_on`]: a consumer that waits for this stream waits for all of it. When the consumer releases the struct, the
/// tensor is given up after the work queued on this stream, which may be [closed](Stream::close) before. For a consumer that
/// reads no stream (before version 3) the policy applies: with the legacy default stream, the tensor is given up after the work
/// queued there.
///
/// # Errors
/// `DEVX_DEVICE` for memory that no device can access, `DEVX_UNSUPPORTED` for elements that NumPy has no name for,
/// `DEVX_INVALID_STREAM`, `DEVX_DRIVER`. The tensor is given back.
pub fn export(tensor: Tensor, request: &Request) -> std::result::Result<Owned, Refused<Tensor>> {
    match prepare(&tensor, request) {
        Ok(prepared) => hand_over(tensor, prepared, request.max_version),
        Err(error) => Err(Refused { error, returned: tensor }),
    }
}

/// Like [`export`], but writes the struct to where the consumer wants it. On success `*out` is overwritten; on failure it is
/// not.
///
/// # Errors
/// Those of [`export`]; `DEVX_NULL_ARGUMENT`.
///
/// # Safety
/// `out` is NULL or has room for a struct.
pub unsafe fn export_to(
    tensor: Tensor,
    request: &Request,
    out: *mut DevxCudaArray,
) -> std::result::Result<(), Refused<Tensor>> {
    if out.is_null() {
        return Err(Refused { error: Error::new(DEVX_NULL_ARGUMENT, "out is NULL"), returned: tensor });
    }
    let array = export(tensor, request)?.into_raw();
    // SAFETY: the caller's contract.
    unsafe { out.write(array) };
    Ok(())
}

/// What an export prepares before it takes the tensor.
struct Prepared {
    typestr: [u8; 8],
    /// The stream that the struct names.
    said: Option<Stream>,
    behind: Option<HeldStream>,
    ready: Ready,
}

fn prepare(tensor: &Tensor, request: &Request) -> Result<Prepared> {
    let device = tensor.device();
    if device.kind == DeviceType::CPU {
        return refuse!(
            DEVX_DEVICE,
            "device is {device}: the CUDA Array Interface is for memory that a CUDA device can access"
        );
    }
    let Some(typestr) = typestr(tensor.dtype()) else {
        return refuse!(DEVX_UNSUPPORTED, "dtype is {}: NumPy has no type string for it", tensor.dtype());
    };
    let named = request.stream.map(|named| tensor.stream(named)).transpose()?;
    let has_stream = request.max_version >= DEVX_CUDA_ARRAY_VERSION;
    let legacy = || tensor.stream(RawStream::LEGACY);
    // All work on the data comes before the stream that the struct names, including uses that were noted ("Interface
    // Requirements").
    let is_used = tensor.uses().are_noted()?;
    // A number cannot say which device a default stream belongs to: the consumer takes it for that of the memory's device.
    let can_say = |stream: Stream| has_stream && tensor.stream(stream.unnamed()) == Ok(stream);
    let queued = tensor.ready().stream();
    let (said, on) = match (tensor.ready(), named) {
        (Ready::Now, None) if !is_used => (None, None),
        (_, None) if queued.is_some_and(can_say) => (queued, if is_used { queued } else { None }),
        (_, Some(stream)) if can_say(stream) => (Some(stream), Some(stream)),
        _ if has_stream => (Some(legacy()?), Some(legacy()?)),
        _ if request.no_stream == NoStream::Trust => (None, None),
        _ => (None, Some(legacy()?)),
    };
    if let Some(on) = on {
        tensor.wait(on)?;
        tensor.uses().wait(on)?;
        if !has_stream && request.no_stream == NoStream::HostSync {
            on.synchronize()?;
        }
    }
    let by_policy = !has_stream && request.no_stream == NoStream::LegacyDefault;
    let behind = if by_policy { Some(legacy()?) } else { said }.map(HeldStream::new).transpose()?;
    Ok(Prepared { typestr, said, behind, ready: tensor.ready().again() })
}

fn hand_over(
    tensor: Tensor,
    Prepared { typestr, said, behind, ready }: Prepared,
    max_version: i32,
) -> std::result::Result<Owned, Refused<Tensor>> {
    let ndim = tensor.shape().len();
    let size = match TailSize::default().and::<i64>(ndim) {
        Ok(size) => size,
        Err(error) => return Err(Refused { error, returned: tensor }),
    };
    let export = Export { tensor, typestr, behind, _ready: ready, _entry: Entry::open(Kind::TensorExport) };
    let slab = Slab::new(export, size)
        .map_err(|refused| Refused { error: refused.error, returned: refused.returned.tensor })?;
    let Export { tensor, typestr, .. } = slab.header();
    let width = tensor.dtype().element_bytes().unwrap_or(1) as i64;
    let strides = slab.tail().carve::<i64>(ndim);
    for (i, stride) in tensor.strides().iter().enumerate() {
        // SAFETY: the tail has room for `ndim` strides. The product is an offset within addressable memory, or has no meaning.
        unsafe { crate::memory::set_entry(strides, i, stride.wrapping_mul(width)) };
    }
    let array = DevxCudaArray {
        version: max_version.min(DEVX_CUDA_ARRAY_VERSION),
        read_only: tensor.flags().has(Flags::READ_ONLY).into(),
        data: if tensor.layout().elements == 0 { std::ptr::null_mut() } else { tensor.data() },
        ndim: ndim as i64,
        shape: tensor.shape().as_ptr(),
        strides: if tensor.layout().row_major { std::ptr::null() } else { strides.cast_const() },
        typestr: CStr::from_bytes_until_nul(typestr).unwrap_or_default().as_ptr(),
        descr: std::ptr::null(),
        mask: std::ptr::null(),
        stream: said.map_or(DEVX_CUDA_ARRAY_NO_STREAM, Stream::value),
        release: Some(release_export),
        private_data: slab.as_raw(),
    };
    slab.into_raw();
    Ok(Owned { array, is_ours: true })
}

unsafe extern "C" fn release_export(array: *mut DevxCudaArray) {
    // SAFETY: the consumer calls this with a valid struct.
    let Some(array) = (unsafe { array.as_mut() }) else { return };
    if array.release.take().is_some() {
        let slab: *mut c_void = array.private_data;
        // SAFETY: made by `hand_over`, and marked as released above.
        let export = unsafe { Slab::<Export>::from_raw(slab) };
        let Export { tensor, behind, .. } = export.header();
        if let Some(held) = behind {
            release_behind(Whole::Tensor(tensor.clone()), held.stream());
        }
    }
}
