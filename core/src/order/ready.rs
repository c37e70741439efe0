//! When data may be touched.

use core::ffi::c_void;

use crate::device::Device;
use crate::error::{Result, refuse};
use crate::runtime::cuda::{Event, ForeignEvent, HeldStream};
use crate::stream::{RawStream, Stream};

/// When data may be touched. It cannot be cloned: what the data came with is good as long as the data.
#[derive(Debug)]
pub enum Ready {
    /// Now.
    Now,
    /// After what was queued on the legacy default stream of a device when the data is handed on.
    Legacy(i32),
    /// The same of any stream. See [`Ready::queued`].
    Queued(HeldStream),
    /// After an event.
    After(Event),
    /// After an event of the producer's, which lives as long as the data (Arrow's `sync_event`).
    Foreign(ForeignEvent),
}

impl Ready {
    /// What is right for data of which nothing is known: on a GPU it was queued on the legacy default stream (array API,
    /// `stream=None`; CUDA Array Interface before version 3).
    #[inline]
    pub fn unknown(device: Device) -> Self {
        device.legacy_stream().map_or(Self::Now, |stream| Self::Legacy(stream.ordinal()))
    }

    /// After what was queued on `stream` when the data is handed on. The stream is held until then: who closes it
    /// ([`Stream::close`]) need not know of the data.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn queued(stream: Stream) -> Result<Self> {
        // That one is never destroyed.
        if stream == Stream::legacy(stream.ordinal()) {
            return Ok(Self::Legacy(stream.ordinal()));
        }
        HeldStream::new(stream).map(Self::Queued)
    }

    /// The stream that the data was queued on, if that says when it may be touched.
    pub(crate) fn stream(&self) -> Option<Stream> {
        match self {
            Self::Legacy(ordinal) => Some(Stream::legacy(*ordinal)),
            Self::Queued(queued) => Some(queued.stream()),
            Self::Now | Self::After(_) | Self::Foreign(_) => None,
        }
    }

    /// As [`Ready::unknown`], of memory at an address, whose device may be another one ([`Device::of_stream`]).
    pub(crate) fn unknown_at(device: Device, address: *const c_void) -> Self {
        Self::unknown(device.of_stream(RawStream::LEGACY, || address))
    }

    /// Makes `stream` wait, on the device, until the data may be touched.
    ///
    /// # Errors
    /// `DEVX_DRIVER`; `DEVX_UNSUPPORTED` if the stream is being captured and would have to wait for work outside of it.
    pub fn wait(&self, stream: Stream) -> Result<()> {
        let behind = |queued| {
            if queued == stream {
                return Ok(());
            }
            stream.require_no_capture()?;
            recorded(queued)?.wait(stream)
        };
        match self {
            Self::Now => Ok(()),
            Self::Legacy(ordinal) => behind(Stream::legacy(*ordinal)),
            Self::Queued(queued) => behind(queued.stream()),
            Self::After(event) => {
                stream.require_no_capture()?;
                event.wait(stream)
            }
            Self::Foreign(event) => {
                stream.require_no_capture()?;
                event.wait(stream)
            }
        }
    }

    /// Blocks the host until the data may be touched.
    ///
    /// # Errors
    /// As [`Stream::synchronize`]; `DEVX_UNSUPPORTED` for an event of the producer's.
    pub(crate) fn synchronize(&self) -> Result<()> {
        match self {
            Self::Now => Ok(()),
            Self::Legacy(ordinal) => Stream::legacy(*ordinal).synchronize(),
            Self::Queued(queued) => queued.stream().synchronize(),
            Self::After(event) => event.synchronize(),
            Self::Foreign(_) => refuse!(DEVX_UNSUPPORTED, "the memory is ready after somebody else's event"),
        }
    }

    /// The same once more, for who keeps the data.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Now => Self::Now,
            Self::Legacy(ordinal) => Self::Legacy(*ordinal),
            Self::Queued(stream) => Self::Queued(stream.clone()),
            Self::After(event) => Self::After(event.clone()),
            Self::Foreign(event) => Self::Foreign(event.again()),
        }
    }

    /// What an Arrow `sync_event` holds: the address of an event's handle, or NULL for data that is ready. With it comes the
    /// event, if one had to be recorded; others live as long as the data.
    ///
    /// # Errors
    /// `DEVX_DRIVER`; `DEVX_UNSUPPORTED` if the stream is being captured, as an event in a graph cannot be waited for
    /// outside of it.
    #[inline]
    pub(crate) fn sync_event(&self) -> Result<(*mut c_void, Option<Event>)> {
        if let Self::Now = self { Ok((std::ptr::null_mut(), None)) } else { self.sync_event_later() }
    }

    /// Apart, so that data which is ready pays for nothing of it.
    #[inline(never)]
    fn sync_event_later(&self) -> Result<(*mut c_void, Option<Event>)> {
        let behind = |queued| recorded(queued).map(|event| (event.address(), Some(event)));
        match self {
            Self::Now => Ok((std::ptr::null_mut(), None)),
            Self::Legacy(ordinal) => behind(Stream::legacy(*ordinal)),
            Self::Queued(queued) => behind(queued.stream()),
            Self::After(event) => Ok((event.address(), None)),
            Self::Foreign(event) => Ok((event.address(), None)),
        }
    }

    /// One order out of several: `stream` waits for all of them, and so what is queued there afterwards comes after all.
    ///
    /// # Errors
    /// As [`Ready::wait`].
    pub fn merge<'a>(all: impl IntoIterator<Item = &'a Self>, stream: Stream) -> Result<Self> {
        for one in all {
            one.wait(stream)?;
        }
        Self::queued(stream)
    }

    /// For the host, which does not wait by itself: what is queued may be done, or have been waited for.
    ///
    /// # Errors
    /// `DEVX_NOT_READY`, `DEVX_DRIVER`.
    #[inline]
    pub(crate) fn require_now(&self) -> Result<()> {
        if let Self::Now = self { Ok(()) } else { self.require_done() }
    }

    #[inline(never)]
    fn require_done(&self) -> Result<()> {
        let is_done = match self {
            Self::Now => true,
            Self::Legacy(ordinal) => Stream::legacy(*ordinal).is_done()?,
            Self::Queued(queued) => queued.stream().is_done()?,
            Self::After(event) => event.is_complete()?,
            Self::Foreign(event) => event.is_complete()?,
        };
        if is_done {
            return Ok(());
        }
        match self.stream() {
            Some(stream) => refuse!(
                DEVX_NOT_READY,
                "the data is queued on stream {:#x} of cuda:{}, which is not done: synchronize it first",
                stream.value(),
                stream.ordinal()
            ),
            None => refuse!(DEVX_NOT_READY, "the data comes after an event that is not complete: wait for that first"),
        }
    }
}

/// An event behind what is queued on a stream. One of a capture would draw who waits for it into that.
fn recorded(queued: Stream) -> Result<Event> {
    queued.require_no_capture()?;
    Event::record(queued)
}
