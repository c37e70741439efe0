//! When a tensor may be touched, on which streams, and who still uses it.

use super::Tensor;
use crate::device::Device;
use crate::error::{Result, refuse};
use crate::order::{Ready, Uses, check_stream, release_behind};
use crate::runtime::cuda::Event;
use crate::stream::{RawStream, Stream};
use crate::view::{View, Whole};

impl Tensor {
    /// Says when the data may be touched, if that is not after what is queued on the legacy default stream. For the maker
    /// of a tensor: there is no second reference to it yet.
    #[inline]
    pub(crate) fn set_ready(&mut self, ready: Ready) {
        if let Some(header) = self.0.unique() {
            header.ready = ready;
        }
    }

    /// Says on which stream the producer works, which is to wait for all uses in the end. As [`Tensor::set_ready`].
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(crate) fn set_producer(&mut self, producer: Stream) -> Result<()> {
        if let Some(header) = self.0.unique() {
            header.uses = Uses::lent(producer)?;
        }
        Ok(())
    }

    /// Makes this a view, whose memory has the owner that the view says. As [`Tensor::set_ready`].
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

    /// Says that the data is there when what is queued on `stream` is done: for a producer that worked on another stream
    /// than the legacy default one. To be called before the tensor is shared. Memory that is given back in the order of
    /// another stream is so only after that work, too. The stream outlives the tensor and what is exported of it,
    /// but may be [closed](Stream::close) before.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` if the tensor is shared already, `DEVX_DEVICE` if its device has no streams. Of memory that is
    /// given back in the order of another stream, as [`Tensor::used_on`].
    ///
    /// # Safety
    /// All that writes the data is done, or is queued on `stream` by now, or comes before what is queued there: who waits for
    /// the stream reads it.
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

    /// The stream that a number stands for, for work with this tensor. A default stream (1, 2) is that of the tensor's
    /// device; of pinned and managed memory, of the device that it was made for, which the driver is asked for.
    ///
    /// # Errors
    /// `DEVX_DEVICE` if the tensor's device has no streams, `DEVX_INVALID_STREAM`.
    pub fn stream(&self, value: RawStream) -> Result<Stream> {
        let device = self.device_of(value);
        device.stream_with(device, value)
    }

    /// As [`Tensor::stream`], for a copy to `target`, or from there, which has streams of its own if it is a GPU. Between host
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

    /// The stream that a DLPack request for this tensor asks for; `None` for [`RawStream::NO_SYNC`].
    ///
    /// # Errors
    /// As [`check_stream`].
    #[inline]
    pub(crate) fn asked(&self, stream: RawStream) -> Result<Option<Stream>> {
        if stream == RawStream::NO_SYNC {
            return Ok(None);
        }
        check_stream(self.device(), stream.value())?;
        self.device_of(stream).stream(stream).transpose()
    }

    /// Makes `stream` wait, on the device, until the data may be touched. The host does not wait.
    ///
    /// # Errors
    /// As [`Ready::wait`].
    pub fn wait(&self, stream: Stream) -> Result<()> {
        self.ready().wait(stream)
    }

    /// Says that work which is queued on `stream` uses the data: the memory is released only when that work is done. From
    /// any thread, as often as there are streams. The stream is needed for this call only.
    ///
    /// # Errors
    /// `DEVX_DEVICE` if the tensor's device has no streams, `DEVX_DRIVER`, `DEVX_UNSUPPORTED` under capture.
    pub fn used_on(&self, stream: Stream) -> Result<()> {
        self.device().require_streams()?;
        self.0.header().uses.add(stream)
    }

    /// Gives this reference up after what is queued on `stream` until now, in one step that cannot fail, as [`Tensor::used_on`]
    /// and a drop can: if the work cannot be noted, the host waits for it. Under capture it is given up when that has ended.
    pub fn release_after(self, stream: Stream) {
        release_behind(Whole::Tensor(self), stream);
    }

    /// The work that was noted with [`Tensor::used_on`].
    pub(crate) fn uses(&self) -> &Uses {
        &self.0.header().uses
    }

    /// See [`Uses::add_event`].
    pub(crate) fn used_until(&self, event: Event) -> Result<()> {
        self.0.header().uses.add_event(event)
    }
}
