//! Closed streams: each is destroyed when nothing needs it any more. The reaper looks after the releases that wait for work.
//! Data that is ready behind a stream holds the stream, and so does memory that goes back in its order, until it has.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::driver::{Code, Driver};
use super::event::Event;
use super::{lost, waiting};
use crate::error::{Result, refuse};
use crate::memory::{Slab, TailSize, push};
use crate::stream::{PER_THREAD, RawStream, Stream};

struct Streams {
    /// Streams that are closed and not destroyed yet, each with a mark after the releases that may use it.
    closed: Vec<(u64, Stream)>,
    /// The handles of the streams that are held, closed or not, and how often each is held.
    held: Vec<(i64, usize)>,
}

static STREAMS: Mutex<Streams> = Mutex::new(Streams { closed: Vec::new(), held: Vec::new() });

/// Takes the lock. The caller has a driver, which a forked child never has; there, the parent may have held the lock.
fn streams(_driver: &Driver) -> MutexGuard<'static, Streams> {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Streams {
    /// The count of holds of a stream, if it is held.
    fn holds(&mut self, handle: i64) -> Option<&mut usize> {
        self.held.iter_mut().find_map(|(held, times)| (*held == handle).then_some(times))
    }

    /// Takes out a stream that nothing needs any more.
    fn take_due(&mut self) -> Option<Stream> {
        let Self { closed, held } = self;
        let is_due = |(mark, stream): &(u64, Stream)| {
            waiting::is_past(*mark) && held.iter().all(|(held, _)| *held != stream.value())
        };
        closed.iter().position(is_due).map(|at| closed.swap_remove(at).1)
    }
}

impl Stream {
    /// Closes a stream: it is destroyed when all releases that wait for work now are done, and when nothing holds it any more.
    /// It is held by:
    /// * tensors and batches that were allocated, copied, imported, produced or made of columns on it, and whatever was handed
    ///   on from these,
    /// * CUDA arrays that were exported for it,
    /// * memory of a pool that goes back in its order,
    /// * every [`Hold`].
    ///
    /// The caller need not know whether a consumer's release is still to come.
    ///
    /// # Errors
    /// Same as [`Stream::destroy`], also for streams that were closed before; `DEVX_OUT_OF_MEMORY`, and then the stream is not
    /// closed.
    ///
    /// # Safety
    /// Nobody queues work on the stream any more, except for releases and holders.
    pub unsafe fn close(self) -> Result<()> {
        self.require_made()?;
        let mut streams = streams(Driver::get()?);
        if streams.closed.iter().any(|(_, closed)| closed.value() == self.value()) {
            return refuse!(DEVX_INVALID_STREAM, "stream is {:#x}: it is closed already, and only held", self.value());
        }
        push(&mut streams.closed, (waiting::mark(), self))?;
        drop(streams);
        Self::destroy_closed()
    }

    /// Destroys the closed streams that nothing needs any more. The last release or holder of a stream does this by
    /// itself; call this to have it done now.
    ///
    /// # Errors
    /// Same as [`Stream::destroy`].
    pub fn destroy_closed() -> Result<()> {
        // Without a driver there are no streams.
        let Some(driver) = Driver::loaded() else { return Ok(()) };
        let mut done = Ok(());
        loop {
            // Asked with the lock held: by the time a stream is in the list, all of its releases wait or are done.
            let due = streams(driver).take_due();
            let Some(stream) = due else { return done };
            // SAFETY: the stream is closed, the releases that waited for work are done, and nobody holds it.
            done = done.and(unsafe { stream.destroy() });
        }
    }
}

/// Like [`Stream::destroy_closed`], where an error cannot be returned.
pub(super) fn destroy() {
    if let Err(error) = Stream::destroy_closed() {
        lost::check_returned("a closed stream", Code(error.driver_code() as u32));
    }
}

/// A stream that its owner closes ([`Stream::close`]) when it is dropped, whatever way a function is left. Wherever a
/// [`Stream`] is asked for, pass `*` of this.
///
/// ```no_run
/// use devexchange_core::{DType, Device, DeviceStream, Result, Tensor};
///
/// # fn main() -> Result<()> {
/// // SAFETY: no copy of the stream is used after this function.
/// let stream = unsafe { DeviceStream::create(0) }?;
/// // If this fails, the stream is closed all the same.
/// let tensor = Tensor::allocate(Device::cuda(0), DType::FLOAT32, &[2, 3], Some(*stream))?;
/// # drop(tensor);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the stream is closed when this is dropped"]
pub struct DeviceStream(Stream);

impl DeviceStream {
    /// Creates a stream; see [`Stream::create`].
    ///
    /// # Errors
    /// Same as [`Stream::create`].
    ///
    /// # Safety
    /// The contract of [`Stream::close`] holds when the result is dropped: nobody uses a copy of the stream after that.
    pub unsafe fn create(ordinal: i32) -> Result<Self> {
        Stream::create(ordinal).map(Self)
    }

    /// Returns the stream for somebody else, who then destroys or closes it.
    pub fn into_stream(self) -> Stream {
        ManuallyDrop::new(self).0
    }
}

impl Deref for DeviceStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.0
    }
}

impl Drop for DeviceStream {
    fn drop(&mut self) {
        // SAFETY: nobody uses the stream any more, by the contract of `create`.
        if let Err(error) = unsafe { self.0.close() } {
            lost::check_returned("a stream", Code(error.driver_code() as u32));
        }
    }
}

/// Holds a stream: if the stream is closed meanwhile, it is destroyed only after the hold is dropped.
///
/// It is for memory that a function gives back in the order of a stream some time after the release. Make the hold with the
/// memory, and drop it when that function has run, or never will. Any thread may drop it.
#[derive(Debug)]
#[must_use = "the stream is held as long as this lives"]
pub struct Hold {
    /// 0 if there is nothing to hold.
    handle: i64,
}

impl Hold {
    /// Holds a stream by its number, as the protocols write it. There is nothing to hold for a default stream, which is never
    /// destroyed, for no stream (−1), and in a child of `fork`, which destroys no streams.
    ///
    /// # Errors
    /// `DEVX_INVALID_STREAM` for 0, which is ambiguous, and for negative numbers other than −1; `DEVX_OUT_OF_MEMORY`.
    pub fn new(stream: i64) -> Result<Self> {
        // SAFETY: the number may name no stream, so only its form is checked.
        let said = unsafe { RawStream::new(stream) };
        if said != RawStream::NO_SYNC {
            Stream::new(0, said)?;
        }
        // Looked for, because the program may have made the stream itself before this library needed the driver.
        let Some(Ok(driver)) = (stream > PER_THREAD).then(Driver::get) else { return Ok(Self::none()) };
        let mut streams = streams(driver);
        match streams.holds(stream) {
            Some(times) => *times += 1,
            None => push(&mut streams.held, (stream, 1))?,
        }
        Ok(Self { handle: stream })
    }

    /// Holds no stream.
    pub const fn none() -> Self {
        Self { handle: 0 }
    }

    /// Turns the hold into a number that keeps it; 0 if there is nothing to hold.
    pub fn into_raw(self) -> i64 {
        ManuallyDrop::new(self).handle
    }

    /// Takes a hold back.
    ///
    /// # Safety
    /// `raw` is from [`Hold::into_raw`] and is taken back once.
    pub unsafe fn from_raw(raw: i64) -> Self {
        Self { handle: raw }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(driver) = Driver::loaded().filter(|_| self.handle != 0) else { return };
        let mut streams = streams(driver);
        if let Some(times) = streams.holds(self.handle) {
            *times -= 1;
        }
        streams.held.retain(|(_, times)| *times > 0);
        let some_wait = !streams.closed.is_empty();
        drop(streams);
        if some_wait {
            destroy();
        }
    }
}

/// A stream that is held, as by [`Hold`], for data that is ready behind it. Cloning shares the hold. It is only a pointer, so
/// that data without a stream wastes no room on it.
#[derive(Clone, Debug)]
pub struct HeldStream(Slab<Held>);

#[derive(Debug)]
struct Held {
    stream: Stream,
    _hold: Hold,
    /// After the last work on the stream that concerns the data, if that is known.
    last: Option<Event>,
}

impl HeldStream {
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn new(stream: Stream) -> Result<Self> {
        Self::with(stream, None)
    }

    /// The work that is queued now is the last that concerns the data.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, `DEVX_DRIVER`.
    pub(crate) fn at_end(stream: Stream) -> Result<Self> {
        Self::with(stream, Some(Event::record(stream)?))
    }

    fn with(stream: Stream, last: Option<Event>) -> Result<Self> {
        let hold = if stream.is_default() { Hold::none() } else { Hold::new(stream.value())? };
        Ok(Self(Slab::new(Held { stream, _hold: hold, last }, TailSize::default())?))
    }

    /// The stream, which exists as long as this holds it. The caller must not keep it longer.
    pub(crate) fn stream(&self) -> Stream {
        self.0.header().stream
    }

    /// Whether the work on the stream that concerns the data is done. Does not wait.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub(crate) fn is_done(&self) -> Result<bool> {
        match &self.0.header().last {
            Some(event) => event.is_complete(),
            None => self.stream().is_done(),
        }
    }
}
