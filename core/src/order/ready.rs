//! When data may be touched.

use core::ffi::c_void;

use crate::device::Device;
use crate::error::{Result, refuse};
use crate::runtime::cuda::{Event, ForeignEvent, HeldStream};
use crate::stream::{RawStream, Stream};

/// When data may be touched. It cannot be cloned, because an event that came with the data is valid only as long as the data.
#[derive(Debug)]
pub enum Ready {
    /// Now.
    Now,
    /// After the work that is queued on the legacy default stream of a device when the data is handed on.
    Legacy(i32),
    /// After the work that is queued on this stream when the data is handed on; see [`Ready::queued`].
    Queued(HeldStream),
    /// After an event.
    After(Event),
    /// After the producer's event, which lives as long as the data (Arrow's `sync_event`).
    Foreign(ForeignEvent),
}

impl Ready {
    /// The order of data of which nothing is known: on a GPU it counts as queued on the legacy default stream (array API,
    /// `stream=None`; CUDA Array Interface before version 3).
    #[inline]
    pub fn unknown(device: Device) -> Self {
        device.legacy_stream().map_or(Self::Now, |stream| Self::Legacy(stream.ordinal()))
    }

    /// After the work that is queued on `stream` when the data is handed on. The stream is held until then, so it can be
    /// closed ([`Stream::close`]) without regard to the data.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn queued(stream: Stream) -> Result<Self> {
        // The legacy default stream is never destroyed.
        if stream == Stream::legacy(stream.ordinal()) {
            return Ok(Self::Legacy(stream.ordinal()));
        }
        HeldStream::new(stream).map(Self::Queued)
    }

    /// Like [`Ready::queued`], for data that the host can read where it is, and that is complete after the work queued until
    /// now: the host may read it then, whatever is queued on the stream later.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, `DEVX_DRIVER`.
    pub(crate) fn filled(stream: Stream) -> Result<Self> {
        HeldStream::at_end(stream).map(Self::Queued)
    }

    /// The stream that the data is queued on, if a stream is what it waits for.
    pub(crate) fn stream(&self) -> Option<Stream> {
        match self {
            Self::Legacy(ordinal) => Some(Stream::legacy(*ordinal)),
            Self::Queued(queued) => Some(queued.stream()),
            Self::Now | Self::After(_) | Self::Foreign(_) => None,
        }
    }

    /// Like [`Ready::unknown`], but for memory at an address, which may be that of another device ([`Device::of_stream`]).
    pub(crate) fn unknown_at(device: Device, address: *const c_void) -> Self {
        Self::unknown(device.of_stream(RawStream::LEGACY, || address))
    }

    /// Makes `stream` wait, on the device, until the data may be touched.
    ///
    /// # Errors
    /// `DEVX_DRIVER`; `DEVX_UNSUPPORTED` if the stream is being captured and would have to wait for work outside the capture.
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
    /// Same as [`Stream::synchronize`]; `DEVX_UNSUPPORTED` for the producer's event.
    pub(crate) fn synchronize(&self) -> Result<()> {
        match self {
            Self::Now => Ok(()),
            Self::Legacy(ordinal) => Stream::legacy(*ordinal).synchronize(),
            Self::Queued(queued) => queued.stream().synchronize(),
            Self::After(event) => event.synchronize(),
            Self::Foreign(_) => refuse!(DEVX_UNSUPPORTED, "the memory is ready after somebody else's event"),
        }
    }

    /// Another handle to the same order, for a holder that keeps the data alive.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Now => Self::Now,
            Self::Legacy(ordinal) => Self::Legacy(*ordinal),
            Self::Queued(stream) => Self::Queued(stream.clone()),
            Self::After(event) => Self::After(event.clone()),
            Self::Foreign(event) => Self::Foreign(event.again()),
        }
    }

    /// Returns what an Arrow `sync_event` holds: the address of an event's handle, or NULL if the data is ready. If an event
    /// had to be recorded, it is returned too; other events live as long as the data.
    ///
    /// # Errors
    /// `DEVX_DRIVER`; `DEVX_UNSUPPORTED` if the stream is being captured, because an event in a graph cannot be waited for
    /// outside the graph.
    #[inline]
    pub(crate) fn sync_event(&self) -> Result<(*mut c_void, Option<Event>)> {
        if let Self::Now = self { Ok((std::ptr::null_mut(), None)) } else { self.sync_event_later() }
    }

    /// Out of line, so that data which is ready costs nothing here.
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

    /// Merges several orders into one: `stream` waits for all of them, so work that is queued on it afterwards comes after all.
    ///
    /// # Errors
    /// Same as [`Ready::wait`]; `DEVX_OUT_OF_MEMORY`.
    pub fn merge<'a>(all: impl IntoIterator<Item = &'a Self>, stream: Stream) -> Result<Self> {
        for one in all {
            one.wait(stream)?;
        }
        Self::queued(stream)
    }

    /// Checks that the data may be touched now. The host does not wait here, so the queued work must already be done.
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
            Self::Queued(queued) => queued.is_done()?,
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

/// Records an event behind the work queued on a stream. An event of a capture would draw streams that wait for it into the
/// capture.
fn recorded(queued: Stream) -> Result<Event> {
    queued.require_no_capture()?;
    Event::record(queued)
}
