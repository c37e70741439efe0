//! Managers that a program implements, in whatever language: their callbacks, and what is the same for all of them.

use core::ffi::c_void;
use std::fmt;

use super::books::{Books, Statistics};
use super::{Allocated, HostFlags, IpcHandle, Manager, MemoryInfo, Request, Shared, driver_ipc_handle, lacks};
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result, Returned, caught, refuse};
use crate::memory::{InOrder, Owner, Slab, TailSize, Vacant};
use crate::order::Ready;
use crate::runtime::cuda::{Allocation, HeldStream};
use crate::stream::Stream;
use crate::trace;

/// The callbacks of a manager that a program implements. [`Shared::of_callbacks`] makes a manager of them and keeps its books.
///
/// Any thread may call these, several at once, in any order. No number of bytes exceeds `i64::MAX`. The name of the callback
/// is put before the text of an error; an error without a text says what the callback returned.
///
/// # Safety
/// The memory that [`Callbacks::allocate`] returns is as [`Manager`] requires.
pub unsafe trait Callbacks: Send + Sync + fmt::Debug + 'static {
    /// Same as [`Manager::initialize`].
    fn initialize(&self, ordinal: i32) -> Result<()>;

    /// Like [`Manager::allocate`]: memory that is ready at once, or in the order of the stream. Only requests for device
    /// memory have a stream, and never that of a thread, because another thread may give the memory back.
    fn allocate(&self, request: &Request) -> Result<Allocation>;

    /// Like [`Manager::pin`], with the bytes and flags of the request; `None` if the manager does not pin.
    ///
    /// # Safety
    /// Same as [`Manager::pin`].
    unsafe fn pin(&self, address: *mut c_void, request: &Request) -> Result<Option<Owner>>;

    /// Like [`Manager::memory_info`]; `None` if the manager cannot say.
    fn memory_info(&self, ordinal: i32) -> Result<Option<MemoryInfo>>;

    /// Like [`Manager::ipc_handle`]; `None` if the manager leaves this to the driver.
    fn ipc_handle(&self, address: *const c_void) -> Result<Option<IpcHandle>>;

    /// Drops what was kept for a device. All memory of the device has been given back already.
    fn reset(&self, ordinal: i32) -> Result<()>;

    /// Same as [`Manager::trim`].
    fn trim(&self, ordinal: i32, keep: usize) -> Result<()>;

    /// Begins or ends a deferral of cleanup. Releases are held back meanwhile. An error is only traced.
    fn defer_cleanup(&self, begin: bool) -> Result<()>;
}

#[derive(Debug)]
struct Own<C> {
    books: Books,
    /// All memory holds them, too, because its release may need them.
    callbacks: Slab<C>,
}

impl Shared {
    /// Shares a manager that a program implements. `make` is called last, when nothing else can fail, so what it takes over is
    /// not lost.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, and the errors of `make`.
    pub fn of_callbacks<C: Callbacks>(make: impl FnOnce() -> Result<C>) -> Result<Self> {
        let (books, room) = (Books::new()?, Slab::room(TailSize::default())?);
        Self::with(|| Ok(Own { books, callbacks: room.fill(make()?) }))
    }
}

impl<C: Callbacks> Own<C> {
    fn ask<T>(&self, name: &str, callback: impl FnOnce(&C) -> Result<T>) -> Result<T> {
        caught(|| callback(self.callbacks.header())).map_err(|error| match (error.message(), error.status()) {
            ("", status) => Error::driver(status, error.driver_code(), format_args!("{}", Returned(name, status))),
            _ => error.within(format_args!("{name}: ")),
        })
    }

    fn tell_of_deferral(&self, begin: bool) {
        if let Err(error) = caught(|| self.callbacks.header().defer_cleanup(begin)) {
            trace::say(format_args!("defer_cleanup of a manager failed: {error}"));
        }
    }
}

// SAFETY: by the contract of the callbacks, the memory is as they describe it.
unsafe impl<C: Callbacks> Manager for Own<C> {
    fn initialize(&self, ordinal: i32) -> Result<()> {
        self.ask("initialize", |own| own.initialize(ordinal))
    }

    fn allocate(&self, request: &Request) -> Result<Allocated> {
        let Request { kind, ordinal, bytes, .. } = *request;
        if i64::try_from(bytes).is_err() {
            return Err(Error::no_memory(bytes));
        }
        // Other memory is in the order of no stream, whichever manager it is from: it is ready at once.
        let stream = request.stream.filter(|_| kind == DeviceType::CUDA);
        // The program gets only the number of the stream, which does not name a device.
        if let Some(stream) = stream.filter(|stream| stream.is_default() && stream.ordinal() != ordinal) {
            let (value, of) = (stream.value(), stream.ordinal());
            return refuse!(DEVX_INVALID_STREAM, "stream is {value:#x}: of cuda:{of}, not of cuda:{ordinal}");
        }
        let asked = Request { stream: stream.map(Stream::anywhere), ..*request };
        self.books.enter(ordinal, bytes, || {
            let room = Vacant::new()?;
            let held = stream.map(HeldStream::new).transpose()?;
            let ready = stream.map_or(Ok(Ready::Now), Ready::queued)?;
            let Allocation { address, device, owner } = self.ask("allocate", |own| own.allocate(&asked))?;
            // Dropped in this order: the release of the memory may need the others.
            let owner = Owner::in_room(room, (owner, held, self.callbacks.clone())).given_back(stream.map(InOrder::Of));
            request.check(address, device, bytes)?;
            let device = Device::new(device.kind, device.id.into()).map_err(|error| error.within("allocate: "))?;
            Ok(Allocated { address, device, bytes, owner, ready })
        })
    }

    unsafe fn pin(&self, ordinal: i32, address: *mut c_void, bytes: usize, host: HostFlags) -> Result<Owner> {
        if i64::try_from(bytes).is_err() {
            return refuse!(DEVX_OUT_OF_RANGE, "bytes is {bytes}: there is no such memory");
        }
        let (room, request) = (Vacant::new()?, Request { host, ..Request::of(DeviceType::CUDA_HOST, ordinal, bytes) });
        // SAFETY: the caller's contract.
        let pinned = self.ask("pin", |own| unsafe { own.pin(address, &request) })?;
        pinned.map_or_else(|| lacks("pin"), |owner| Ok(Owner::in_room(room, (owner, self.callbacks.clone()))))
    }

    fn memory_info(&self, ordinal: i32) -> Result<MemoryInfo> {
        self.ask("memory_info", |own| own.memory_info(ordinal))?.map_or_else(|| lacks("memory_info"), Ok)
    }

    fn ipc_handle(&self, address: *const c_void) -> Result<IpcHandle> {
        let by_driver = || {
            driver_ipc_handle(address)
                .map_err(|error| error.within("the manager has no ipc_handle, so the driver was asked: "))
        };
        self.ask("ipc_handle", |own| own.ipc_handle(address))?.map_or_else(by_driver, Ok)
    }

    unsafe fn reset(&self, ordinal: i32) -> Result<()> {
        self.books.reset(ordinal);
        self.ask("reset", |own| own.reset(ordinal))
    }

    fn defer_cleanup(&self) {
        self.books.defer();
        self.tell_of_deferral(true);
    }

    fn resume_cleanup(&self) -> Result<()> {
        self.books.resume()?;
        self.tell_of_deferral(false);
        Ok(())
    }

    fn trim(&self, ordinal: i32, keep: usize) -> Result<()> {
        self.books.flush();
        self.ask("trim", |own| own.trim(ordinal, keep.min(i64::MAX as usize)))
    }

    fn statistics(&self) -> Statistics {
        self.books.statistics()
    }
}
