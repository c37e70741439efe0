//! Memory managers that are written in Python.
//!
//! A call to such a manager needs an answer, so it attaches its thread to the interpreter. This can be any thread, because no
//! call into this package waits for another thread while it is attached. While the interpreter ends, the call fails on all
//! threads but the one that ends it. Giving memory back needs no answer and goes through [`queue`].

use core::ffi::c_void;
use std::sync::Arc;

use devexchange_core::abi::types::{DEVX_CALLBACK, DevxIpcHandle, DevxMemoryInfo};
use devexchange_core::manager::{Callbacks, IpcHandle, MemoryInfo, Request, Shared};
use devexchange_core::runtime::cuda::{Allocation, Hold};
use devexchange_core::{Device, Error as CoreError, Owner, Result as CoreResult, Stream};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::manager::memory::Memory;
use crate::python::call::{self, Arguments, Reference};
use crate::python::class::Class;
use crate::python::error::{self, Error, Result, refuse, wrong_type};
use crate::python::queue::{self, Held};
use crate::python::{argument, aside, interpreter, raised};

static REQUEST: Class = Class::new("devexchange._types", "MemoryRequest");
static DEVICE: Class = Class::new("devexchange._types", "Device");

/// A Python object that is a manager.
#[derive(Debug)]
struct Written {
    object: Arc<Reference>,
    /// The optional methods that the object has.
    methods: Vec<&'static str>,
    /// Holds the object, too, and has Python give it up, after the reference above is gone.
    _owner: Owner,
}

/// Makes a manager of a Python object, which is called for everything that it has methods for.
pub(crate) fn manager(object: &Bound<'_, PyAny>) -> Result<Shared> {
    if !object.hasattr("allocate")? {
        return wrong_type!("manager is {object}: it has no method allocate");
    }
    let mut methods = Vec::new();
    for method in ["initialize", "pin", "memory_info", "ipc_handle", "reset", "trim", "defer_cleanup", "close"] {
        if object.hasattr(method)? {
            methods.push(method);
        }
    }
    Ok(Shared::of_callbacks(|| {
        let object = Arc::new(Reference::new(object.clone()));
        let owner = queue::owner(Held::Manager { object: Arc::clone(&object), closes: methods.contains(&"close") });
        Ok(Written { object, methods, _owner: owner })
    })?)
}

impl Written {
    /// Calls Python for an answer, on whatever thread this is. An exception becomes an error.
    fn ask<T>(&self, act: impl FnOnce(&Bound<'_, PyAny>) -> Result<T>) -> CoreResult<T> {
        let answer = interpreter::enter(|py| {
            let _aside = aside::Aside::new(py);
            act(self.object.bind(py)).map_err(|error| raised::to_core(py, error))
        });
        answer.unwrap_or_else(|why| Err(CoreError::new(DEVX_CALLBACK, why)))
    }

    /// Like [`Written::ask`], but for an optional method; `None` if the object lacks it.
    fn ask_for<T>(&self, method: &str, act: impl FnOnce(&Bound<'_, PyAny>) -> Result<T>) -> CoreResult<Option<T>> {
        self.methods.contains(&method).then(|| self.ask(act)).transpose()
    }

    /// Calls an optional method that returns nothing.
    fn tell(&self, method: &str, arguments: impl for<'py> Arguments<'py>) -> CoreResult<()> {
        let told = self.ask_for(method, |manager| {
            queue::drain();
            call(manager, method, arguments)?;
            Ok(())
        });
        told.map(drop)
    }
}

fn call<'py>(manager: &Bound<'py, PyAny>, method: &str, arguments: impl Arguments<'py>) -> PyResult<Bound<'py, PyAny>> {
    raised::answering(|| call::call(&manager.getattr(method)?, arguments))
}

fn request_of<'py>(py: Python<'py>, request: &Request) -> Result<Bound<'py, PyAny>> {
    let Request { kind, ordinal, bytes, stream, host } = *request;
    let (device, stream) = (DEVICE.make(py, (kind.0, ordinal))?, stream.map(Stream::value));
    Ok(REQUEST.make(py, (device, bytes, stream, host.mapped, host.portable, host.write_combined))?)
}

/// The owner that gives memory back with a function, or does nothing. The function may run after the stream of the request
/// was closed, so the owner holds the stream.
fn giving_back(release: &Bound<'_, PyAny>, stream: Hold) -> Result<Owner> {
    if release.is_none() {
        return Ok(Owner::none());
    }
    if !release.is_callable() {
        return wrong_type!("release is {release:?}: a function without arguments, or None, is needed");
    }
    Ok(queue::owner(Held::Call(Reference::new(release.clone()), stream)))
}

/// Like [`argument::number`], but for a number from 0 on that a manager returned: a wrong one is not the caller's fault.
fn number(value: &Bound<'_, PyAny>, what: &str, most: i64) -> Result<i64> {
    match argument::number(value, what, 0, most) {
        Err(Error::Refused(error)) => refuse!(DEVX_CALLBACK, "{}", error.message()),
        number => number,
    }
}

// SAFETY: as the documentation of `MemoryManager` demands, the memory is what the object says.
unsafe impl Callbacks for Written {
    fn initialize(&self, ordinal: i32) -> CoreResult<()> {
        self.tell("initialize", (ordinal,))
    }

    /// `allocate(request)` returns memory of another manager, or a pair of an address and a function that gives it back.
    fn allocate(&self, request: &Request) -> CoreResult<Allocation> {
        self.ask(|manager| {
            // Give back what is due before asking for more.
            queue::drain();
            // Before the allocation: if this fails, no memory has to be given back without a hold.
            let hold = request.stream.map_or(Ok(Hold::none()), |stream| Hold::new(stream.value()))?;
            let given = call(manager, "allocate", (request_of(manager.py(), request)?,))?;
            if let Ok(memory) = given.cast::<Memory>() {
                let memory = memory.get().get()?;
                if memory.bytes < request.bytes {
                    return refuse!(DEVX_CALLBACK, "it gave memory of {} bytes, not {}", memory.bytes, request.bytes);
                }
                manager.py().detach(|| match request.stream {
                    Some(stream) => memory.ready.wait(memory.stream(stream.into())?),
                    None => memory.synchronize(),
                })?;
                return Ok(Allocation { address: memory.address, device: memory.device, owner: Owner::new(memory) });
            }
            let Some((address, release)) = argument::pair::<usize, Bound<'_, PyAny>>(&given)? else {
                return wrong_type!("it gave {given:?}: memory, or a pair (address, release), is needed");
            };
            let (address, owner) = (std::ptr::with_exposed_provenance_mut(address), giving_back(&release, hold)?);
            Ok(Allocation { address, device: Device { kind: request.kind, id: request.ordinal }, owner })
        })
    }

    /// `pin(request, address)` returns the function that unpins the memory.
    unsafe fn pin(&self, address: *mut c_void, request: &Request) -> CoreResult<Option<Owner>> {
        self.ask_for("pin", |manager| {
            let release = call(manager, "pin", (request_of(manager.py(), request)?, address.addr()))?;
            giving_back(&release, Hold::none())
        })
    }

    /// `memory_info(device_id)` returns a pair of free and total bytes.
    fn memory_info(&self, ordinal: i32) -> CoreResult<Option<MemoryInfo>> {
        self.ask_for("memory_info", |manager| {
            let given = call(manager, "memory_info", (ordinal,))?;
            let Ok((free, total)) = given.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
                return wrong_type!("it gave {given:?}: a pair (free bytes, all bytes) is needed");
            };
            let (free_bytes, total_bytes) = (number(&free, "free", i64::MAX)?, number(&total, "total", i64::MAX)?);
            Ok(MemoryInfo::from_raw(DevxMemoryInfo { free_bytes, total_bytes })?)
        })
    }

    /// `ipc_handle(address)` returns an `IpcHandle`.
    fn ipc_handle(&self, address: *const c_void) -> CoreResult<Option<IpcHandle>> {
        self.ask_for("ipc_handle", |manager| {
            let given = call(manager, "ipc_handle", (address.addr(),))?;
            type Four<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);
            let Ok((handle, offset, bytes, device_id)) = given.extract::<Four<'_>>() else {
                return wrong_type!("it gave {given:?}: an IpcHandle is needed");
            };
            let (offset, bytes) = (number(&offset, "offset", i64::MAX)?, number(&bytes, "bytes", i64::MAX)?);
            let device_id = number(&device_id, "device_id", i32::MAX.into())? as i32;
            let Ok(handle) = handle.cast::<PyBytes>() else {
                return wrong_type!("handle is {handle}: bytes are needed");
            };
            let Ok(handle) = <[u8; 64]>::try_from(handle.as_bytes()) else {
                return refuse!(DEVX_CALLBACK, "handle has {} bytes: it must have 64", handle.as_bytes().len());
            };
            Ok(IpcHandle::from_raw(&DevxIpcHandle { handle, offset, bytes, device_id, reserved: 0 })?)
        })
    }

    fn reset(&self, ordinal: i32) -> CoreResult<()> {
        self.tell("reset", (ordinal,))
    }

    fn trim(&self, ordinal: i32, keep: usize) -> CoreResult<()> {
        self.tell("trim", (ordinal, keep))
    }

    fn defer_cleanup(&self, begin: bool) -> CoreResult<()> {
        let told = self.ask_for("defer_cleanup", |manager| {
            if let Err(error) = call(manager, "defer_cleanup", (begin,)) {
                let py = manager.py();
                let end = (!error::is_error(py, &error)).then(|| error.clone_ref(py));
                error.write_unraisable(py, Some(manager));
                // Last, because from here on a signal can raise it again in any code that runs.
                end.iter().for_each(|end| raised::keep(py, end));
            }
            Ok(())
        });
        told.map(drop)
    }
}
