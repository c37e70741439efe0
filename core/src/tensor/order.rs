//! When a tensor may be touched, on which streams, and who still uses it.

use super::Tensor;
use crate::device::Device;
use crate::error::{Result, refuse};
use crate::order::{Ready, Uses, check_stream, release_behind};
use crate::runtime::cuda::Event;
use crate::stream::{RawStream, Stream};
use crate::view::{View, Whole};

impl Tensor {
    /// Sets when the data may be touched, if that is not after the work queued on the legacy default stream. For the maker of a
    /// tensor: there must be no second reference to it yet.
    #[inline]
    pub(crate) fn set_ready(&mut self, ready: Ready) {
        if let Some(header) = self.0.unique() {
            header.ready = ready;
        }
    }

    /// Sets the stream that the producer works on, which is made to wait for all uses at the end. For the maker of a tensor,
    /// like [`Tensor::set_ready`].
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(crate) fn set_producer(&mut self, producer: Stream) -> Result<()> {
        if let Some(header) = self.0.unique() {
            header.uses = Uses::lent(producer)?;
        }
        Ok(())
    }

    /// Makes this tensor a view, whose memory has the owner that `view` names. For the maker of a tensor, like
    /// [`Tensor::set_ready`].
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(crate) fn set_view(&mut self, view: View) -> Result<()> {
        let order = view.order()?;
        if let Some(header) = self.0.unique() {
            (header.ready, header.uses) = order;
        }
        Ok(())
    }

    /// Says that the data is ready when the work queued on `stream` is done: for work on a stream other than the one that the
    /// tensor was made on, which is the legacy default stream if no other was named, and on any stream for pinned or managed
    /// memory that was allocated here, which counts as ready at once. Call it before the tensor is shared. Memory that is given
    /// back in the order of another stream then goes back only after this work, too. The stream must outlive the tensor and
    /// everything exported from it, but may be [closed](Stream::close) before.
    ///
    /// ```no_run
    /// use core::ffi::c_void;
    /// use devexchange_core::{DType, Device, Result, Stream, Tensor};
    ///
    /// # fn launch(_: *mut c_void, _: i64) {}
    /// # fn main() -> Result<()> {
    /// let device = Device::cuda(0);
    /// let (own, work) = (Stream::create(0)?, Stream::create(0)?);
    /// let mut tensor = Tensor::allocate(device, DType::FLOAT32, &[2, 3], Some(own))?;
    /// tensor.wait(work)?; // the memory is there for work on `own`; on another stream, after it
    /// launch(tensor.data(), work.value()); // a kernel of yours that writes the elements; the number is a `CUstream`
    /// // SAFETY: all work that writes the data is queued on `work`.
    /// unsafe { tensor.produced_on(work) }?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` if the tensor is shared already, `DEVX_DEVICE` if its device has no streams. For memory that is
    /// given back in the order of another stream, also those of [`Tensor::used_on`].
    ///
    /// # Safety
    /// All work that writes the data is done, is queued on `stream` by now, or comes before work that is queued there: a
    /// consumer that waits for the stream will read the data.
    pub unsafe fn produced_on(&mut self, stream: Stream) -> Result<()> {
        self.device().require_streams()?;
        let ready = Ready::queued(stream)?;
        match self.0.unique() {
            Some(header) => {
                header.uses.filled_on(Some(&header.owner), stream)?;
                header.ready = ready;
                Ok(())
            }
            None => refuse!(DEVX_INVALID_ARGUMENT, "the tensor is shared already: others may rely on its order"),
        }
    }

    /// When the data may be touched.
    pub fn ready(&self) -> &Ready {
        &self.0.header().ready
    }

    /// Returns the stream that a number stands for, for work with this tensor. A default stream (1, 2) is that of the tensor's
    /// device; for pinned and managed memory, that of the device it was made for, which is looked up with the driver.
    ///
    /// # Errors
    /// `DEVX_DEVICE` if the tensor's device has no streams, `DEVX_INVALID_STREAM`.
    pub fn stream(&self, value: RawStream) -> Result<Stream> {
        let device = self.device_of(value);
        device.stream_with(device, value)
    }

    /// Like [`Tensor::stream`], but for a copy from or to `target`: if `target` is a GPU, it has streams, too. Between host
    /// memory that is not pinned, a default stream is that of device 0.
    ///
    /// # Errors
    /// `DEVX_DEVICE` if neither device has streams or is host memory, `DEVX_INVALID_STREAM`.
    pub fn stream_to(&self, target: Device, value: RawStream) -> Result<Stream> {
        target.stream_to_copy(self.device_of(value), value)
    }

    /// See [`Device::of_stream`].
    #[inline]
    pub(crate) fn device_of(&self, value: RawStream) -> Device {
        self.device().of_stream(value, || self.data().cast_const())
    }

    /// Returns the stream that a DLPack request for this tensor names; `None` for [`RawStream::NO_SYNC`].
    ///
    /// # Errors
    /// Same as [`check_stream`].
    #[inline]
    pub(crate) fn asked(&self, stream: RawStream) -> Result<Option<Stream>> {
        if stream == RawStream::NO_SYNC {
            return Ok(None);
        }
        check_stream(self.device(), stream.value())?;
        self.device_of(stream).stream(stream).transpose()
    }

    /// Makes `stream` wait, on the device, until the data may be touched. The host does not wait. Nothing has to be waited for
    /// if the data is ready, as host memory that is not pinned always is: a copy to a device can be written the same for all
    /// memory. [`import_on`](crate::dlpack::import_on) has an example.
    ///
    /// # Errors
    /// Same as [`Ready::wait`].
    pub fn wait(&self, stream: Stream) -> Result<()> {
        self.ready().wait(stream)
    }

    /// Says that the work queued on `stream` uses the data: the memory is released only when that work is done. Any thread may
    /// call this, for any number of streams. The stream is needed for this call only.
    /// [`import_on`](crate::dlpack::import_on) has an example.
    ///
    /// # Errors
    /// `DEVX_DEVICE` if the tensor's device has no streams: host memory that is not pinned is never used by queued work, and
    /// would not be kept for it. `DEVX_DRIVER`, `DEVX_UNSUPPORTED` under capture.
    pub fn used_on(&self, stream: Stream) -> Result<()> {
        self.device().require_streams()?;
        self.0.header().uses.add(stream)
    }

    /// Gives this reference up after the work queued on `stream` until now. Unlike [`Tensor::used_on`] followed by a drop, this
    /// is one step that cannot fail: if the work cannot be noted, the host waits for it. While the stream is being captured,
    /// the reference is given up when the capture has ended; the stream may be closed before ([`Stream::close`]), but must not
    /// be destroyed.
    pub fn release_after(self, stream: Stream) {
        release_behind(Whole::Tensor(self), stream);
    }

    /// Returns the work that was noted with [`Tensor::used_on`].
    pub(crate) fn uses(&self) -> &Uses {
        &self.0.header().uses
    }

    /// See [`Uses::add_event`].
    pub(crate) fn used_until(&self, event: Event) -> Result<()> {
        self.0.header().uses.add_event(event)
    }
}
