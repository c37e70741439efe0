//! Slices of device memory of the crate `cudarc`, as tensors and back; with the feature `cudarc`.
//!
//! | of cudarc | here | |
//! |---|---|---|
//! | `CudaSlice<T>`, given away | [`Tensor`] | [`Tensor::from_cuda_slice`] |
//! | `Arc<CudaSlice<T>>`, kept and read | [`Tensor`] | [`Tensor::from_shared_cuda_slice`] |
//! | `&CudaSlice<T>`, `CudaView<T>`, `CudaViewMut<T>`, for work on a stream | [`Tensor`] | [`Tensor::as_cuda_slice`] |
//! | `CudaStream` | [`Stream`] | [`Stream::from_cudarc`] |
//! | `DriverError` | [`Error`] | `From` |
//!
//! ```no_run
//! # use cudarc::driver::CudaContext;
//! # use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
//! # use devexchange_core::dlpack::{self, Owned, Request};
//! # use devexchange_core::Tensor;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let stream = CudaContext::new(0)?.new_stream()?;
//! let slice = stream.clone_htod(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//!
//! // cudarc's memory goes to any consumer of DLPack: to wait for the data is to wait for the stream.
//! let tensor = Tensor::from_cuda_slice(slice, &[2, 3])?;
//! let handed: Owned<DLManagedTensorVersioned> = dlpack::export(tensor, &Request::default())?;
//!
//! // A tensor of any producer becomes a slice of cudarc, for copies and kernels on a stream.
//! let seen = handed.import()?;
//! let slice = seen.as_cuda_slice::<f32>(&stream)?;
//! assert_eq!(stream.clone_dtoh(&*slice)?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
//! # Ok(())
//! # }
//! # fn as_an_argument(
//! #     kernel: &cudarc::driver::CudaFunction,
//! #     stream: &std::sync::Arc<cudarc::driver::CudaStream>,
//! #     slice: &devexchange_core::cudarc_slice::BorrowedSlice<f32>,
//! # ) {
//! #     cudarc::driver::PushKernelArg::arg(&mut stream.launch_builder(kernel), &**slice);
//! # }
//! ```
//!
//! **Ownership.** A tensor made from a slice gives the slice up when nobody uses the tensor any more, in the order of the
//! slice's stream: the host does not wait. One that is shared is given up after the work that was noted, on the host. A slice
//! made from a tensor keeps the tensor alive, and cudarc never frees its memory.
//!
//! **Order.** Work that is queued with a slice comes before the work that a consumer of the tensor queues. In the other
//! direction, a stream waits until the tensor may be touched, and the work that is queued on it when the slice goes out of
//! scope is noted as a use of the tensor ([`Tensor::used_on`]). For work on further streams, cudarc keeps the last read and the
//! last write; it is called to make the slice's stream wait for both. With event tracking turned off (`disable_event_tracking`)
//! it keeps nothing: whoever turned it off has to make the slice's stream wait. And if no stream that it made is left, it does
//! not make a default stream wait: drop a slice of a default stream before the last of the other streams that used it.
//!
//! **Host memory.** Pinned and managed memory can be a slice of cudarc, too ([`Tensor::as_cuda_slice`]). Do not pass such
//! memory to cudarc as a Rust slice ([`Tensor::as_slice`]): cudarc assumes that copies of it are done when the call returns,
//! but a copy of pinned memory is not, and nothing waits for it.
//!
//! **Contexts.** Slices and streams belong to primary contexts, like those of `CudaContext::new`. The context that is current
//! on the calling thread does not change.
//!
//! **Versions.** cudarc has the types of one version of CUDA: the one that any crate of the program selects by a feature such
//! as `cuda-13000`, otherwise that of the `nvcc` on the machine that builds the program, otherwise the newest.

use core::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, CudaViewMut, DevicePtr, DevicePtrMut, DriverError};

use crate::abi::types::DEVX_DRIVER;
use crate::device::{Device, DeviceType};
use crate::dtype::Element;
use crate::error::{Error, Refused, Result, caught, refuse};
use crate::memory::{Owner, Vacant};
use crate::order::{GiveUp, Ready, release_behind};
use crate::runtime::cuda::context;
use crate::runtime::cuda::driver::{Code, Driver};
use crate::runtime::cuda::lost::{self, Held};
use crate::runtime::cuda::reaper::Later;
use crate::stream::{LEGACY, PER_THREAD, RawStream, Stream};
use crate::tensor::{Flags, Tensor, TensorDesc};
use crate::view::Whole;

impl Stream {
    /// Wraps a stream of cudarc.
    ///
    /// # Errors
    /// `DEVX_UNSUPPORTED` if its context is not its device's primary one, `DEVX_DEVICE`, `DEVX_DRIVER`.
    ///
    /// # Safety
    /// The contract of [`RawStream::new`] holds, and `stream` is kept for as long as the result is used.
    pub unsafe fn from_cudarc(stream: &CudaStream) -> Result<Self> {
        let ordinal = ordinal(stream.context());
        // NULL is the legacy default stream, which has a number here; the per-thread one has the same number in both.
        let value = match stream.cu_stream().expose_provenance() as i64 {
            0 => LEGACY,
            handle => handle,
        };
        // SAFETY: the caller's contract.
        let stream_of_ours = Self::new(ordinal, unsafe { RawStream::new(value) })?;
        context::require_primary(stream.context().cu_ctx(), ordinal)?;
        Ok(stream_of_ours)
    }
}

fn ordinal(context: &CudaContext) -> i32 {
    i32::try_from(context.ordinal()).unwrap_or(i32::MAX)
}

/// `DEVX_DRIVER` or `DEVX_OUT_OF_MEMORY`, with the driver's code and its name for it.
impl From<DriverError> for Error {
    fn from(DriverError(code): DriverError) -> Self {
        let code = code as u32;
        // Without a driver there are no names, and cudarc would panic.
        let named = Driver::get().ok().and_then(|driver| driver.check("cudarc", Code(code)).err());
        named.unwrap_or_else(|| Self::driver(DEVX_DRIVER, code as i32, format_args!("cudarc: driver code {code}")))
    }
}

// ---- slice → tensor ----

impl Tensor {
    /// Takes a slice of cudarc, as a compact row-major tensor of this shape, which may be written. Nothing is copied. The data
    /// is ready after the work queued with the slice ([the module](self) says how far cudarc knows of that work). The slice is
    /// dropped, on any thread, when nobody uses the tensor any more.
    ///
    /// # Errors
    /// `DEVX_INVALID_SHAPE` if the shape does not have as many elements as the slice, `DEVX_UNSUPPORTED` if the context is not
    /// the device's primary one or if cudarc would have to make a stream wait that is being captured, `DEVX_OUT_OF_MEMORY`,
    /// `DEVX_DEVICE`, `DEVX_DRIVER`. The last also reports earlier failures that cudarc could not report when they happened.
    /// The slice is given back.
    pub fn from_cuda_slice<T: Element>(
        mut slice: CudaSlice<T>,
        shape: &[i64],
    ) -> std::result::Result<Self, Refused<CudaSlice<T>>> {
        let (stream, length) = (Arc::clone(slice.stream()), slice.len());
        let address = || slice.device_ptr_mut(&stream).0;
        let described = described::<T>(&stream, length, shape, Flags::default(), address);
        match described.and_then(|described| Ok((described, Vacant::new()?))) {
            Ok((Described { mut tensor, queued, in_order }, room)) => {
                tensor.adopt(Owner::releasing(room, in_order, move || give_up(slice, queued)));
                Ok(tensor)
            }
            Err(error) => Err(Refused { error, returned: slice }),
        }
    }

    /// Like [`Tensor::from_cuda_slice`], but the program goes on reading the slice, and the tensor is read-only. It holds the
    /// slice until nobody uses it any more and the work that was noted with [`Tensor::used_on`] is done. If the program is the
    /// only holder then, it can write the slice (`Arc::get_mut`).
    ///
    /// # Errors
    /// Same as [`Tensor::from_cuda_slice`]. The slice is given back.
    pub fn from_shared_cuda_slice<T: Element>(
        slice: Arc<CudaSlice<T>>,
        shape: &[i64],
    ) -> std::result::Result<Self, Refused<Arc<CudaSlice<T>>>> {
        let stream = slice.stream();
        let described = described::<T>(stream, slice.len(), shape, Flags::READ_ONLY, || slice.device_ptr(stream).0);
        match described.and_then(|described| Ok((described, Vacant::new()?))) {
            // Not in the order of the slice's stream: cudarc does not know that others have used the slice, so its other
            // streams would not wait for that.
            Ok((Described { mut tensor, queued, .. }, room)) => {
                tensor.adopt(Owner::releasing(room, None, move || give_up(slice, queued)));
                Ok(tensor)
            }
            Err(error) => Err(Refused { error, returned: slice }),
        }
    }
}

/// A tensor of a slice, without its owner.
struct Described {
    tensor: Tensor,
    queued: Stream,
    /// The stream in whose order the memory is given back, if there is one.
    in_order: Option<Stream>,
}

/// Describes a slice of `stream`. `address` makes the stream wait for the work with the slice, and returns its address.
fn described<T: Element>(
    stream: &Arc<CudaStream>,
    length: usize,
    shape: &[i64],
    flags: Flags,
    address: impl FnOnce() -> u64,
) -> Result<Described> {
    // SAFETY: the slice keeps its stream, and the tensor will keep the slice.
    let queued = unsafe { Stream::from_cudarc(stream) }?;
    let elements = shape.iter().try_fold(1_i64, |elements, extent| elements.checked_mul(*extent));
    if elements != Some(length as i64) {
        return refuse!(DEVX_INVALID_SHAPE, "shape is {shape:?}: the slice has {length} elements");
    }
    // cudarc would draw what is outside of the capture into it, and its events of the capture could not be waited for later.
    if stream.context().is_managing_stream_synchronization() {
        queued.require_no_capture()?;
    }
    let _current = queued.enter()?;
    // Like every function of cudarc, this first reports earlier failures that could not be reported when they happened.
    stream.context().check_err()?;
    let address = caught(|| Ok(address()))?;
    stream.context().check_err()?;
    let desc = TensorDesc {
        data: std::ptr::with_exposed_provenance_mut::<c_void>(address as usize),
        device: Device::new(DeviceType::CUDA, queued.ordinal().into())?,
        dtype: T::DTYPE,
        shape,
        strides: None,
        byte_offset: 0,
        flags,
    };
    let mut tensor = Tensor::describe(&desc)?;
    tensor.set_ready(Ready::queued(queued)?);
    // On the thread that drops the slice, the per-thread default stream is another one, so the work on this one is waited for.
    let is_of_thread = queued.value() == PER_THREAD;
    if is_of_thread {
        tensor.used_on(queued)?;
    }
    // Without pools, cudarc waits for the stream and then frees the memory.
    let in_order = (stream.context().has_async_alloc() && !is_of_thread).then_some(queued);
    Ok(Described { tensor, queued, in_order })
}

/// Drops a slice, or what shares one, on any thread: cudarc makes its context current where necessary, and leaves it current.
fn give_up<S: Send + 'static>(slice: S, queued: Stream) {
    // The free and cudarc's waits would become part of a graph.
    if queued.takes_no_release() {
        return match Later::new().ok().zip(Vacant::find()) {
            Some((later, room)) => {
                let release = move || give_up(slice, queued);
                later.release_after_capture(queued, Owner::releasing(room, None, release));
            }
            None => {
                std::mem::forget(slice);
                lost::abandon(Owner::none());
            }
        };
    }
    match queued.enter() {
        Ok(_current) => drop(slice),
        // In a child of `fork` the memory is the parent's, and after the end of the driver it is gone. Otherwise it is lost,
        // and counted as lost.
        Err(error) => {
            std::mem::forget(slice);
            lost::check_returned("a slice of cudarc", Code(error.driver_code() as u32));
        }
    }
}

// ---- tensor → slice ----

impl Tensor {
    /// Returns the elements as a slice of cudarc, for work on `stream`, which waits until they may be touched. Nothing is
    /// copied. When the slice is dropped, the work queued on `stream` until then is noted as a use of the tensor, which is kept
    /// until that work is done.
    ///
    /// # Errors
    /// `DEVX_MISMATCH` for another element type, `DEVX_COPY_REQUIRED` if the strides are not row-major, `DEVX_DEVICE` for
    /// memory of the host or of another GPU, `DEVX_UNSUPPORTED` if the stream's context is not the device's primary one or if
    /// the stream is being captured and would have to wait, `DEVX_DRIVER` (also for earlier failures, as in
    /// [`Tensor::from_cuda_slice`]), `DEVX_PANIC` if cudarc cannot make its two events.
    pub fn as_cuda_slice<T: Element>(&self, stream: &Arc<CudaStream>) -> Result<BorrowedSlice<T>> {
        self.require_elements::<T>()?;
        self.require_compact()?;
        // SAFETY: the result keeps the stream.
        let queued = unsafe { Stream::from_cudarc(stream) }?;
        let Device { kind, id } = self.device();
        let is_seen = match kind {
            DeviceType::CUDA => id == queued.ordinal(),
            _ => self.device().require_streams().is_ok(),
        };
        if !is_seen {
            return refuse!(
                DEVX_DEVICE,
                "the tensor is on {}: a slice is of the GPU of its stream, which is {}",
                self.device(),
                Device { kind: DeviceType::CUDA, id: queued.ordinal() }
            );
        }
        self.wait(queued)?;
        let is_captured = queued.is_capturing()?;
        let _current = queued.enter()?;
        stream.context().check_err()?;
        let address = self.data().expose_provenance() as u64;
        // cudarc makes two events, and panics if it cannot.
        let slice = caught(|| {
            // SAFETY: the memory has that many elements, and the slice frees nothing, as it is never dropped.
            let slice = unsafe { stream.upgrade_device_ptr::<T>(address, self.layout().elements) };
            let mut slice = ManuallyDrop::new(slice);
            // Recorded as a write here, so that cudarc's other streams wait for what this stream was made to wait for.
            drop(slice.device_ptr_mut(stream));
            Ok(slice)
        })?;
        let held = ManuallyDrop::new((ManuallyDrop::into_inner(slice), Arc::clone(stream)));
        Ok(BorrowedSlice { held, tensor: self.clone(), queued, is_captured })
    }
}

/// A tensor as a slice of cudarc ([`Tensor::as_cuda_slice`]). Wherever cudarc takes a `&CudaSlice`, pass `&*` of this. Drop it
/// when all work with it is queued.
pub struct BorrowedSlice<T: 'static> {
    /// Never dropped: on drop, the slice would free memory that is not its own.
    held: ManuallyDrop<(CudaSlice<T>, Arc<CudaStream>)>,
    tensor: Tensor,
    queued: Stream,
    /// Whether the stream was captured when the slice was made, so that cudarc's events are of the capture.
    is_captured: bool,
}

impl<T: 'static> BorrowedSlice<T> {
    /// Returns a view for writing the elements. Work that is queued on the stream afterwards sees the new values.
    ///
    /// # Errors
    /// `DEVX_READ_ONLY`.
    ///
    /// # Safety
    /// Nobody else uses the elements before the write is done.
    pub unsafe fn as_view_mut(&mut self) -> Result<CudaViewMut<'_, T>> {
        self.tensor.require_writable()?;
        Ok(self.held.0.as_view_mut())
    }

    /// Returns the tensor that the elements belong to.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}

/// There is no `DerefMut`: a slice that was swapped out for another one would be dropped by its new holder.
impl<T: 'static> Deref for BorrowedSlice<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.held.0
    }
}

impl<T: 'static> Drop for BorrowedSlice<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, because this value is being dropped.
        let (slice, stream) = unsafe { ManuallyDrop::take(&mut self.held) };
        let (slice, whole, queued) = (Some(ManuallyDrop::new(slice)), Whole::Tensor(self.tensor.clone()), self.queued);
        let mut last = Last { slice, stream, whole, queued };
        // The events of a capture can be waited for within the capture only; after it, the driver refuses that.
        if self.is_captured {
            last.end_slice(queued.is_capturing() != Ok(true));
        }
        release_behind(last, queued);
    }
}

/// What is given up of a [`BorrowedSlice`] after the work on its stream.
struct Last<T> {
    slice: Option<ManuallyDrop<CudaSlice<T>>>,
    stream: Arc<CudaStream>,
    whole: Whole,
    queued: Stream,
}

impl<T> Last<T> {
    /// Frees nothing, and makes the stream wait for the work queued on other streams, unless its waits are `refused`.
    fn end_slice(&mut self, refused: bool) {
        let Some(slice) = self.slice.take() else { return };
        // Otherwise the driver must not be called, or it fails: the release of the tensor deals with that.
        if let Ok(_current) = self.queued.enter() {
            let context = self.stream.context();
            // As long as cudarc has a failure to report, it makes no stream wait.
            let earlier = context.check_err();
            let _address = ManuallyDrop::into_inner(slice).leak();
            if refused {
                let _ = context.check_err();
            }
            context.record_err(earlier);
        }
    }

    fn into_whole(self) -> Whole {
        // Current until the stream is given up, and possibly its context with it.
        match self.queued.enter() {
            Ok(_current) => drop(self.stream),
            Err(_) => std::mem::forget(self.stream),
        }
        self.whole
    }
}

impl<T: 'static> GiveUp for Last<T> {
    fn note(&mut self, stream: Stream) -> Result<()> {
        if !stream.takes_no_release() {
            self.end_slice(false);
        }
        self.whole.note(stream)
    }

    fn give_up(self) {
        self.into_whole().give_up();
    }

    fn keep(self) -> Held {
        self.into_whole().keep()
    }
}

impl<T: 'static> fmt::Debug for BorrowedSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BorrowedSlice")
            .field("tensor", &self.tensor)
            .field("stream", &self.queued)
            .finish_non_exhaustive()
    }
}
