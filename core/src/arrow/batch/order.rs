//! When a batch may be touched, on which streams, and who still uses it.

use super::Batch;
use crate::device::Device;
use crate::error::{Result, refuse};
use crate::memory::InOrder;
use crate::order::{Ready, Uses};
use crate::runtime::cuda::Event;
use crate::runtime::cuda::copy::Copied;
use crate::stream::{RawStream, Stream};
use crate::view::{View, Whole};

impl Batch {
    /// See [`Tensor::set_ready`](crate::Tensor::set_ready).
    pub(crate) fn set_ready(&mut self, ready: Ready) {
        if let Some(header) = self.0.unique() {
            header.ready = ready;
        }
    }

    /// Makes this batch a view, whose memory has the owner that `view` names. Same conditions as [`Batch::set_ready`].
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

    /// Says when a batch of columns may be touched. Its owner keeps the columns, and what uses the batch uses the
    /// columns. Same conditions as [`Batch::set_ready`].
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(in crate::arrow) fn set_parts<'a>(
        &mut self,
        ready: Ready,
        columns: impl Iterator<Item = &'a Self>,
    ) -> Result<()> {
        // Uses of host memory are not noted.
        let uses = match self.device() {
            Device::CPU => Uses::default(),
            _ => Uses::of_parts(columns.map(|column| Whole::Batch(column.clone())))?,
        };
        if let Some(header) = self.0.unique() {
            (header.ready, header.uses) = (ready, uses);
        }
        Ok(())
    }

    /// When the data may be touched.
    pub fn ready(&self) -> &Ready {
        &self.0.header().ready
    }

    /// Checks that the host can read the buffers where they are, now. Buffers that were filled on a stream pass once that work
    /// is done.
    ///
    /// # Errors
    /// `DEVX_DEVICE` for device memory, `DEVX_NOT_READY`, `DEVX_DRIVER`.
    #[inline]
    pub fn require_host(&self) -> Result<()> {
        self.device().require_host()?;
        self.ready().require_now()
    }

    /// The stream that a number stands for, for work with this batch; see [`crate::Tensor::stream`].
    ///
    /// # Errors
    /// Same as [`crate::Tensor::stream`].
    pub fn stream(&self, value: RawStream) -> Result<Stream> {
        let device = self.device_of(value);
        device.stream_with(device, value)
    }

    /// Like [`Batch::stream`], but for a copy to `target`; see [`crate::Tensor::stream_to`].
    ///
    /// # Errors
    /// Same as [`crate::Tensor::stream_to`].
    pub fn stream_to(&self, target: Device, value: RawStream) -> Result<Stream> {
        target.stream_to_copy(self.device_of(value), value)
    }

    /// See [`Device::of_stream`].
    pub(crate) fn device_of(&self, value: RawStream) -> Device {
        let buffers = || (0..self.schema().nodes()).flat_map(|node| self.buffers(node));
        let any = || buffers().copied().find(|address| !address.is_null());
        self.device().of_stream(value, || any().unwrap_or(std::ptr::null()))
    }

    /// Says that the data is there when the work that is queued on `stream` is done; see
    /// [`crate::Tensor::produced_on`].
    ///
    /// # Errors
    /// Same as [`crate::Tensor::produced_on`].
    ///
    /// # Safety
    /// Same as [`crate::Tensor::produced_on`].
    pub unsafe fn produced_on(&mut self, stream: Stream) -> Result<()> {
        self.device().require_streams()?;
        let ready = Ready::queued(stream)?;
        match self.0.unique() {
            Some(header) => {
                header.uses.filled_on(header.source.owner(), stream)?;
                header.ready = ready;
                Ok(())
            }
            None => refuse!(DEVX_INVALID_ARGUMENT, "the batch is shared already: others may rely on its order"),
        }
    }

    /// Makes `stream` wait, on the device, until the data may be touched; see [`crate::Tensor::wait`].
    ///
    /// # Errors
    /// Same as [`Ready::wait`].
    pub fn wait(&self, stream: Stream) -> Result<()> {
        self.ready().wait(stream)
    }

    /// Says that work which is queued on `stream` uses the data; see [`crate::Tensor::used_on`].
    ///
    /// # Errors
    /// Same as [`crate::Tensor::used_on`].
    pub fn used_on(&self, stream: Stream) -> Result<()> {
        self.device().require_streams()?;
        self.0.header().uses.add(stream)
    }

    /// See [`Uses::in_order`].
    pub(crate) fn in_order(&self) -> Option<InOrder> {
        self.uses().in_order(self.owner())
    }

    /// The work that was noted with [`Batch::used_on`].
    pub(crate) fn uses(&self) -> &Uses {
        &self.0.header().uses
    }

    /// See [`Uses::add_event`].
    pub(crate) fn used_until(&self, event: Event) -> Result<()> {
        self.0.header().uses.add_event(event)
    }

    /// See [`Uses::hold`].
    pub(crate) fn hold<T>(&self, stream: Stream, copied: &Copied<T>) -> Result<()> {
        self.0.header().uses.hold(self.device(), stream, copied, || self.clone().into_owner())
    }
}
