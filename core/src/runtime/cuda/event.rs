//! Events without timing, from a pool for each context that stays. Any other context may be destroyed by its maker, and its
//! events with it; their handles may then be those of other events.

use core::ffi::{c_char, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cudarc::driver::sys::{CUevent, CUevent_flags, CUipcEventHandle};

use super::context::{self, Apart, Context, Current};
use super::driver::{Code, Driver};
use super::ipc::opened;
use super::kept::Kept;
use super::lost;
use crate::error::{Error, Result, refuse};
use crate::memory::{Owner, Room, Slab, TailSize};
use crate::stream::Stream;

/// The most events that are kept for reuse.
const KEPT: usize = 256;

/// An event that was recorded. It is reference-counted; the last reference gives the event back to its pool.
#[derive(Clone, Debug)]
pub struct Event(Slab<Recorded>);

struct Recorded {
    driver: &'static Driver,
    context: Context,
    /// The stream that it was recorded on, if that was in this process.
    stream: Option<Stream>,
    /// Whether the event is kept for reuse in the end, or destroyed.
    kept: bool,
    /// Whether the driver's last answer was that the event no longer exists.
    is_gone: AtomicBool,
    /// What keeps the event alive in the process that recorded it, if that was another one.
    _keep: Owner,
    /// What an Arrow `sync_event` points to. It stays at this address as long as the event lives.
    handle: Handle,
}

#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct Handle(CUevent);

// SAFETY: the driver lets every thread use every event.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl std::fmt::Debug for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorded").field("handle", &self.handle).field("context", &self.context).finish()
    }
}

/// Events that are kept for reuse, with their contexts.
static POOL: Kept<Context, Handle> = Kept { all: Mutex::new(Vec::new()) };

impl Event {
    /// Records an event that completes when all work queued on `stream` until now is done. Besides the calls that find, enter
    /// and leave the stream's context, this takes one call of the driver, and one more if the pool has no event for that
    /// context; it never has one for a context that is not primary. It takes two more calls as long as nobody uses the
    /// device's primary context, which is looked for.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn record(stream: Stream) -> Result<Self> {
        let driver = Driver::get()?;
        let room = Slab::room(TailSize::default())?;
        let context = stream.context()?;
        // Events are made in the context that is current, and belong to it.
        let _current = Current::enter(driver, context)?;
        let kept = context::stays(driver, context, stream.ordinal());
        loop {
            let (handle, used) = take(driver, context)?;
            // SAFETY: an event and a stream of the same context.
            let code = unsafe { (driver.event_record)(handle.0, stream.raw()) };
            if used && GONE.contains(&code) && is_gone(driver, handle) {
                // The event ended with its context, which somebody reset. It is out of the pool now; the loop ends with a
                // new event at the latest.
                continue;
            }
            let event = Self::of(room, driver, context, Some(stream), kept, handle, Owner::none());
            return driver.check("cuEventRecord", code).map(|()| event);
        }
    }

    fn of(
        room: Room<Recorded>,
        driver: &'static Driver,
        context: Context,
        stream: Option<Stream>,
        kept: bool,
        handle: Handle,
        keep: Owner,
    ) -> Self {
        let is_gone = AtomicBool::new(false);
        Self(room.fill(Recorded { driver, context, stream, kept, is_gone, _keep: keep, handle }))
    }

    /// Like [`Event::record`], but with an event that other processes can wait for.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub(crate) fn record_shared(stream: Stream) -> Result<Self> {
        let driver = Driver::get()?;
        let room = Slab::room(TailSize::default())?;
        let context = stream.context()?;
        let _current = Current::enter(driver, context)?;
        let _apart = Apart::enter(driver)?;
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 | CUevent_flags::CU_EVENT_INTERPROCESS as u32;
        let handle = create(driver, flags)?;
        // No stream, because the event may outlive it, and another stream may get its handle. Not kept, because the pool
        // has events for this process only.
        let event = Self::of(room, driver, context, None, false, handle, Owner::none());
        // SAFETY: an event and a stream of the same context.
        driver.check("cuEventRecord", unsafe { (driver.event_record)(handle.0, stream.raw()) })?;
        Ok(event)
    }

    /// The handle by which another process opens this event, which must be from [`Event::record_shared`].
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub(crate) fn ipc_handle(&self) -> Result<[u8; 64]> {
        let Recorded { context, handle, .. } = *self.0.header();
        let driver = Driver::get()?;
        let _current = Current::enter(driver, context)?;
        let _apart = Apart::enter(driver)?;
        let mut ipc = CUipcEventHandle { reserved: [0; 64] };
        // SAFETY: an event that is alive, and room for the result.
        driver.check("cuIpcGetEventHandle", unsafe { (driver.ipc_get_event_handle)(&mut ipc, handle.0) })?;
        Ok(ipc.reserved.map(|byte| byte as u8))
    }

    /// Opens an event of another process. The owner from `keep` is given up when the event is no longer used.
    ///
    /// # Errors
    /// `DEVX_DRIVER`, `DEVX_DEVICE`; `DEVX_UNSUPPORTED` for an event of this very process.
    pub(crate) fn open(ordinal: i32, ipc: [u8; 64], keep: impl FnOnce() -> Owner) -> Result<Self> {
        let driver = Driver::get()?;
        let room = Slab::room(TailSize::default())?;
        let context = context::primary(driver, ordinal)?;
        let _current = Current::enter(driver, context)?;
        let _apart = Apart::enter(driver)?;
        let ipc = CUipcEventHandle { reserved: ipc.map(|byte| byte as c_char) };
        let mut event = std::ptr::null_mut();
        // SAFETY: a call of the driver with room for its result; the driver judges the handle.
        let code = unsafe { (driver.ipc_open_event_handle)(&mut event, ipc) };
        opened(driver, "cuIpcOpenEventHandle", code, "the event is this process's own")?;
        Ok(Self::of(room, driver, context, None, false, Handle(event), keep()))
    }

    /// Makes `stream` wait, on the device, until this event is complete.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn wait(&self, stream: Stream) -> Result<()> {
        wait_raw(stream, self.0.header().handle.0)
    }

    /// Like [`Event::wait`], but if the event went with its context, there is nothing to wait for.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub(crate) fn wait_unless_gone(&self, stream: Stream) -> Result<()> {
        self.wait(stream).or_else(|error| match self.is_complete() {
            Err(answer) if Self::went_with_its_context(&answer) => Ok(()),
            _ => Err(error),
        })
    }

    /// Whether the event is complete. Does not wait.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn is_complete(&self) -> Result<bool> {
        let _apart = Apart::enter(Driver::get()?)?;
        self.query()
    }

    /// Like [`Event::is_complete`], but for a thread that is [`Apart`] already.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub(crate) fn query(&self) -> Result<bool> {
        let answer = self.ask();
        let is_gone = answer.as_ref().is_err_and(Self::went_with_its_context);
        self.0.header().is_gone.store(is_gone, Relaxed);
        answer
    }

    fn ask(&self) -> Result<bool> {
        let Recorded { driver, context, handle, .. } = *self.0.header();
        // SAFETY: an event that was recorded and is not destroyed.
        let ask = || unsafe { (driver.event_query)(handle.0) };
        let mut code = ask();
        if code == Code::INVALID_CONTEXT {
            // By the documentation this call needs no current context. A driver that needs one gets it here.
            let _current = Current::enter(driver, context)?;
            code = ask();
        }
        answered(driver, code)
    }

    /// Drops the events that the driver says are complete, or gone with their contexts. Does not wait.
    pub(crate) fn drop_complete(events: &mut Vec<Self>) {
        if events.is_empty() {
            return;
        }
        let Ok(_apart) = Driver::get().and_then(Apart::enter) else { return };
        events.retain(|event| match event.query() {
            Ok(is_complete) => !is_complete,
            Err(error) => !Self::went_with_its_context(&error),
        });
    }

    /// Blocks the host until the event is complete. For reading data on the host, never for an exchange.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn synchronize(&self) -> Result<()> {
        let driver = Driver::get()?;
        let Recorded { context, handle, .. } = *self.0.header();
        let _current = Current::enter(driver, context)?;
        let _apart = Apart::enter(driver)?;
        // SAFETY: an event that was recorded and is not destroyed.
        driver.check("cuEventSynchronize", unsafe { (driver.event_synchronize)(handle.0) })
    }

    /// Whether an error of [`Event::query`] says that the event is gone. Only this library destroys its events, and only when
    /// nobody has them any more. So the event went with its context, and the work before it did, too.
    pub(crate) fn went_with_its_context(error: &Error) -> bool {
        GONE.map(|code| code.0 as i32).contains(&error.driver_code())
    }

    /// The address of the event's handle (`CUevent *`), valid as long as this event lives.
    pub(crate) fn address(&self) -> *mut c_void {
        (&raw const self.0.header().handle).cast_mut().cast()
    }

    /// Whether the event was recorded on this stream.
    pub(crate) fn is_on(&self, stream: Stream) -> bool {
        self.0.header().stream == Some(stream)
    }
}

/// A producer's event, which the producer keeps alive. It cannot be cloned, because it is valid only as long as the data that
/// it came with.
#[derive(Debug)]
pub struct ForeignEvent(*const Handle);

// SAFETY: the handle is only read, and the driver lets every thread use every event.
unsafe impl Send for ForeignEvent {}
// SAFETY: as above.
unsafe impl Sync for ForeignEvent {}

impl ForeignEvent {
    /// Takes the address of the event's handle.
    ///
    /// # Errors
    /// `DEVX_NULL_ARGUMENT` if there is no event at that address.
    ///
    /// # Safety
    /// `address` points to a `CUevent` that lives as long as the result, and every handle from [`again`](Self::again),
    /// is used.
    pub(crate) unsafe fn new(address: *const c_void) -> Result<Self> {
        let address = address.cast::<Handle>();
        // SAFETY: the caller's contract.
        if unsafe { *address }.0.is_null() {
            return refuse!(DEVX_NULL_ARGUMENT, "*sync_event is NULL: a sync_event points to an event");
        }
        Ok(Self(address))
    }

    /// Another handle to the same event, for a holder that keeps the data alive.
    pub(crate) fn again(&self) -> Self {
        Self(self.0)
    }

    /// Makes `stream` wait for this event; see [`Event::wait`].
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn wait(&self, stream: Stream) -> Result<()> {
        // SAFETY: alive, by the contract of `new`.
        wait_raw(stream, unsafe { *self.0 }.0)
    }

    /// Whether the event is complete; see [`Event::is_complete`].
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn is_complete(&self) -> Result<bool> {
        let driver = Driver::get()?;
        let _apart = Apart::enter(driver)?;
        // SAFETY: alive, by the contract of `new`.
        let handle = unsafe { *self.0 };
        // SAFETY: as above.
        answered(driver, unsafe { (driver.event_query)(handle.0) })
    }

    pub(crate) fn address(&self) -> *mut c_void {
        self.0.cast_mut().cast()
    }
}

/// Turns the driver's answer about an event into whether it is complete.
fn answered(driver: &Driver, code: Code) -> Result<bool> {
    match code {
        Code::NOT_READY => Ok(false),
        code => driver.check("cuEventQuery", code).map(|()| true),
    }
}

/// Makes `stream` wait for an event, which may be a producer's.
///
/// # Errors
/// `DEVX_DRIVER`.
fn wait_raw(stream: Stream, event: CUevent) -> Result<()> {
    let driver = Driver::get()?;
    let _current = stream.enter()?;
    // SAFETY: the caller's event; the driver refuses an event that is not valid.
    driver.check("cuStreamWaitEvent", unsafe { (driver.stream_wait_event)(stream.raw(), event, 0) })
}

/// The driver's answers about an event that does not exist any more.
const GONE: [Code; 2] = [Code::INVALID_HANDLE, Code::CONTEXT_IS_DESTROYED];

fn is_gone(driver: &Driver, handle: Handle) -> bool {
    let _apart = Apart::enter(driver);
    // SAFETY: an event of this library.
    GONE.contains(&unsafe { (driver.event_query)(handle.0) })
}

/// Returns how many events are kept for reuse.
pub fn kept_events() -> usize {
    POOL.len()
}

/// Destroys the events that are kept for a context, because the context may be reset next.
pub(crate) fn forget(context: Context) {
    let Some(driver) = Driver::loaded() else { return };
    POOL.forget(context, |handle| destroy(driver, handle));
}

/// Takes or makes an event of the context that is current. The flag says whether it was in use before.
fn take(driver: &Driver, context: Context) -> Result<(Handle, bool)> {
    if let Some(kept) = POOL.take(context) {
        return Ok((kept, true));
    }
    Ok((create(driver, CUevent_flags::CU_EVENT_DISABLE_TIMING as u32)?, false))
}

/// Makes an event of the context that is current.
fn create(driver: &Driver, flags: u32) -> Result<Handle> {
    let mut event = std::ptr::null_mut();
    // SAFETY: a call of the driver with room for its result.
    driver.check("cuEventCreate", unsafe { (driver.event_create)(&mut event, flags) })?;
    Ok(Handle(event))
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // A forked child does not even touch the lock, which its parent may have held. The handle of an event that went with
        // its context may be that of another one now.
        if Driver::loaded().is_none() || *self.is_gone.get_mut() {
            return;
        }
        if !self.kept {
            return destroy(self.driver, self.handle);
        }
        // Recording an event again does not disturb the waits that were queued for it before.
        if let Some(handle) = POOL.give(self.context, self.handle, KEPT) {
            destroy(self.driver, handle);
        }
    }
}

fn destroy(driver: &Driver, handle: Handle) {
    // SAFETY: nobody else has the event; it may be destroyed before it is complete.
    let code = unsafe { (driver.event_destroy)(handle.0) };
    if !GONE.contains(&code) {
        lost::check_returned("an event", code);
    }
}
