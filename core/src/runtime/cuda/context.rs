//! Contexts: made current for a scope; the caller's context is restored on every path.

use core::ffi::{c_int, c_uint};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{CUcontext, CUdevice};

use super::driver::{Code, Driver};
use crate::error::{Result, refuse};

/// A context of the driver, by its address. Contexts are never destroyed by this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context(pub(crate) CUcontext);

// SAFETY: the driver lets every thread use every context.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The primary contexts that this library has retained: one for each device that was used, until the process ends.
static PRIMARY: OnceLock<Vec<Primary>> = OnceLock::new();

/// The primary context of one device. Looking it up does not wait for the driver, which takes its time to make one.
#[derive(Default)]
struct Primary {
    retained: OnceLock<Context>,
    retaining: Mutex<()>,
    /// How often somebody has doubted the context since it was last looked at: the device may have been reset, and then
    /// nothing can be done in the context until it is retained anew.
    doubts: AtomicU32,
}

/// The primary context of a device, retained at the first use of that device, and at the first use after a reset.
///
/// # Errors
/// `DEVX_DEVICE` if there is no device with this ordinal, `DEVX_DRIVER`.
pub(crate) fn primary(driver: &Driver, ordinal: i32) -> Result<Context> {
    let slot = slot(driver, ordinal)?;
    match slot.retained.get() {
        Some(context) if slot.doubts.load(Relaxed) == 0 => Ok(*context),
        _ => retained(driver, ordinal, slot),
    }
}

#[cold]
fn retained(driver: &Driver, ordinal: i32, Primary { retained, retaining, doubts }: &Primary) -> Result<Context> {
    let _alone = retaining.lock().unwrap_or_else(PoisonError::into_inner);
    let answered = doubts.load(Relaxed);
    let device = device(driver, ordinal)?;
    let context = match retained.get() {
        Some(context) if answered == 0 || is_active(driver, device)? => *context,
        _ => {
            let _apart = Apart::enter(driver)?;
            let mut context = std::ptr::null_mut();
            // SAFETY: a call of the driver with room for its result.
            let code = unsafe { (driver.primary_ctx_retain)(&mut context, device) };
            driver.check("cuDevicePrimaryCtxRetain", code)?;
            // After a reset it is the same one.
            *retained.get_or_init(|| Context(context))
        }
    };
    // Fails if somebody has doubted it meanwhile; the next call is about that.
    let _ = doubts.compare_exchange(answered, 0, Relaxed, Relaxed);
    Ok(context)
}

/// Says that a device may be reset next, or may have been.
pub(crate) fn doubt(ordinal: i32) {
    let slot = PRIMARY.get().zip(usize::try_from(ordinal).ok()).and_then(|(slots, ordinal)| slots.get(ordinal));
    if let Some(slot) = slot {
        slot.doubts.fetch_add(1, Relaxed);
    }
}

/// Like [`doubt`], for all devices.
#[cold]
pub(super) fn doubt_all() {
    for slot in PRIMARY.get().into_iter().flatten() {
        slot.doubts.fetch_add(1, Relaxed);
    }
}

/// Checks that a context is the primary one of a device.
///
/// # Errors
/// `DEVX_UNSUPPORTED`, `DEVX_DEVICE`, `DEVX_DRIVER`.
#[cfg(feature = "cudarc")]
pub(crate) fn require_primary(context: CUcontext, ordinal: i32) -> Result<()> {
    if primary(Driver::get()?, ordinal)?.0 == context {
        return Ok(());
    }
    refuse!(DEVX_UNSUPPORTED, "the context is not the primary one of device {ordinal}, which it has to be")
}

/// The primary context of a device, if this library has retained it.
pub(crate) fn known_primary(ordinal: i32) -> Option<Context> {
    PRIMARY.get()?.get(usize::try_from(ordinal).ok()?)?.retained.get().copied()
}

/// Whether a context stays, because it is a primary one that this library has retained, or retains now. `ordinal` is the device
/// that it is said to be of.
pub(crate) fn stays(driver: &Driver, context: Context, ordinal: i32) -> bool {
    let is_known = PRIMARY.get().is_some_and(|all| all.iter().any(|one| one.retained.get() == Some(&context)));
    is_known || (known_primary(ordinal).is_none() && primary_in_use(driver, ordinal) == Ok(Some(context)))
}

/// The primary context of a device, if anybody in this process uses it. Retains it then.
///
/// # Errors
/// `DEVX_DEVICE`, `DEVX_DRIVER`.
fn primary_in_use(driver: &Driver, ordinal: i32) -> Result<Option<Context>> {
    if is_active(driver, device(driver, ordinal)?)? { primary(driver, ordinal).map(Some) } else { Ok(None) }
}

/// Whether the primary context of a device is there, and was not reset.
fn is_active(driver: &Driver, device: CUdevice) -> Result<bool> {
    let (mut flags, mut is_active): (c_uint, c_int) = (0, 0);
    // SAFETY: a call of the driver with room for its results.
    let code = unsafe { (driver.primary_ctx_get_state)(device, &mut flags, &mut is_active) };
    driver.check("cuDevicePrimaryCtxGetState", code)?;
    Ok(is_active != 0)
}

/// # Errors
/// `DEVX_DRIVER`.
pub(crate) fn device(driver: &Driver, ordinal: i32) -> Result<CUdevice> {
    let mut device: CUdevice = 0;
    // SAFETY: a call of the driver with room for its result.
    driver.check("cuDeviceGet", unsafe { (driver.device_get)(&mut device, ordinal) })?;
    Ok(device)
}

/// Checks that there is a driver and such a device. Only the first call asks the driver.
///
/// # Errors
/// `DEVX_DEVICE`, `DEVX_DRIVER`.
pub fn require_device(ordinal: i32) -> Result<()> {
    slot(Driver::get()?, ordinal).map(|_| ())
}

fn slot(driver: &Driver, ordinal: i32) -> Result<&'static Primary> {
    let slots = match PRIMARY.get() {
        Some(slots) => slots,
        None => {
            let count = device_count(driver)?;
            PRIMARY.get_or_init(|| (0..count).map(|_| Primary::default()).collect())
        }
    };
    match usize::try_from(ordinal).ok().and_then(|ordinal| slots.get(ordinal)) {
        Some(slot) => Ok(slot),
        None => refuse!(DEVX_DEVICE, "device_id is {ordinal}: there are {} CUDA devices", slots.len()),
    }
}

pub(crate) fn device_count(driver: &Driver) -> Result<usize> {
    let mut count: c_int = 0;
    // SAFETY: a call of the driver with room for its result.
    driver.check("cuDeviceGetCount", unsafe { (driver.device_get_count)(&mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Keeps a context current on this thread while it lives. Its drop restores the context that was current before.
pub(crate) struct Current<'a> {
    driver: &'a Driver,
    pushed: Option<Context>,
    _here: OnThread,
}

/// Keeps a guard on the thread that it is for: with this it is neither `Send` nor `Sync`.
type OnThread = PhantomData<*const ()>;

/// How often a call that restores something is tried; its failure cannot be reported.
const TRIES: u32 = 3;

impl<'a> Current<'a> {
    /// Makes `context` current. If it is current already, nothing changes.
    ///
    /// # Errors
    /// `DEVX_DRIVER`; then nothing was changed.
    pub(crate) fn enter(driver: &'a Driver, context: Context) -> Result<Self> {
        let mut now = std::ptr::null_mut();
        // SAFETY: a call of the driver with room for its result.
        driver.check("cuCtxGetCurrent", unsafe { (driver.ctx_get_current)(&mut now) })?;
        if now == context.0 {
            return Ok(Self { driver, pushed: None, _here: PhantomData });
        }
        // SAFETY: a context of the driver, pushed here and popped when this is dropped.
        driver.check("cuCtxPushCurrent", unsafe { (driver.ctx_push_current)(context.0) })?;
        Ok(Self { driver, pushed: Some(context), _here: PhantomData })
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let Some(pushed) = self.pushed else { return };
        for _ in 0..TRIES {
            let (mut popped, mut now) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: `enter` pushed a context on this thread; the guard is not `Send`, and guards are dropped in order.
            if unsafe { (self.driver.ctx_pop_current)(&mut popped) } == Code::SUCCESS {
                return;
            }
            // The code may be that of earlier work although the context was popped. Then the caller's context must stay.
            // SAFETY: a call of the driver with room for its result.
            let asked = unsafe { (self.driver.ctx_get_current)(&mut now) };
            if asked == Code::SUCCESS && now != pushed.0 {
                return;
            }
        }
    }
}

/// Lets this thread, while it lives, make calls that can wait or allocate even if some stream is being captured.
/// Otherwise the driver would refuse such a call and break the capture, even one that has nothing to do with the call.
pub(crate) struct Apart<'a> {
    driver: &'a Driver,
    before: c_uint,
    _here: OnThread,
}

impl<'a> Apart<'a> {
    /// `CU_STREAM_CAPTURE_MODE_RELAXED`.
    const MODE: c_uint = 2;

    /// # Errors
    /// `DEVX_DRIVER`; then nothing was changed.
    pub(crate) fn enter(driver: &'a Driver) -> Result<Self> {
        let mut before = Self::MODE;
        // SAFETY: a call of the driver with a mode that it knows, and room for the previous one.
        let code = unsafe { (driver.exchange_capture_mode)(&mut before) };
        driver.check("cuThreadExchangeStreamCaptureMode", code)?;
        Ok(Self { driver, before, _here: PhantomData })
    }
}

impl Drop for Apart<'_> {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            let mut mode = self.before;
            // SAFETY: the mode that the driver returned.
            if unsafe { (self.driver.exchange_capture_mode)(&mut mode) } == Code::SUCCESS {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::tests::OnItsThread;

    /// A guard that is dropped on another thread would restore what that thread never had.
    #[test]
    fn guards_stay_on_their_thread() {
        <Current<'_> as OnItsThread<_>>::stays();
        <Apart<'_> as OnItsThread<_>>::stays();
    }
}
