//! Streams. Java holds each as a handle, so that a stream that Java made is destroyed once, and never while a call uses
//! it.

use core::ffi::c_void;

use devexchange_core::runtime::cuda::Hold;
use devexchange_core::{Device, DeviceType, RawStream, Result as CoreResult, Stream, trace};
use jni::sys::jlong;

use crate::device::device;
use crate::error::{Result, refuse};
use crate::handle::{give, take};
use crate::native::plain;

/// What Java holds: the number of a stream, with the device that it is on. Aligned so that the address has room for a
/// tag.
#[repr(align(16))]
pub(crate) struct Held {
    device: Device,
    value: RawStream,
    /// Whether the stream was made for Java; otherwise it is foreign.
    owned: bool,
}

impl Held {
    /// The stream on this thread: the number 2 is the default stream of the calling thread.
    fn stream(&self) -> CoreResult<Stream> {
        self.device.stream_with(self.device, self.value)
    }

    /// The stream on this thread for work with data. If the device is that of pinned or managed memory, which has no
    /// streams, the data says which device a default stream is on.
    fn stream_of(&self, of_data: impl FnOnce(RawStream) -> CoreResult<Stream>) -> CoreResult<Stream> {
        if self.device.kind == DeviceType::CUDA { self.stream() } else { of_data(self.value) }
    }

    /// The stream as a number that names its device.
    fn number(&self) -> CoreResult<RawStream> {
        self.device.own_stream(self.value)
    }

    fn give(device: Device, value: RawStream, owned: bool) -> jlong {
        give(Box::into_raw(Box::new(Self { device, value, owned })))
    }

    /// # Safety
    /// `raw` is from [`Held::give`], and is no longer used.
    unsafe fn take_back(raw: *mut c_void) -> Box<Self> {
        // SAFETY: the caller's contract.
        unsafe { Box::from_raw(raw.cast()) }
    }
}

/// Borrows what Java holds.
///
/// # Safety
/// `handle` is 0 or a living handle, which is not given up while the result is used.
unsafe fn held<'a>(handle: jlong) -> Result<&'a Held> {
    if handle == 0 {
        return refuse!(DEVX_CLOSED, "the stream is closed");
    }
    // SAFETY: the caller's contract.
    Ok(unsafe { &*take::<Held>(handle) })
}

/// The stream that Java holds, on this thread, for work with data; `of_data` says what a number means for the data.
///
/// # Safety
/// `handle` is 0 or a living handle.
pub(crate) unsafe fn stream(handle: jlong, of_data: impl FnOnce(RawStream) -> CoreResult<Stream>) -> Result<Stream> {
    // SAFETY: the caller's contract.
    Ok(unsafe { held(handle) }?.stream_of(of_data)?)
}

/// Same as [`stream`], but `None` for 0.
///
/// # Safety
/// As [`stream`].
pub(crate) unsafe fn optional(
    handle: jlong,
    of_data: impl FnOnce(RawStream) -> CoreResult<Stream>,
) -> Result<Option<Stream>> {
    // SAFETY: the caller's contract.
    (handle != 0).then(|| unsafe { stream(handle, of_data) }).transpose()
}

/// The stream for a copy between two devices. `None` for 0, which leaves the copy to the host, if the source is host memory
/// and the target plain host memory; any other copy is queued on a stream.
///
/// # Safety
/// As [`stream`].
pub(crate) unsafe fn of_copy(
    handle: jlong,
    (from, to): (Device, Device),
    of_data: impl FnOnce(RawStream) -> CoreResult<Stream>,
) -> Result<Option<Stream>> {
    if handle == 0 && !(from.is_host() && to == Device::CPU) {
        return refuse!(DEVX_INVALID_STREAM, "stream is null: a copy between {from} and {to} is queued on a stream");
    }
    // SAFETY: the caller's contract.
    unsafe { optional(handle, of_data) }
}

/// The stream as a number that names its device; [`RawStream::NO_SYNC`] for 0.
///
/// # Safety
/// As [`stream`].
pub(crate) unsafe fn number(handle: jlong) -> Result<RawStream> {
    if handle == 0 {
        return Ok(RawStream::NO_SYNC);
    }
    // SAFETY: the caller's contract.
    Ok(unsafe { held(handle) }?.number()?)
}

/// Gives up a handle that Java closed, and closes its stream if it was made for Java: the stream is destroyed when
/// nothing needs it.
///
/// # Safety
/// `raw` is a handle, which is given up once; if its stream was made for Java, nobody queues work on the stream any
/// more.
pub(crate) unsafe fn close(raw: *mut c_void) -> Result<()> {
    // SAFETY: the caller's contract.
    let held = unsafe { Held::take_back(raw) };
    if held.owned {
        // SAFETY: the caller's contract.
        unsafe { held.stream()?.close() }?;
    }
    Ok(())
}

/// Gives up a handle that nobody closed. The stream stays: memory may still have to be given back on it.
///
/// # Safety
/// `raw` is a handle, which is given up once.
pub(crate) unsafe fn forget(raw: *mut c_void) {
    // SAFETY: the caller's contract.
    let held = unsafe { Held::take_back(raw) };
    if held.owned {
        trace::say(format_args!(
            "a DeviceStream was not closed; the garbage collector found it, and it is left to the driver, as memory may \
             still be given back on it"
        ));
    }
}

plain! { stream_create(device: jlong) -> jlong }
/// Makes a stream on a device; the stream is closed with the handle.
fn stream_create(packed: jlong) -> Result<jlong> {
    let device = device(packed)?;
    device.require_streams()?;
    Ok(Held::give(device, Stream::create(device.id)?.into(), true))
}

plain! { stream_of(device: jlong, value: jlong) -> jlong }
/// Makes a handle for a foreign stream.
fn stream_of(packed: jlong, value: jlong) -> Result<jlong> {
    let device = device(packed)?;
    device.require_streams()?;
    // SAFETY: Java's caller names a stream that outlives the handle and everything that uses it.
    let value = unsafe { RawStream::new(value) };
    device.stream_with(device, value)?;
    Ok(Held::give(device, value, false))
}

plain! { stream_value(handle: jlong) -> jlong }
/// The number of the stream in the protocols.
fn stream_value(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { held(handle) }?.stream()?.value())
}

plain! { stream_number(handle: jlong) -> jlong }
/// The number of the stream for records of this library, which includes the device of a default stream.
fn stream_number(handle: jlong) -> Result<jlong> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { held(handle) }?.number()?.to_raw())
}

plain! { stream_hold(value: jlong) -> jlong }
/// Holds a stream, given by its number in the protocols: if it is closed meanwhile, it is destroyed only after the hold
/// is given up.
fn stream_hold(value: jlong) -> Result<jlong> {
    Ok(Hold::new(value)?.into_raw())
}

plain! { stream_let_go(hold: jlong) }
/// Gives up a hold.
fn stream_let_go(hold: jlong) -> Result<()> {
    // SAFETY: Java gives back what `stream_hold` gave, once.
    drop(unsafe { Hold::from_raw(hold) });
    Ok(())
}

plain! { stream_synchronize(handle: jlong) }
/// Blocks until all work that is queued on the stream is done.
fn stream_synchronize(handle: jlong) -> Result<()> {
    // SAFETY: Java gives a living handle.
    Ok(unsafe { held(handle) }?.stream()?.synchronize()?)
}
