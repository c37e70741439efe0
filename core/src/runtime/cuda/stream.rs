//! Streams as the driver handles them.

use cudarc::driver::sys::{CUdevice, CUstream, CUstream_flags_enum as CUstream_flags};

use super::context::{self, Apart, Context, Current};
use super::driver::{Code, Driver};
use super::event::Event;
use super::lost;
use crate::error::{Result, refuse};
use crate::stream::Stream;

impl Stream {
    /// Creates a stream of device `ordinal` that does not wait for the legacy default stream. The caller destroys or
    /// closes it; [`DeviceStream`](super::DeviceStream) does so by itself.
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
        Ok(Self::of_handle(stream.expose_provenance(), ordinal))
    }

    /// Destroys a stream. Work that is queued on it is still done.
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

    /// Destroys a stream that this library made for itself, and that nobody else has seen.
    pub(crate) fn end(self) {
        // SAFETY: by the contract of this function nobody else uses it.
        if let Err(error) = unsafe { self.destroy() } {
            lost::check_returned("a stream", Code(error.driver_code() as u32));
        }
    }

    /// The stream as the driver takes it: `CU_STREAM_LEGACY` is 1 and `CU_STREAM_PER_THREAD` is 2, as in the protocols.
    pub(crate) fn raw(self) -> CUstream {
        std::ptr::with_exposed_provenance_mut(self.value() as usize)
    }

    /// The device that the stream's work runs on, whichever device was named for it.
    ///
    /// # Errors
    /// `DEVX_DRIVER`, `DEVX_DEVICE`.
    pub fn device(self) -> Result<i32> {
        if self.is_default() {
            return Ok(self.ordinal());
        }
        let driver = Driver::get()?;
        let _current = self.enter()?;
        let mut device: CUdevice = 0;
        // SAFETY: a call of the driver with room for its result.
        driver.check("cuCtxGetDevice", unsafe { (driver.ctx_get_device)(&mut device) })?;
        Ok(device)
    }

    /// Whether the stream's work runs on device `ordinal`. For a stream in that device's primary context, its context
    /// says so.
    ///
    /// # Errors
    /// Same as [`Stream::device`].
    pub(crate) fn is_of(self, ordinal: i32) -> Result<bool> {
        let in_primary = !self.is_default() && context::known_primary(ordinal) == Some(self.context()?);
        Ok(in_primary || self.device()? == ordinal)
    }

    /// Checks that the stream is on the device that it was named with.
    ///
    /// # Errors
    /// `DEVX_INVALID_STREAM`; same as [`Stream::device`].
    pub fn require_own_device(self) -> Result<()> {
        if self.is_of(self.ordinal())? {
            return Ok(());
        }
        let (value, of, named) = (self.value(), self.device()?, self.ordinal());
        refuse!(DEVX_INVALID_STREAM, "stream is {value:#x}: of cuda:{of}, not of cuda:{named}")
    }

    /// Makes the context that the stream's work runs in current on this thread, as long as the result lives.
    ///
    /// # Errors
    /// `DEVX_DRIVER`, `DEVX_DEVICE`.
    pub(crate) fn enter(self) -> Result<Current<'static>> {
        Current::enter(Driver::get()?, self.context()?)
    }

    /// The context that the stream's work runs in: its own, or the device's primary one for a default stream.
    ///
    /// # Errors
    /// `DEVX_DRIVER`, `DEVX_DEVICE`.
    pub(crate) fn context(self) -> Result<Context> {
        let driver = Driver::get()?;
        if self.is_default() {
            return context::primary(driver, self.ordinal());
        }
        let mut context = std::ptr::null_mut();
        // SAFETY: a stream of the caller's, and room for the result.
        driver.check("cuStreamGetCtx", unsafe { (driver.stream_get_ctx)(self.raw(), &mut context) })?;
        Ok(Context(context))
    }

    /// Blocks the host until all work queued on the stream is done. Never part of an exchange.
    ///
    /// # Errors
    /// `DEVX_DRIVER`; `DEVX_UNSUPPORTED` if the stream is being captured, because the driver would break the capture.
    pub fn synchronize(self) -> Result<()> {
        self.require_no_capture()?;
        if self.is_of_other_thread() {
            // Work on the legacy stream, which stands for it here, comes after its work; of a call that waits for the legacy
            // stream itself, the driver does not promise that.
            return Event::record(self)?.synchronize();
        }
        let driver = Driver::get()?;
        let _current = self.enter()?;
        let _apart = Apart::enter(driver)?;
        // SAFETY: a stream of the caller's.
        driver.check("cuStreamSynchronize", unsafe { (driver.stream_synchronize)(self.raw()) })
    }

    /// Whether all work queued on the stream is done. `false` while the stream is being captured: asking the driver would
    /// break the capture. For the default stream of another thread, of which the driver cannot be asked, the host may have to
    /// wait for the answer.
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
        if self.is_of_other_thread() {
            self.synchronize()?;
        }
        Ok(true)
    }

    /// Blocks the host until the stream's device has done all work of the stream's context, on any stream. Never part of an
    /// exchange unless a caller asks for it: it breaks the capture of any stream of that context, and the driver cannot be
    /// asked beforehand whether there is one.
    ///
    /// # Errors
    /// Same as [`Stream::synchronize`].
    pub fn synchronize_device(self) -> Result<()> {
        self.require_no_capture()?;
        let driver = Driver::get()?;
        let _current = self.enter()?;
        let _apart = Apart::enter(driver)?;
        // SAFETY: a call of the driver.
        driver.check("cuCtxSynchronize", unsafe { (driver.ctx_synchronize)() })
    }

    /// Whether work queued on the stream is captured into a graph instead of run.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn is_capturing(self) -> Result<bool> {
        let driver = Driver::get()?;
        // The driver takes a default stream for that of the current context.
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

    /// Whether this thread must leave a release on the stream to the reaper: the stream is being captured, and the release
    /// would become part of the graph; or this is a host function of the driver, which takes no calls from there.
    pub(crate) fn takes_no_release(self) -> bool {
        self.is_capturing().unwrap_or_else(|error| error.driver_code() == Code::NOT_PERMITTED.0 as i32)
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
