//! Streams that were closed: each is destroyed when nothing needs it any more. The releases that wait for work are seen to
//! by the reaper; data that is ready behind a stream holds it, and so does memory that goes back in its order, until it has.

use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::driver::{Code, Driver};
use super::{lost, waiting};
use crate::error::{Result, refuse};
use crate::memory::{Slab, TailSize, push};
use crate::stream::{PER_THREAD, RawStream, Stream};

struct Streams {
    /// Closed and not destroyed yet; each with the mark behind the releases that may use it.
    closed: Vec<(u64, Stream)>,
    /// The handles of those that are held, closed or not, and how often each.
    held: Vec<(i64, usize)>,
}

static STREAMS: Mutex<Streams> = Mutex::new(Streams { closed: Vec::new(), held: Vec::new() });

/// By who has looked for the driver before: in a forked child there is none, and the parent may have held the lock.
fn streams(_driver: &Driver) -> MutexGuard<'static, Streams> {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Streams {
    /// How often a stream is held, if it is.
    fn holds(&mut self, handle: i64) -> Option<&mut usize> {
        self.held.iter_mut().find_map(|(held, times)| (*held == handle).then_some(times))
    }

    /// One that nothing needs any more.
    fn take_due(&mut self) -> Option<Stream> {
        let Self { closed, held } = self;
        let is_due = |(mark, stream): &(u64, Stream)| {
            waiting::is_past(*mark) && held.iter().all(|(held, _)| *held != stream.value())
        };
        closed.iter().position(is_due).map(|at| closed.swap_remove(at).1)
    }
}

impl Stream {
    /// Gives up a stream, which is destroyed when no release waits for work any more that waits now, and when nobody holds it:
    /// no tensor or batch that was allocated, copied, imported or produced on it, nor what was handed on of these, no memory
    /// of a pool that goes back in its order, and no [`Hold`]. Who closes one cannot see whether a consumer's release is
    /// still to come.
    ///
    /// # Errors
    /// As [`Stream::destroy`], also of streams that were closed before; `DEVX_OUT_OF_MEMORY`, then it is not closed.
    ///
    /// # Safety
    /// Nobody queues work on the stream any more, except for releases and who holds it.
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

    /// Destroys the streams that were closed, unless a release from before that waits for work or somebody holds them. Who
    /// comes last of these does so by itself; this is for who wants to see it done.
    ///
    /// # Errors
    /// As [`Stream::destroy`].
    pub fn destroy_closed() -> Result<()> {
        // Without a driver there are no streams.
        let Some(driver) = Driver::loaded() else { return Ok(()) };
        let mut done = Ok(());
        loop {
            // Asked with the lock held: of a stream that is in there, all releases wait by now or are done.
            let due = streams(driver).take_due();
            let Some(stream) = due else { return done };
            // SAFETY: closed, what waited for work has been given up, and nobody holds it.
            done = done.and(unsafe { stream.destroy() });
        }
    }
}

/// As [`Stream::destroy_closed`], where there is nobody to tell of an error.
pub(super) fn destroy() {
    if let Err(error) = Stream::destroy_closed() {
        lost::check_returned("a closed stream", Code(error.driver_code() as u32));
    }
}

/// Holds a stream: if it is closed meanwhile, it is destroyed after this. For memory that goes back in the order of a stream
/// in a function that runs some time after the release: made with the memory, and dropped when that function has run, or
/// never will. Any thread may drop it.
#[derive(Debug)]
#[must_use = "the stream is held as long as this lives"]
pub struct Hold {
    /// 0 where there is nothing to hold.
    handle: i64,
}

impl Hold {
    /// Of a stream by its number, as the protocols write it. A default stream, and none, are never destroyed, so there is
    /// nothing to hold; nor is there in a child of `fork`, which destroys none.
    ///
    /// # Errors
    /// `DEVX_INVALID_STREAM` for 0, which is ambiguous, and for other negative numbers than that of none;
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn new(stream: i64) -> Result<Self> {
        // SAFETY: of a number that may name no stream only its form is looked at.
        let said = unsafe { RawStream::new(stream) };
        if said != RawStream::NO_SYNC {
            Stream::new(0, said)?;
        }
        let Some(driver) = Driver::loaded().filter(|_| stream > PER_THREAD) else { return Ok(Self::none()) };
        let mut streams = streams(driver);
        match streams.holds(stream) {
            Some(times) => *times += 1,
            None => push(&mut streams.held, (stream, 1))?,
        }
        Ok(Self { handle: stream })
    }

    /// Of no stream.
    pub const fn none() -> Self {
        Self { handle: 0 }
    }

    /// As a number, which keeps this hold; 0 if there is nothing to hold.
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

/// A stream that is held, as by [`Hold`], by data that is ready behind it. Cloning shares the hold. It is an address, so that
/// data which has nothing to do with streams has no room for one.
#[derive(Clone, Debug)]
pub struct HeldStream(Slab<(Stream, Hold)>);

impl HeldStream {
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn new(stream: Stream) -> Result<Self> {
        let hold = if stream.is_default() { Hold::none() } else { Hold::new(stream.value())? };
        Ok(Self(Slab::new((stream, hold), TailSize::default())?))
    }

    /// The stream, which is there as long as the data is: not for who may keep it longer.
    pub(crate) fn stream(&self) -> Stream {
        self.0.header().0
    }
}
