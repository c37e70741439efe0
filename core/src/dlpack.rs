//! DLPack 1.3: both structs, export and import. Exports always write strides (DLPack ≥ 1.2); imports accept structs without
//! them. Exports fold `byte_offset` into `data`, because some consumers do not look at it.

mod legacy;
mod versioned;

use core::ffi::c_void;
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::abi::dlpack::{
    DLManagedTensor, DLManagedTensorVersioned, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion, DLTensor,
};
use crate::abi::types::{DEVX_COPY_ALWAYS, DEVX_COPY_IF_NEEDED, DEVX_COPY_NEVER, DEVX_DEVICE, DevxDlpackRequest};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Refused, Result, refuse};
use crate::layout;
use crate::ledger::{Entry, Kind};
use crate::memory::{Borrowed, Owner, Slab, TailSize};
use crate::order::Ready;
use crate::stream::RawStream;
use crate::tensor::{Flags, Tensor, TensorDesc};

/// The newest version that this library writes.
pub const VERSION: DLPackVersion = DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION };

/// Whether an export may copy. A DLPack export copies host memory only, including pinned and managed memory. A copy of device
/// memory needs a stream: it is refused with `DEVX_DEVICE`, and the error points to [`Tensor::copy_to`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// Refuse rather than copy.
    #[default]
    Never,
    /// Copy where a view is not possible.
    IfNeeded,
    /// Always copy.
    Always,
}

impl Copying {
    /// Converts from `DEVX_COPY_…`.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for another number.
    pub fn from_raw(value: i32) -> Result<Self> {
        match value {
            DEVX_COPY_NEVER => Ok(Self::Never),
            DEVX_COPY_IF_NEEDED => Ok(Self::IfNeeded),
            DEVX_COPY_ALWAYS => Ok(Self::Always),
            _ => refuse!(DEVX_INVALID_ARGUMENT, "copy is {value}: neither never (0), if needed (1) nor always (2)"),
        }
    }
}

/// A consumer's request for an export (array API, `__dlpack__`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Highest version that the consumer reads.
    pub max_version: DLPackVersion,
    /// The consumer's stream; see [`check_stream`](crate::order::check_stream).
    pub stream: RawStream,
    /// Whether the export may copy.
    pub copy: Copying,
}

/// The newest version, no copy, and no synchronisation: for a consumer that has no stream yet and later makes its own stream
/// wait for the data. Only [`Owned::import`] knows what to wait for; for any other consumer, make the request with its stream.
impl Default for Request {
    fn default() -> Self {
        Self { max_version: VERSION, stream: RawStream::NO_SYNC, copy: Copying::Never }
    }
}

impl Request {
    /// Converts from the C record.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for an unknown `copy`.
    ///
    /// # Safety
    /// The contract of [`RawStream::new`] holds for the request's stream.
    pub unsafe fn from_raw(request: &DevxDlpackRequest) -> Result<Self> {
        let max_version = DLPackVersion { major: request.max_major, minor: request.max_minor };
        // SAFETY: the caller's contract.
        let stream = unsafe { RawStream::new(request.stream) };
        Ok(Self { max_version, stream, copy: Copying::from_raw(request.copy)? })
    }
}

/// A struct of DLPack that carries its own deleter.
pub trait Managed: sealed::Sealed + Sized {
    #[doc(hidden)]
    const IMPORT: ImportParts<Self>;
    /// Returns the tensor that this library handed over as `managed`; `None` if another producer made the struct.
    ///
    /// # Safety
    /// `managed` is a valid struct that was not given back, and is not given back while the result is in use.
    #[doc(hidden)]
    unsafe fn exported<'a>(managed: *const Self) -> Option<Borrowed<'a, Tensor>>;
    #[doc(hidden)]
    fn export(tensor: Tensor, request: &Request) -> std::result::Result<Owned<Self>, Refused<Tensor>>;
    #[doc(hidden)]
    #[inline]
    fn share(tensor: &Tensor, request: &Request) -> Result<Owned<Self>> {
        Ok(Self::export(tensor.clone(), request)?)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::DLManagedTensor {}
    impl Sealed for super::DLManagedTensorVersioned {}
}

#[doc(hidden)]
#[derive(Debug)]
pub struct ImportParts<M> {
    describe: unsafe fn(*const M) -> Result<(*const DLTensor, Flags)>,
    delete: unsafe extern "C" fn(*mut c_void),
}

/// A tensor that was handed over and not taken yet. The holder of this value owns the tensor; dropping it calls the deleter.
pub struct Owned<M: Managed>(NonNull<M>);

impl<M: Managed> fmt::Debug for Owned<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owned").field(&self.0).finish()
    }
}

// SAFETY: DLPack lets a consumer on any thread use a tensor and call its deleter.
unsafe impl<M: Managed> Send for Owned<M> {}
// SAFETY: a shared reference does not read the struct.
unsafe impl<M: Managed> Sync for Owned<M> {}

impl<M: Managed> Owned<M> {
    /// Takes ownership of a tensor from outside.
    ///
    /// # Safety
    /// `managed` is a valid tensor that the caller owns and does not use any more. Its data is ready as for [`import`].
    pub unsafe fn from_raw(managed: NonNull<M>) -> Self {
        Self(managed)
    }

    /// Returns the address of the struct, which this value still owns: for a look at it, or for a consumer that takes the
    /// tensor only if it succeeds. If it has, give the value up with [`Owned::into_raw`].
    pub fn as_ptr(&self) -> *mut M {
        self.0.as_ptr()
    }

    /// Returns the address for a consumer, which then has to call the deleter.
    pub fn into_raw(self) -> *mut M {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// Imports the tensor; if it is refused, it is given back. A tensor that this library exported may be touched when the
    /// original tensor may be, whatever stream the request named.
    ///
    /// # Errors
    /// Same as [`import`].
    pub fn import(self) -> std::result::Result<Tensor, Refused<Self>> {
        // SAFETY: valid and owned, by `from_raw` or because it was exported by this library; it is given up below.
        let ready = unsafe { M::exported(self.0.as_ptr()) }.map(|tensor| tensor.ready().again());
        // SAFETY: as above.
        match unsafe { import(self.0.as_ptr()) } {
            Ok(mut tensor) => {
                self.into_raw();
                if let Some(ready) = ready {
                    tensor.set_ready(ready);
                }
                Ok(tensor)
            }
            Err(error) => Err(Refused { error, returned: self }),
        }
    }
}

impl<M: Managed> Drop for Owned<M> {
    fn drop(&mut self) {
        // SAFETY: owned and not given away, so the deleter is ours to call.
        unsafe { (M::IMPORT.delete)(self.0.as_ptr().cast()) }
    }
}

/// Takes a tensor from its producer. On success its deleter is called once, when the last user of the returned tensor is gone.
/// On failure the struct is untouched and still the caller's. Data that is not on the CPU is taken to be ready in the order of
/// the legacy default stream.
///
/// A struct of another major version is refused after reading only its version; the caller then calls its deleter (DLPack 1.3,
/// `DLPackVersion`).
///
/// # Errors
/// `DEVX_NULL_ARGUMENT`, `DEVX_VERSION`, `DEVX_DEVICE`, `DEVX_INVALID_DTYPE`, `DEVX_INVALID_SHAPE`,
/// `DEVX_INVALID_ARGUMENT`, each with the field and its value.
///
/// # Safety
/// `source` is NULL or points to a valid tensor that the caller owns. Data on the CPU is ready, other data in the order named
/// above: this call does not wait for a stream.
#[inline(always)]
pub unsafe fn import<M: Managed>(source: *mut M) -> Result<Tensor> {
    // SAFETY: the caller's contract.
    unsafe { import_on(source, None) }
}

/// Like [`import`], but for a tensor that was requested from its producer with `stream`: its data is ready for work that is
/// queued on that stream from now on. Without a stream, this is [`import`]. The same holds for
/// [`NO_SYNC`](crate::order::NO_SYNC), which requests nothing of the producer and says nothing about the data. The driver is
/// only queried for the device that pinned or managed memory was made for, whose default stream is meant.
///
/// ```no_run
/// use core::ffi::c_void;
/// use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
/// use devexchange_core::{RawStream, Result, Stream, dlpack};
///
/// # fn launch(_: *mut c_void, _: i64) {}
/// # fn asked_of_producer(_stream: i64) -> *mut DLManagedTensorVersioned { std::ptr::null_mut() }
/// # fn main() -> Result<()> {
/// let (stream, other) = (Stream::create(0)?, Stream::create(0)?);
/// let asked = RawStream::from(stream);
/// let managed = asked_of_producer(asked.value()); // `__dlpack__(stream=…)`, for example
/// // SAFETY: a valid tensor, which nobody else owns. Its producer was asked for it with this stream.
/// let tensor = unsafe { dlpack::import_on(managed, Some(asked)) }?;
/// launch(tensor.data(), asked.value()); // a kernel of yours that reads the elements
/// tensor.used_on(stream)?; // the memory is kept until that kernel is done
///
/// tensor.wait(other)?; // on another stream, work comes after that of the producer
/// launch(tensor.data(), other.value());
/// tensor.used_on(other)?;
/// drop(tensor); // the deleter is called after both kernels, and nobody waits here
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of [`import`]; `DEVX_INVALID_STREAM` for a stream that the tensor's device does not have.
///
/// # Safety
/// Same as [`import`].
#[inline(always)]
pub unsafe fn import_on<M: Managed>(source: *mut M, stream: Option<RawStream>) -> Result<Tensor> {
    if source.is_null() {
        return refuse!(DEVX_NULL_ARGUMENT, "tensor is NULL");
    }
    // SAFETY: not NULL, and valid by the caller's contract.
    let (tensor, flags) = unsafe { (M::IMPORT.describe)(source) }?;
    // SAFETY: as above; `describe` verified that the struct has the layout that we know.
    let tensor = unsafe { &*tensor };
    // SAFETY: the caller owns the tensor and gives it to us once nothing can fail any more.
    let owner = || unsafe { Owner::counted(source.cast(), M::IMPORT.delete, Kind::TensorImport) };
    match stream {
        // SAFETY: the caller's contract.
        None => unsafe { described(tensor, flags, owner) },
        Some(stream) => {
            // SAFETY: as above.
            let mut imported = unsafe { described_on(tensor, flags, stream) }?;
            imported.adopt(owner());
            Ok(imported)
        }
    }
}

/// Creates a tensor over memory that `owner` keeps alive, from a plain `DLTensor`, as a C producer provides it. Takes one block
/// of memory; shape and strides are copied. `owner` is called once nothing can fail any more.
///
/// # Errors
/// Same as [`import`].
///
/// # Safety
/// `tensor`, its shape and its strides are valid for the length of the call. The memory that it describes meets the contract of
/// [`Tensor::from_raw_parts`].
#[inline]
pub unsafe fn described(tensor: &DLTensor, flags: Flags, owner: impl FnOnce() -> Owner) -> Result<Tensor> {
    // SAFETY: the caller's contract.
    match unsafe { Tensor::plain::<false, _>(tensor, flags, owner) } {
        Ok(plain) => Ok(plain),
        // SAFETY: as above.
        Err(owner) => unsafe { described_with_care(tensor, flags, owner) },
    }
}

/// Handles tensors that are column-major or not plain. A separate function, to keep the path for plain row-major tensors small.
///
/// # Safety
/// Same as [`described`].
#[cold]
#[inline(never)]
unsafe fn described_with_care(tensor: &DLTensor, flags: Flags, owner: impl FnOnce() -> Owner) -> Result<Tensor> {
    // SAFETY: the caller's contract.
    let owner = match unsafe { Tensor::plain::<true, _>(tensor, flags, owner) } {
        Ok(plain) => return Ok(plain),
        Err(owner) => owner,
    };
    // SAFETY: as above.
    let mut made = Tensor::describe(&unsafe { describe(tensor, flags) }?)?;
    made.adopt(owner());
    Ok(made)
}

/// # Safety
/// Same as [`described`].
unsafe fn described_on(tensor: &DLTensor, flags: Flags, stream: RawStream) -> Result<Tensor> {
    // SAFETY: the caller's contract.
    let mut made = unsafe { described(tensor, flags, Owner::none) }?;
    if let Some(stream) = made.asked(stream)? {
        made.set_ready(Ready::queued(stream)?);
    }
    Ok(made)
}

/// Hands a tensor to a consumer ([`Owned::into_raw`]), which calls the deleter once. Takes one block of memory if another
/// consumer holds this tensor, too, or if the struct is the legacy one; otherwise none. To keep the tensor, use [`share`].
///
/// The consumer is told that the memory is a copy ([`Flags::IS_COPIED`]) only if it gets the last reference.
///
/// # Errors
/// `DEVX_VERSION` if the consumer does not read this struct, `DEVX_READ_ONLY` and `DEVX_UNSUPPORTED` for what the struct cannot
/// express (the legacy one, or a version older than a flag), `DEVX_INVALID_STREAM`; with [`Copying::Always`] those of
/// [`Tensor::copy`]. The tensor is given back.
#[inline(always)]
pub fn export<M: Managed>(tensor: Tensor, request: &Request) -> std::result::Result<Owned<M>, Refused<Tensor>> {
    match make_ready(&tensor, request.stream) {
        Ok(()) => M::export(tensor, request),
        Err(error) => Err(Refused { error, returned: tensor }),
    }
}

/// Like [`export`], but the caller keeps the tensor.
///
/// # Errors
/// Same as [`export`].
#[inline(always)]
pub fn share<M: Managed>(tensor: &Tensor, request: &Request) -> Result<Owned<M>> {
    make_ready(tensor, request.stream)?;
    M::share(tensor, request)
}

/// Describes a tensor to a consumer that uses it for the length of one call, and makes the consumer's `stream` wait for the
/// data. Nothing is handed over: the description is valid as long as the tensor.
///
/// # Errors
/// `DEVX_READ_ONLY` and `DEVX_UNSUPPORTED` for what a plain `DLTensor` cannot express, `DEVX_INVALID_STREAM`, `DEVX_DRIVER`.
pub fn borrow(tensor: &Tensor, stream: RawStream) -> Result<DLTensor> {
    require_no_padding(tensor)?;
    if tensor.flags().has(Flags::READ_ONLY) {
        return refuse!(DEVX_READ_ONLY, "flags has READ_ONLY: a plain DLTensor has no flags to express it");
    }
    make_ready(tensor, stream)?;
    Ok(tensor.as_dltensor())
}

/// Checks that a struct without flags can express the tensor's elements: padded sub-byte elements need a flag.
fn require_no_padding(tensor: &Tensor) -> Result<()> {
    if tensor.is_padded() {
        return refuse!(
            DEVX_UNSUPPORTED,
            "flags has SUBBYTE_PADDED: a struct of DLPack without flags cannot express it"
        );
    }
    Ok(())
}

/// Makes the consumer's stream wait for the data.
#[inline]
fn make_ready(tensor: &Tensor, stream: RawStream) -> Result<()> {
    match tensor.asked(stream)? {
        Some(stream) => tensor.wait(stream),
        None => Ok(()),
    }
}

/// Reads the description in a plain `DLTensor`, as a C producer provides it.
///
/// # Errors
/// Same as [`import`].
///
/// # Safety
/// `tensor`, its shape and its strides are valid for as long as the result is used.
pub unsafe fn describe<'a>(tensor: &'a DLTensor, flags: Flags) -> Result<TensorDesc<'a>> {
    let ndim = layout::dimensions(tensor.ndim.into(), !tensor.shape.is_null())?;
    // SAFETY: not NULL unless `ndim` is 0; a producer's shape has `ndim` extents.
    let shape = unsafe { extents(tensor.shape, ndim) };
    // SAFETY: as above, for strides.
    let strides = (!tensor.strides.is_null()).then(|| unsafe { extents(tensor.strides, ndim) });
    Ok(TensorDesc {
        data: tensor.data,
        device: Device::from_dlpack(tensor.device)?,
        dtype: DType::from_dlpack(tensor.dtype)?,
        shape,
        strides,
        byte_offset: tensor.byte_offset,
        flags,
    })
}

/// # Safety
/// `n` is 0, or `from` points to `n` values that outlive the result.
#[inline]
unsafe fn extents<'a>(from: *const i64, n: usize) -> &'a [i64] {
    if n == 0 {
        return &[];
    }
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(from, n) }
}

// ---- what both structs share ----

/// A struct that a consumer holds, and what it keeps alive.
struct Export<M> {
    managed: UnsafeCell<M>,
    tensor: Tensor,
    _entry: Entry,
}

/// Puts the managed struct of `tensor` at a stable address. `fill` gets the context that [`take_back`] takes.
#[inline]
fn hand_over<M: Managed>(
    tensor: Tensor,
    fill: impl FnOnce(&Tensor, *mut c_void) -> M,
) -> std::result::Result<Owned<M>, Refused<Tensor>> {
    let room = match Slab::<Export<M>>::room(TailSize::default()) {
        Ok(room) => room,
        Err(error) => return Err(Refused { error, returned: tensor }),
    };
    let entry = Entry::open(Kind::TensorExport);
    let managed = UnsafeCell::new(fill(&tensor, room.as_raw()));
    let slab = room.fill(Export { managed, tensor, _entry: entry });
    let managed = slab.header().managed.get();
    slab.into_raw();
    // SAFETY: the address is inside a block, so not NULL.
    Ok(Owned(unsafe { NonNull::new_unchecked(managed) }))
}

/// Returns the tensor that a struct of [`hand_over`] keeps alive.
///
/// # Safety
/// `context` is from [`hand_over`] of the same type and is not given back while the result is in use.
unsafe fn kept<'a, M>(context: *mut c_void) -> Borrowed<'a, Tensor> {
    // SAFETY: the caller's contract.
    let export = ManuallyDrop::new(unsafe { Slab::<Export<M>>::from_raw(context) });
    // SAFETY: the export keeps its tensor.
    unsafe { Tensor::borrow_raw(export.header().tensor.as_raw()) }
}

/// Gives up the reference that a consumer held.
///
/// # Safety
/// `context` is from [`hand_over`] of the same type and is given back once, here.
#[inline]
unsafe fn take_back<M>(context: *mut c_void) {
    // SAFETY: the caller's contract.
    drop(unsafe { Slab::<Export<M>>::from_raw(context) });
}

#[inline(always)]
fn copy_if(tensor: Tensor, copy: bool) -> std::result::Result<Tensor, Refused<Tensor>> {
    if !copy {
        return Ok(tensor);
    }
    tensor.copy().map_err(|error| Refused { error: not_copied(&tensor, error), returned: tensor })
}

/// Says why an export could not copy. Only `copy_to` names a stream for copying device memory.
#[cold]
fn not_copied(tensor: &Tensor, error: Error) -> Error {
    if tensor.device().is_host() {
        return error;
    }
    let device = tensor.device();
    let why =
        format_args!("device is {device}, not host memory: an export copies nothing else; make a copy first (copy_to)");
    Error::new(DEVX_DEVICE, why)
}
