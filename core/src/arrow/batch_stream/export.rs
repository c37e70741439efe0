//! Exports of streams to foreign consumers: callbacks that return `errno` codes, and texts that outlive the next call.

use core::ffi::{CStr, c_char, c_int};
use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::interface::{Callbacks, Chunk, Interface, Release};
use super::{BatchStream, busy};
use crate::abi::arrow_data::ArrowSchema;
use crate::abi::arrow_device_stream::ArrowDeviceArrayStream;
use crate::abi::arrow_stream::ArrowArrayStream;
use crate::abi::types::{
    DEVX_CALLBACK, DEVX_DEVICE, DEVX_DRIVER, DEVX_IMPOSSIBLE, DEVX_NULL_ARGUMENT, DEVX_OUT_OF_MEMORY, DEVX_PANIC,
    DEVX_SYSTEM, DEVX_UNSUPPORTED,
};
use crate::device::DeviceType;
use crate::error::{Error, Refused, Result, caught};
use crate::ledger::{Entry, Kind};
use crate::memory::{Borrowed, Slab, TailSize};
use crate::{text, trace};

impl BatchStream {
    /// Hands the stream to a consumer, which releases it: pass a clone to keep pulling here, too.
    ///
    /// The consumer may move the struct, and may release it on any thread, also before the end. Its calls return an
    /// `errno` code, and a text that stays valid until the release. The end and an error are final. Calls from several
    /// threads at once are refused (EBUSY).
    ///
    /// # Errors
    /// `DEVX_NULL_ARGUMENT`, `DEVX_OUT_OF_MEMORY`, `DEVX_BUSY` while a call pulls from the stream, or `DEVX_DEVICE` if
    /// the batches are not in host memory, because the plain struct cannot name a device. Then `*out` is not written
    /// and the stream is given back.
    ///
    /// # Safety
    /// `out` is NULL or can be written. What it held before is not released.
    pub unsafe fn export(self, out: *mut ArrowArrayStream) -> std::result::Result<(), Refused<Self>> {
        if self.device_type() != DeviceType::CPU {
            let problem =
                format_args!("device_type is {}: a plain ArrowArrayStream is host memory", self.device_type());
            return Err(Refused { error: Error::new(DEVX_DEVICE, problem), returned: self });
        }
        // SAFETY: the caller's contract.
        unsafe { export(self, out) }
    }

    /// Like [`BatchStream::export`], but with the device type.
    ///
    /// # Errors
    /// `DEVX_NULL_ARGUMENT`, `DEVX_OUT_OF_MEMORY`, `DEVX_BUSY`.
    ///
    /// # Safety
    /// Same as [`BatchStream::export`].
    pub unsafe fn export_device(self, out: *mut ArrowDeviceArrayStream) -> std::result::Result<(), Refused<Self>> {
        // SAFETY: the caller's contract.
        unsafe { export(self, out) }
    }
}

/// # Safety
/// Same as [`BatchStream::export`].
unsafe fn export<S: Interface>(stream: BatchStream, out: *mut S) -> std::result::Result<(), Refused<BatchStream>> {
    if out.is_null() {
        return Err(Refused { error: Error::new(DEVX_NULL_ARGUMENT, "out is NULL"), returned: stream });
    }
    // A consumer that makes one call at a time cannot know about the other call, and would take EBUSY for the end.
    if stream.0.header().state.is_taken() {
        return Err(Refused { error: busy(), returned: stream });
    }
    let device_type = stream.device_type();
    let exported = Exported {
        stream,
        failure: OnceLock::new(),
        said: AtomicPtr::default(),
        _entry: Entry::open(Kind::StreamExport),
    };
    let slab = Slab::new(exported, TailSize::default())
        .map_err(|refused| Refused { error: refused.error, returned: refused.returned.stream })?;
    let callbacks = Callbacks {
        get_schema: get_schema::<S>,
        get_next: get_next::<S>,
        get_last_error: get_last_error::<S>,
        release: release::<S>,
    };
    // SAFETY: the caller's contract.
    unsafe { out.write(S::filled_in(device_type, callbacks, slab.into_raw())) };
    Ok(())
}

/// How many streams of this library were exported and imported up to this struct; 0 for a foreign one.
///
/// # Safety
/// `stream` is not released, and nobody else uses it during the call.
pub(super) unsafe fn exported_times<S: Interface>(stream: &S) -> usize {
    let ours: Release<S> = release::<S>;
    if !stream.release().is_some_and(|theirs| std::ptr::fn_addr_eq(theirs, ours)) {
        return 0;
    }
    // SAFETY: `export` filled the struct in, so it holds a reference, which stays there.
    let exported = Borrowed::new(unsafe { Slab::<Exported>::from_raw(stream.private_data()) });
    exported.header().stream.0.header().depth + 1
}

/// The state behind the struct of a consumer.
struct Exported {
    stream: BatchStream,
    /// The error that ended the stream. Every later call returns it again, so its text is never replaced.
    failure: OnceLock<Failure>,
    /// The text of the last call; NULL if it succeeded. It is a static text, or that of `failure`.
    said: AtomicPtr<c_char>,
    _entry: Entry,
}

struct Failure {
    code: c_int,
    text: Cow<'static, CStr>,
}

impl Failure {
    fn of(error: &Error) -> Self {
        let text = text::c_string(error.message());
        Self { code: errno(error), text: text.map_or(c"there is no memory for what it says".into(), Cow::from) }
    }
}

/// The code for a consumer: that of the producer that failed, if one did.
fn errno(error: &Error) -> c_int {
    match error.status() {
        _ if error.errno() != 0 => error.errno(),
        DEVX_OUT_OF_MEMORY => libc::ENOMEM,
        DEVX_UNSUPPORTED | DEVX_IMPOSSIBLE => libc::ENOTSUP,
        DEVX_CALLBACK | DEVX_DRIVER | DEVX_SYSTEM | DEVX_PANIC => libc::EIO,
        _ => libc::EINVAL,
    }
}

impl Exported {
    fn succeed(&self) -> c_int {
        self.said.store(std::ptr::null_mut(), Ordering::Release);
        0
    }

    /// `text` lives as long as the export.
    fn fail(&self, code: c_int, text: &CStr) -> c_int {
        self.said.store(text.as_ptr().cast_mut(), Ordering::Release);
        code
    }

    fn fail_for_good(&self, failure: &Failure) -> c_int {
        self.fail(failure.code, &failure.text)
    }

    /// Hands over the next batch, or the end. Returns `false` if another call runs, and then does nothing.
    ///
    /// # Safety
    /// `out` can be written.
    unsafe fn hand_over<C: Chunk>(&self, out: *mut C) -> Result<bool> {
        let Some(next) = self.stream.pull() else { return Ok(false) };
        match next? {
            // SAFETY: the caller's contract.
            Some(batch) => unsafe { C::export(batch, out) }?,
            // SAFETY: the caller's contract; all zero is a released array, which says that this is the end.
            None => unsafe { out.write_bytes(0, 1) },
        }
        Ok(true)
    }
}

/// Runs `act` on the state behind a consumer's struct, which stays alive during the call even if the struct is
/// released. Returns `None` if the struct is released already.
///
/// # Safety
/// `stream` is NULL, released, or one that [`export`] filled in.
unsafe fn with<S: Interface, T>(stream: *mut S, act: impl FnOnce(&Exported) -> T) -> Option<T> {
    // SAFETY: the caller's contract.
    let stream = unsafe { stream.as_ref() }?;
    stream.release()?;
    // SAFETY: the struct is not released, so it holds a reference, which stays there.
    let borrowed = Borrowed::new(unsafe { Slab::<Exported>::from_raw(stream.private_data()) });
    let held = Slab::clone(&borrowed);
    let answer = act(held.header());
    give_up(held);
    Some(answer)
}

/// Gives up a reference. If it is the last one, the source is dropped; a panic of its drop ends here.
fn give_up(exported: Slab<Exported>) {
    let given_up = caught(|| {
        drop(exported);
        Ok(())
    });
    if let Err(error) = given_up {
        trace::say(format_args!("the release of a stream panicked ({error}); the panic ends here"));
    }
}

const OUT_IS_NULL: &CStr = c"out is NULL";

/// # Safety
/// Called as a callback of a stream that [`export`] filled in.
unsafe extern "C" fn get_schema<S: Interface>(stream: *mut S, out: *mut ArrowSchema) -> c_int {
    let act = |exported: &Exported| {
        if out.is_null() {
            return exported.fail(libc::EINVAL, OUT_IS_NULL);
        }
        // SAFETY: the caller gives room for a schema.
        match caught(|| unsafe { exported.stream.schema().export(out) }) {
            Ok(()) => exported.succeed(),
            Err(error) => exported.fail(errno(&error), c"the schema could not be handed over"),
        }
    };
    // SAFETY: the caller's contract.
    unsafe { with(stream, act) }.unwrap_or(libc::EINVAL)
}

/// # Safety
/// Called as a callback of a stream that [`export`] filled in.
unsafe extern "C" fn get_next<S: Interface>(stream: *mut S, out: *mut S::Chunk) -> c_int {
    let act = |exported: &Exported| {
        if out.is_null() {
            return exported.fail(libc::EINVAL, OUT_IS_NULL);
        }
        if let Some(failure) = exported.failure.get() {
            return exported.fail_for_good(failure);
        }
        // SAFETY: the caller gives room for an array.
        match caught(|| unsafe { exported.hand_over(out) }) {
            Ok(true) => exported.succeed(),
            Ok(false) => exported.fail(libc::EBUSY, c"another call is running"),
            // Final even if only the export failed: a lost batch must not be passed over.
            Err(error) => exported.fail_for_good(exported.failure.get_or_init(|| Failure::of(&error))),
        }
    };
    // SAFETY: the caller's contract.
    unsafe { with(stream, act) }.unwrap_or(libc::EINVAL)
}

/// # Safety
/// Called as a callback of a stream that [`export`] filled in.
unsafe extern "C" fn get_last_error<S: Interface>(stream: *mut S) -> *const c_char {
    // SAFETY: the caller's contract.
    let said = unsafe { with(stream, |exported| exported.said.load(Ordering::Acquire)) };
    said.map_or(std::ptr::null(), |text| text.cast_const())
}

/// # Safety
/// Called as a callback of a stream that [`export`] filled in.
unsafe extern "C" fn release<S: Interface>(stream: *mut S) {
    // SAFETY: a release callback is called with a valid struct.
    let Some(stream) = (unsafe { stream.as_mut() }) else { return };
    if stream.release().is_none() {
        return;
    }
    stream.disarm();
    // SAFETY: the struct's reference, which is given up once, because the struct is marked.
    give_up(unsafe { Slab::from_raw(stream.private_data()) });
}
