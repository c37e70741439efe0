//! Streams of a device, by their raw handle. Whoever made a stream destroys it; what is done with it is up to the runtime.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Result, refuse};

/// A stream on a device: a handle, or one of the two default streams.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    handle: usize,
    ordinal: i32,
    /// The thread whose default stream this is; 0 for any other stream.
    thread: u64,
}

/// Two values are equal if they name one stream. A handle alone identifies a stream; a default stream also needs its device,
/// and a per-thread one its thread.
impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.handle == other.handle
            && (!self.is_default() || (self.ordinal == other.ordinal && self.thread == other.thread))
    }
}

impl Eq for Stream {}

/// The same for values that are equal.
impl Hash for Stream {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.handle.hash(state);
        if self.is_default() {
            (self.ordinal, self.thread).hash(state);
        }
    }
}

/// The legacy default stream, as DLPack and the CUDA Array Interface write it.
pub const LEGACY: i64 = 1;
/// The default stream of the calling thread.
pub const PER_THREAD: i64 = 2;
/// "Do not synchronise", where a protocol asks for a stream (array API, `__dlpack__`).
pub const NO_SYNC: i64 = -1;

/// A stream by the number that the protocols use.
///
/// 1 is the legacy default stream, 2 that of the calling thread, and −1 none ([`NO_SYNC`]), where that is allowed; others are
/// handles (`CUstream`, `cudaStream_t`). The number is checked where it is used. The driver cannot check a handle, so whoever
/// makes a `RawStream` vouches for it.
///
/// The number of a default stream does not name its device. It stands for a default stream of the data's device, unless
/// [`RawStream::on`] names another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawStream(i64);

/// The high bits that mark a number as a default stream together with its device. Such a number is no handle, and nobody
/// writes it by mistake.
const NAMED: i64 = i64::MIN | 0x53_5452 << 36;

impl RawStream {
    /// No stream; see [`NO_SYNC`].
    pub const NO_SYNC: Self = Self(NO_SYNC);
    /// The legacy default stream; see [`LEGACY`].
    pub const LEGACY: Self = Self(LEGACY);
    /// The default stream of the calling thread; see [`PER_THREAD`].
    pub const PER_THREAD: Self = Self(PER_THREAD);

    /// Takes a number from outside.
    ///
    /// # Safety
    /// If `value` is a handle, its stream is alive, and stays alive for as long as the result, or a [`Stream`] made of it, is
    /// used: by the caller, by data that is ready behind the stream, or by memory that was allocated on it. ([`Stream::close`]
    /// takes care of the latter two.) The stream is on a device of the driver that this library uses.
    #[inline]
    pub const unsafe fn new(value: i64) -> Self {
        Self(value)
    }

    /// Names the GPU of a default stream, wherever the data is. A handle implies its GPU and is returned unchanged.
    #[inline]
    pub fn on(self, ordinal: i32) -> Self {
        if self.is_default() && ordinal >= 0 { Self(NAMED | i64::from(ordinal) << 2 | self.0) } else { self }
    }

    /// The number as the protocols write it, without a device.
    #[inline]
    pub const fn value(self) -> i64 {
        match self.named() {
            Some((_, value)) => value,
            None => self.0,
        }
    }

    /// The number for [`RawStream::new`], with the device if one is named. No protocol knows this form.
    #[inline]
    pub const fn to_raw(self) -> i64 {
        self.0
    }

    /// The device that was named, and the number of the default stream there.
    #[inline]
    const fn named(self) -> Option<(i32, i64)> {
        let rest = self.0.wrapping_sub(NAMED);
        match rest & 0b11 {
            value @ (LEGACY | PER_THREAD) if rest >= 0 && rest >> 2 <= i32::MAX as i64 => {
                Some(((rest >> 2) as i32, value))
            }
            _ => None,
        }
    }

    /// Whether this is a default stream whose device is not named.
    #[inline]
    pub(crate) const fn is_default(self) -> bool {
        matches!(self.0, LEGACY | PER_THREAD)
    }
}

/// The same stream, named with its device. See [`Stream::value`] for the default stream of another thread.
impl From<Stream> for RawStream {
    fn from(stream: Stream) -> Self {
        stream.unnamed().on(stream.ordinal)
    }
}

/// The number of the calling thread; 0 if the thread is about to end.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Relaxed);
    }
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

impl Stream {
    /// A stream of device `ordinal`, or of the device that `stream` names ([`RawStream::on`]).
    ///
    /// # Errors
    /// `DEVX_INVALID_STREAM` for 0, which is ambiguous, and for negative numbers.
    pub fn new(ordinal: i32, stream: RawStream) -> Result<Self> {
        let (ordinal, value) = stream.named().unwrap_or((ordinal, stream.0));
        match usize::try_from(value) {
            Ok(handle) if handle > 0 => {
                let thread = if value == PER_THREAD { this_thread() } else { 0 };
                Ok(Self { handle, ordinal, thread })
            }
            _ => refuse!(
                DEVX_INVALID_STREAM,
                "stream is {value}: 1 is the legacy default stream, 2 the per-thread one, others are handles"
            ),
        }
    }

    /// A stream that the driver has made.
    pub(crate) fn of_handle(handle: usize, ordinal: i32) -> Self {
        Self { handle, ordinal, thread: 0 }
    }

    /// The legacy default stream of device `ordinal`.
    pub fn legacy(ordinal: i32) -> Self {
        Self { handle: LEGACY as usize, ordinal, thread: 0 }
    }

    /// The number as the protocols write it. The default stream of another thread has no number here; the legacy one
    /// stands for it, because it is ordered before and after all of them.
    pub fn value(self) -> i64 {
        if self.is_of_other_thread() { LEGACY } else { self.handle as i64 }
    }

    /// Whether this is the default stream of another thread.
    pub(crate) fn is_of_other_thread(self) -> bool {
        self.handle == PER_THREAD as usize && self.thread != this_thread()
    }

    /// The stream for use on any thread: the legacy default stream stands for that of a thread, which has no number on
    /// others.
    pub(crate) fn anywhere(self) -> Self {
        if self.handle == PER_THREAD as usize { Self::legacy(self.ordinal) } else { self }
    }

    /// The stream by its number alone.
    pub(crate) fn unnamed(self) -> RawStream {
        RawStream(self.value())
    }

    /// The device that the stream was said to be on.
    pub fn ordinal(self) -> i32 {
        self.ordinal
    }

    pub(crate) fn require_made(self) -> Result<()> {
        if self.is_default() {
            return refuse!(DEVX_INVALID_STREAM, "stream is {}: a default stream is not destroyed", self.value());
        }
        Ok(())
    }

    /// Whether this is a default stream, whose number does not name its device.
    pub(crate) fn is_default(self) -> bool {
        self.handle <= PER_THREAD as usize
    }
}
