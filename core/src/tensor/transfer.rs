//! New memory for tensors, and copies between devices and the host.

use super::gather::gather;
use super::{Flags, Tensor, TensorDesc};
use crate::device::Device;
use crate::dtype::{DType, Element, Storable};
use crate::error::{Result, refuse};
use crate::layout::{self, Layout};
use crate::memory::{Owner, vector};
use crate::runtime::cuda::copy::{self, Copied};
use crate::stream::Stream;
use crate::transfer::{self, Memory};

impl Tensor {
    /// Creates a tensor over new memory of `device`, compact and row-major, that begins at a multiple of 256 bytes. Plain host
    /// memory is zeroed; in other memory the elements have arbitrary values. On a GPU the memory comes from the device's pool
    /// and is ready for work on `stream`, which must not be destroyed before the tensor is released, but may be
    /// [closed](Stream::close). Without a stream it is plain device memory, which can be used at once and counts as filled on
    /// the legacy default stream. Pinned and managed memory is made for the device of the stream, without a stream for that
    /// whose number `device` has; it counts as ready at once.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, `DEVX_INVALID_SHAPE`, `DEVX_DEVICE`, `DEVX_INVALID_STREAM` for a stream of another device,
    /// `DEVX_UNSUPPORTED` if the stream is being captured, `DEVX_DRIVER`.
    pub fn allocate(device: Device, dtype: DType, shape: &[i64], stream: Option<Stream>) -> Result<Self> {
        let checked = device.checked()?;
        // Managed memory is made for the device that was named, although the checked device is none in particular. Arrow's −1
        // names the first one.
        let named = Device { id: device.id.max(0), ..device };
        Self::made(checked, dtype, shape, |bytes| {
            let memory = transfer::allocate_readable(named, bytes, stream)?;
            Ok(Memory { ready: transfer::filled(checked, memory.ready), ..memory })
        })
    }

    /// Like [`Tensor::allocate`], but leaves the elements uninitialised: the caller writes all of them before anyone reads
    /// them.
    pub(crate) fn unwritten(device: Device, dtype: DType, shape: &[i64], stream: Option<Stream>) -> Result<Self> {
        Self::made(device, dtype, shape, |bytes| transfer::allocate(device, bytes, stream))
    }

    fn made(
        device: Device,
        dtype: DType,
        shape: &[i64],
        allocate: impl FnOnce(usize) -> Result<Memory>,
    ) -> Result<Self> {
        let bytes = layout::check(dtype, false, shape, None)?.bytes;
        let Memory { address: data, owner, ready } = allocate(bytes)?;
        let desc = TensorDesc { data, device, dtype, shape, strides: None, byte_offset: 0, flags: Flags::default() };
        // SAFETY: the memory has the bytes of the shape, and lives in the owner.
        let mut tensor = unsafe { Self::from_raw_parts(&desc, owner) }?;
        tensor.set_ready(ready);
        Ok(tensor)
    }

    /// Copies the tensor to another device (or the same one). The copy is queued on `stream` and ready after it; the host waits
    /// for a copy from or into host memory that is not pinned. The source is released only after the copy. Between host memory
    /// that is not pinned, no driver is needed; the same holds for [`Tensor::read`] and [`Tensor::write`].
    ///
    /// A copy from or to host memory that is not pinned puts elements into row-major order. Other copies keep the strides, and
    /// include what lies between the elements.
    ///
    /// # Errors
    /// Those of [`Tensor::allocate`], and for elements that are not in row-major order those of [`Tensor::copy`].
    pub fn copy_to(&self, device: Device, stream: Stream) -> Result<Self> {
        let device = device.checked()?;
        if transfer::is_by_host(self.device(), device) {
            return self.copy();
        }
        stream.require_no_capture()?;
        let copied = |tensor: &Self| tensor.copy_span(device, stream, transfer::allocating(device, stream)?);
        match (self.layout().row_major, self.device(), device) {
            (true, _, _) => copied(self),
            (false, Device::CPU, _) => copied(&self.copy()?),
            (false, _, Device::CPU) => copied(self)?.copy(),
            (false, _, _) => copied(self),
        }
    }

    /// Copies all bytes from the lowest element to the highest one, with the same strides; otherwise like [`Tensor::copy_to`].
    /// The memory is what [`transfer::allocate`] gives for `on`.
    ///
    /// # Errors
    /// Same as [`Tensor::allocate`].
    pub(crate) fn copy_span(&self, device: Device, stream: Stream, on: Option<Stream>) -> Result<Self> {
        let Layout { lowest, row_major, .. } = self.layout();
        let bytes = self.span_bytes();
        let memory = transfer::allocate(device, bytes, on)?;
        let is_in_order = memory.is_in_order();
        let Memory { address, owner, ready } = memory;
        let desc = TensorDesc {
            data: address.wrapping_byte_offset(lowest.wrapping_neg()),
            device,
            dtype: self.dtype(),
            shape: self.shape(),
            strides: (!row_major).then_some(self.strides()),
            byte_offset: 0,
            flags: self.flags().without(Flags::READ_ONLY).with(Flags::IS_COPIED),
        };
        // SAFETY: the memory has room for all elements and for what lies between them, and lives in the owner.
        let mut copy = unsafe { Self::from_raw_parts(&desc, owner) }?;
        copy.set_ready(ready);
        self.wait(stream)?;
        let copies = [(address, self.data().wrapping_byte_offset(lowest).cast_const(), bytes)];
        // SAFETY: the new memory is as large as the bytes to copy, and nobody else knows of it; `kept` keeps both alive.
        let filled = unsafe { transfer::fill(device, self.device(), &copies, stream) };
        let (source, own) = (|filled: &_| self.hold(stream, filled), |filled: &_| copy.hold(stream, filled));
        let ready = transfer::kept(filled, device, is_in_order, source, own)?;
        copy.set_ready(ready);
        Ok(copy)
    }

    /// Returns the number of bytes from the lowest element to the end of the highest one, with what lies between them.
    pub(crate) fn span_bytes(&self) -> usize {
        let Layout { lowest, end, .. } = self.layout();
        end.wrapping_sub(lowest).unsigned_abs()
    }

    /// See [`Uses::hold`](crate::order::Uses::hold).
    pub(crate) fn hold<T>(&self, stream: Stream, copied: &Copied<T>) -> Result<()> {
        self.0.header().uses.hold(self.device(), stream, copied, || Owner::of_slab(self.0.clone()))
    }

    /// Ends a copy between the elements and host memory that the host waits for. A copy that failed may still be running.
    fn done(&self, copied: Copied, stream: Stream) -> Result<()> {
        if copied.is_err() {
            let _ = self.hold(stream, &copied);
        }
        Ok(copied?)
    }

    /// Reads all elements into host memory, in row-major order. The host waits. Without a stream, the host itself reads the
    /// elements of a tensor that is in host memory and ready.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` if the number of bytes is not that of the elements, `DEVX_COPY_REQUIRED` if the elements are not
    /// compact, `DEVX_DRIVER`; without a stream those of [`Tensor::copy`].
    pub fn read(&self, into: &mut [u8], stream: Option<Stream>) -> Result<()> {
        self.require_bytes(into.len())?;
        self.require_compact()?;
        let Some(stream) = self.queued_on(stream)? else {
            // SAFETY: host memory, as large as the slice. The copy may overlap: a program in another language can pass that
            // very memory.
            unsafe { into.as_mut_ptr().copy_from(self.data().cast(), into.len()) };
            return Ok(());
        };
        stream.require_no_capture()?;
        self.wait(stream)?;
        let copy = (into.as_mut_ptr().cast(), self.data().cast_const(), into.len());
        // SAFETY: the slice is as large as the compact elements, and the host waits for the copy.
        let copied = unsafe { copy::now(Device::CPU, self.device(), copy, stream) };
        self.done(copied, stream)
    }

    /// Like [`Tensor::read`], but returns the elements in a new vector.
    ///
    /// # Errors
    /// Those of [`Tensor::read`]; `DEVX_MISMATCH` for another element type, `DEVX_OUT_OF_MEMORY`.
    pub fn read_vec<T: Element>(&self, stream: Option<Stream>) -> Result<Vec<T>> {
        self.require_elements::<T>()?;
        let Layout { elements, bytes, .. } = self.layout();
        let mut values: Vec<T> = vector(elements)?;
        let room = values.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: there is room for that many elements of this size.
        unsafe { room.write_bytes(0, bytes) };
        // SAFETY: as above, and initialised now.
        self.read(unsafe { std::slice::from_raw_parts_mut(room, bytes) }, stream)?;
        // SAFETY: all elements are initialised, and every bit pattern is an `Element`.
        unsafe { values.set_len(elements) };
        Ok(values)
    }

    /// Writes all elements from host memory, in row-major order. The host waits until they are written. Without a stream, the
    /// host itself writes the elements, as in [`Tensor::read`].
    ///
    /// # Errors
    /// Those of [`Tensor::read`]; `DEVX_READ_ONLY`.
    ///
    /// # Safety
    /// Nobody else uses the elements before the write is done.
    pub unsafe fn write(&self, from: &[u8], stream: Option<Stream>) -> Result<()> {
        self.require_bytes(from.len())?;
        self.require_compact()?;
        self.require_writable()?;
        let Some(stream) = self.queued_on(stream)? else {
            // SAFETY: host memory, as large as the slice, which may lie in that memory.
            unsafe { self.data().cast::<u8>().copy_from(from.as_ptr(), from.len()) };
            return Ok(());
        };
        stream.require_no_capture()?;
        self.wait(stream)?;
        let copy = (self.data(), from.as_ptr().cast(), from.len());
        // SAFETY: both are as large as the compact elements, and the host waits for the copy.
        let copied = unsafe { copy::now(self.device(), Device::CPU, copy, stream) };
        self.done(copied, stream)
    }

    /// Like [`Tensor::write`], but from values of the element type.
    ///
    /// # Errors
    /// Those of [`Tensor::write`]; `DEVX_MISMATCH` for another element type.
    ///
    /// # Safety
    /// Same as [`Tensor::write`].
    pub unsafe fn write_from<T: Storable>(&self, values: &[T], stream: Option<Stream>) -> Result<()> {
        self.require_dtype(T::STORED_AS)?;
        // SAFETY: these are the bytes of the values, which have no padding.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
        // SAFETY: the caller's contract.
        unsafe { self.write(bytes, stream) }
    }

    /// Returns the stream for a copy between the elements and host memory; `None` if the host itself copies, for which the
    /// elements are ready.
    fn queued_on(&self, stream: Option<Stream>) -> Result<Option<Stream>> {
        let Some(stream) = stream else {
            self.require_host_or("name a stream")?;
            return Ok(None);
        };
        Ok((!transfer::is_by_host(self.device(), Device::CPU)).then_some(stream))
    }

    /// Like [`Tensor::require_host`], but the error about device memory says what to do instead.
    fn require_host_or(&self, instead: &str) -> Result<()> {
        let device = self.device();
        if !device.is_host() {
            return refuse!(DEVX_DEVICE, "device is {device}, not host memory: {instead}");
        }
        self.ready().require_now()
    }

    fn require_bytes(&self, bytes: usize) -> Result<()> {
        let needed = self.layout().bytes;
        if bytes == needed {
            return Ok(());
        }
        refuse!(DEVX_INVALID_ARGUMENT, "there are {bytes} bytes, the elements are {needed}")
    }

    pub(crate) fn require_writable(&self) -> Result<()> {
        if self.flags().has(Flags::READ_ONLY) {
            return refuse!(DEVX_READ_ONLY, "flags has READ_ONLY: the tensor must not be written");
        }
        Ok(())
    }

    pub(crate) fn require_compact(&self) -> Result<()> {
        if self.layout().row_major {
            return Ok(());
        }
        refuse!(DEVX_COPY_REQUIRED, "strides {:?} of shape {:?} are not row-major", self.strides(), self.shape())
    }

    /// Copies the tensor into new host memory, compact and row-major. Takes two allocations.
    ///
    /// # Errors
    /// `DEVX_DEVICE` for device memory, `DEVX_NOT_READY`, `DEVX_UNSUPPORTED` for strided sub-byte elements that are not
    /// padded.
    pub fn copy(&self) -> Result<Self> {
        self.copy_on_host(|bytes| transfer::allocate(Device::CPU, bytes, None))
    }

    /// Like [`Tensor::copy`], but in host memory that `allocate` provides.
    ///
    /// # Errors
    /// Those of [`Tensor::copy`] and those of `allocate`.
    pub(crate) fn copy_on_host(&self, allocate: impl FnOnce(usize) -> Result<Memory>) -> Result<Self> {
        self.require_host_or("copy_to copies it, on a stream")?;
        let Layout { bytes, row_major, .. } = self.layout();
        let flags = self.flags().without(Flags::READ_ONLY).with(Flags::IS_COPIED);
        let width = self.width_to_gather(row_major)?;
        let Memory { address: data, owner, .. } = allocate(bytes)?;
        match width {
            // SAFETY: the strides lead to the tensor's elements, and the new memory has `bytes` bytes, which is their size.
            Some(width) => unsafe { gather(self.data().cast(), self.shape(), self.strides(), width, data.cast()) },
            None if bytes > 0 => {
                // SAFETY: a row-major tensor's elements are the `bytes` bytes from `data` on; the new memory is as large.
                unsafe { data.cast::<u8>().copy_from_nonoverlapping(self.data().cast(), bytes) };
            }
            None => {}
        }
        let (dtype, shape) = (self.dtype(), self.shape());
        let desc = TensorDesc { data, device: Device::CPU, dtype, shape, strides: None, byte_offset: 0, flags };
        // SAFETY: the memory has the bytes of the shape and lives in the owner.
        Ok(unsafe { Self::from_raw_parts(&desc, owner) }?)
    }

    /// Returns the bytes of an element, if a copy has to gather the elements.
    fn width_to_gather(&self, row_major: bool) -> Result<Option<usize>> {
        match self.dtype().element_bytes() {
            _ if row_major => Ok(None),
            Some(width) => Ok(Some(width)),
            None if self.flags().has(Flags::SUBBYTE_PADDED) => {
                Ok(Some(self.dtype().element_bits().div_ceil(8) as usize))
            }
            None => {
                refuse!(DEVX_UNSUPPORTED, "a strided tensor of {} cannot be copied: elements share bytes", self.dtype())
            }
        }
    }
}
