//! Streams, by their raw handle: whoever made a stream destroys it.

use cudarc::driver::sys::{CUdevice, CUstream, CUstream_flags_enum as CUstream_flags};

use super::context::{self, Apart, Context, Current};
use super::driver::{Code, Driver};
use super::reaper;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Result, refuse};

/// A stream on a device: a handle, or one of the two default streams.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    handle: usize,
    ordinal: i32,
    /// Whose default stream it is, if it is a thread's; otherwise 0.
    thread: u64,
}

/// Two names of one stream: a handle says it all, a default stream is one of a device, and maybe of a thread.
impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.handle == other.handle
            && (!self.is_default() || (self.ordinal == other.ordinal && self.thread == other.thread))
    }
}

impl Eq for Stream {}

/// The legacy default stream, as DLPack and the CUDA Array Interface write it.
pub const LEGACY: i64 = 1;
/// The default stream of the calling thread.
pub const PER_THREAD: i64 = 2;
/// "Do not synchronise" where a stream is asked for (array API, `__dlpack__`).
pub const NO_SYNC: i64 = -1;

/// A stream by the number that the protocols use: 1 is the legacy default stream, 2 that of the calling thread, −1 none
/// ([`NO_SYNC`]) where that may be said; others are handles (`CUstream`, `cudaStream_t`). What the number means is checked
/// where it is used. The driver cannot check a handle, so whoever makes this vouches for it.
///
/// The number of a default stream does not name its device: it is one of the data's, unless this says which
/// ([`RawStream::on`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawStream(i64);

/// What a default stream with its device has above the two of them, in one number: it is neither a handle nor what anybody
/// writes by mistake.
const NAMED: i64 = i64::MIN | 0x53_5452 << 36;

impl RawStream {
    /// See [`NO_SYNC`].
    pub const NO_SYNC: Self = Self(NO_SYNC);
    /// See [`LEGACY`].
    pub const LEGACY: Self = Self(LEGACY);
    /// See [`PER_THREAD`].
    pub const PER_THREAD: Self = Self(PER_THREAD);

    /// A number from outside.
    ///
    /// # Safety
    /// If it is a handle, its stream is alive, and lives for as long as this, or a [`Stream`] made of it, is used: by the
    /// caller, by data that is ready behind it, and by memory that was allocated on it; of the latter two [`Stream::close`]
    /// knows. It is of a device of the driver that this library uses.
    #[inline]
    pub const unsafe fn new(value: i64) -> Self {
        Self(value)
    }

    /// The same on a GPU: of a default stream this says whose it is, wherever the data is. A handle says that itself.
    #[inline]
    pub fn on(self, ordinal: i32) -> Self {
        if self.is_default() && ordinal >= 0 { Self(NAMED | i64::from(ordinal) << 2 | self.0) } else { self }
    }

    /// The number, as the protocols write it: without a device.
    #[inline]
    pub const fn value(self) -> i64 {
        match self.named() {
            Some((_, value)) => value,
            None => self.0,
        }
    }

    /// The number for [`RawStream::new`], which no protocol knows: with the device, if one is named.
    #[inline]
    pub const fn to_raw(self) -> i64 {
        self.0
    }

    /// The device that is named, and the number there.
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

    /// Whether it is a default stream: one of a device that the number does not name.
    #[inline]
    pub(crate) const fn is_default(self) -> bool {
        matches!(self.0, LEGACY | PER_THREAD)
    }
}

/// The same stream, with its device; see [`Stream::value`] for the default stream of another thread.
impl From<Stream> for RawStream {
    fn from(stream: Stream) -> Self {
        stream.unnamed().on(stream.ordinal)
    }
}

/// The number of the calling thread; 0 for one that is about to end.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Relaxed);
    }
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

impl Stream {
    /// A stream of device `ordinal`, or of the one that is named with it ([`RawStream::on`]).
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

    /// A new stream of device `ordinal` that does not wait for the legacy default stream. Its maker destroys it.
    ///
    /// # Errors
    /// `DEVX_DEVICE`, `DEVX_DRIVER`.
    pub fn create(ordinal: i32) -> Result<Self> {
        let driver = Driver::get()?;
        let _current = Current::enter(driver, context::primary(driver, ordinal)?)?;
        let mut stream = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a call of the driver with room for its result.
        driver.check("cuStreamCreate", unsafe { (driver.stream_create)(&mut stream, flags) })?;
        Ok(Self { handle: stream.expose_provenance(), ordinal, thread: 0 })
    }

    /// Destroys a stream; what is queued on it is still done.
    ///
    /// # Errors
    /// `DEVX_INVALID_STREAM` for a default stream, `DEVX_DRIVER`.
    ///
    /// # Safety
    /// Nobody uses the stream any more.
    pub unsafe fn destroy(self) -> Result<()> {
        self.require_made()?;
        let driver = Driver::get()?;
        // SAFETY: the caller's contract.
        driver.check("cuStreamDestroy", unsafe { (driver.stream_destroy)(self.raw()) })
    }

    /// Destroys a stream of this library's own, which nobody else has seen.
    pub(crate) fn end(self) {
        // SAFETY: by the contract of this function nobody else uses it.
        if let Err(error) = unsafe { self.destroy() } {
            reaper::check_returned("a stream", Code(error.driver_code() as u32));
        }
    }

    /// The legacy default stream of device `ordinal`.
    pub fn legacy(ordinal: i32) -> Self {
        Self { handle: LEGACY as usize, ordinal, thread: 0 }
    }

    /// As the protocols write it. The default stream of another thread has no number here; the legacy one comes after it
    /// and before it, like after and before all of them.
    pub fn value(self) -> i64 {
        let elsewhere = self.handle == PER_THREAD as usize && self.thread != this_thread();
        if elsewhere { LEGACY } else { self.handle as i64 }
    }

    /// For who may use it on any thread: there the default stream of one has no number, and the legacy one stands for it.
    pub(crate) fn anywhere(self) -> Self {
        if self.handle == PER_THREAD as usize { Self::legacy(self.ordinal) } else { self }
    }

    /// By the number alone.
    pub(crate) fn unnamed(self) -> RawStream {
        RawStream(self.value())
    }

    /// The device that it was said to be on.
    pub fn ordinal(self) -> i32 {
        self.ordinal
    }

    pub(super) fn require_made(self) -> Result<()> {
        if self.is_default() {
            return refuse!(DEVX_INVALID_STREAM, "stream is {}: a default stream is not destroyed", self.value());
        }
        Ok(())
    }

    /// Whether it is a default stream, whose number does not say of which device.
    pub(crate) fn is_default(self) -> bool {
        self.handle <= PER_THREAD as usize
    }

    /// As the driver takes it: `CU_STREAM_LEGACY` is 1 and `CU_STREAM_PER_THREAD` 2, as in the protocols.
    pub(crate) fn raw(self) -> CUstream {
        std::ptr::with_exposed_provenance_mut(self.value() as usize)
    }

    /// The device that the stream's work runs on, whatever it was said to be.
    ///
    /// # Errors
    /// `DEVX_DRIVER`, `DEVX_DEVICE`.
    pub fn device(self) -> Result<i32> {
        if self.is_default() {
            return Ok(self.ordinal);
        }
        let driver = Driver::get()?;
        let _current = self.enter()?;
        let mut device: CUdevice = 0;
        // SAFETY: a call of the driver with room for its result.
        driver.check("cuCtxGetDevice", unsafe { (driver.ctx_get_device)(&mut device) })?;
        Ok(device)
    }

    /// Whether the stream's work runs on a device. Of a stream in the primary context that is known without the driver.
    ///
    /// # Errors
    /// As [`Stream::device`].
    pub(crate) fn is_of(self, ordinal: i32) -> Result<bool> {
        let in_primary = !self.is_default() && context::known_primary(ordinal) == Some(self.context()?);
        Ok(in_primary || self.device()? == ordinal)
    }

    /// Checks that the stream is of the device that it was named with.
    ///
    /// # Errors
    /// `DEVX_INVALID_STREAM`, and as [`Stream::device`].
    pub fn require_own_device(self) -> Result<()> {
        if self.is_of(self.ordinal)? {
            return Ok(());
        }
        let (value, of, named) = (self.value(), self.device()?, self.ordinal);
        refuse!(DEVX_INVALID_STREAM, "stream is {value:#x}: of cuda:{of}, not of cuda:{named}")
    }

    /// Makes the context that the stream's work runs in current on this thread, as long as the result lives.
    ///
    /// # Errors
    /// `DEVX_DRIVER`, `DEVX_DEVICE`.
    pub(crate) fn enter(self) -> Result<Current<'static>> {
        Current::enter(Driver::get()?, self.context()?)
    }

    /// The context that the stream's work runs in: its own, or for a default stream the device's primary one.
    ///
    /// # Errors
    /// `DEVX_DRIVER`, `DEVX_DEVICE`.
    pub(crate) fn context(self) -> Result<Context> {
        let driver = Driver::get()?;
        if self.is_default() {
            return context::primary(driver, self.ordinal);
        }
        let mut context = std::ptr::null_mut();
        // SAFETY: a stream of the caller's, and room for the result.
        driver.check("cuStreamGetCtx", unsafe { (driver.stream_get_ctx)(self.raw(), &mut context) })?;
        Ok(Context(context))
    }

    /// Blocks the host until all work queued on the stream is done. Never part of an exchange.
    ///
    /// # Errors
    /// `DEVX_DRIVER`; `DEVX_UNSUPPORTED` if the stream is being captured, which the driver would punish by breaking the
    /// capture.
    pub fn synchronize(self) -> Result<()> {
        self.require_no_capture()?;
        let driver = Driver::get()?;
        let _current = self.enter()?;
        let _apart = Apart::enter(driver)?;
        // SAFETY: a stream of the caller's.
        driver.check("cuStreamSynchronize", unsafe { (driver.stream_synchronize)(self.raw()) })
    }

    /// Whether all work queued on the stream is done. Not while it is being captured: the driver would break the capture.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn is_done(self) -> Result<bool> {
        if self.is_capturing()? {
            return Ok(false);
        }
        let driver = Driver::get()?;
        let _current = self.enter()?;
        let _apart = Apart::enter(driver)?;
        // SAFETY: a stream of the caller's.
        let code = unsafe { (driver.stream_query)(self.raw()) };
        if code == Code::NOT_READY {
            return Ok(false);
        }
        driver.check("cuStreamQuery", code)?;
        Ok(true)
    }

    /// Blocks the host until the stream's device has done all work of its context, on whatever stream. Never part of an
    /// exchange, unless a caller asks for it: a capture of any stream of that context is broken by it, and the driver cannot
    /// be asked for one before.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn synchronize_device(self) -> Result<()> {
        self.require_no_capture()?;
        let driver = Driver::get()?;
        let _current = self.enter()?;
        let _apart = Apart::enter(driver)?;
        // SAFETY: a call of the driver.
        driver.check("cuCtxSynchronize", unsafe { (driver.ctx_synchronize)() })
    }

    /// Whether work queued on the stream is being captured into a graph instead of run.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn is_capturing(self) -> Result<bool> {
        let driver = Driver::get()?;
        // A default stream is that of the current context.
        let _current = if self.is_default() { Some(self.enter()?) } else { None };
        let mut status = 0;
        // SAFETY: a stream of the caller's, and room for the result.
        let code = unsafe { (driver.stream_is_capturing)(self.raw(), &mut status) };
        if code == Code::CAPTURE_IMPLICIT {
            return Ok(true);
        }
        driver.check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }

    /// Checks that work queued on the stream is run, not captured.
    ///
    /// # Errors
    /// `DEVX_UNSUPPORTED` if it is captured, `DEVX_DRIVER`.
    pub fn require_no_capture(self) -> Result<()> {
        if !self.is_capturing()? {
            return Ok(());
        }
        refuse!(
            DEVX_UNSUPPORTED,
            "stream {:#x} is being captured into a graph, which cannot wait for work outside of it, nor the other way \
             round: hand the data over before",
            self.value()
        )
    }
}
