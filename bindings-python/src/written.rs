//! Memory managers that are written in Python, as a table of callbacks.
//!
//! A callback attaches the thread that it comes on to the interpreter, because it has to answer: it may be any thread,
//! and no call into this package waits for another thread while it is attached. While the interpreter ends it answers
//! with an error on other threads than the one that ends it. Giving memory back needs no answer and goes through [`queue`].

use core::ffi::c_void;
use std::fmt::Display;

use devexchange_core::abi::types::{
    DEVX_CALLBACK, DEVX_HOST_MAPPED, DEVX_HOST_PORTABLE, DEVX_HOST_WRITE_COMBINED, DEVX_MANAGER_VERSION, DEVX_OK,
    DevxError, DevxIpcHandle, DevxManagerTable, DevxMemory, DevxMemoryInfo, DevxMemoryRequest, DevxOwner, DevxStatus,
};
use devexchange_core::manager::Table;
use devexchange_core::order::NO_SYNC;
use devexchange_core::runtime::cuda::{Hold, RawStream};
use devexchange_core::{DeviceType, Error as CoreError, Owner, error as core_error, text};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{self, Error, Result, refuse, wrong_type};
use crate::memory::Memory;
use crate::python::{self, Arguments, Class};
use crate::queue::{self, Held};
use crate::raised;

static REQUEST: Class = Class::new("devexchange._types", "MemoryRequest");
static DEVICE: Class = Class::new("devexchange._types", "Device");

/// A manager of an object of Python's, which is asked for what it has methods for.
pub(crate) fn table(manager: &Bound<'_, PyAny>) -> Result<Table> {
    if !manager.hasattr("allocate")? {
        return wrong_type!("manager is {manager}: it has no method allocate");
    }
    let has = |method: &str| manager.hasattr(method);
    let mut table = DevxManagerTable {
        version: DEVX_MANAGER_VERSION,
        reserved: 0,
        context: std::ptr::null_mut(),
        allocate: Some(allocate),
        initialize: if has("initialize")? { Some(initialize) } else { None },
        pin: if has("pin")? { Some(pin) } else { None },
        memory_info: if has("memory_info")? { Some(memory_info) } else { None },
        get_ipc_handle: if has("ipc_handle")? { Some(ipc_handle) } else { None },
        reset: if has("reset")? { Some(reset) } else { None },
        trim: if has("trim")? { Some(trim) } else { None },
        defer_cleanup: if has("defer_cleanup")? { Some(defer_cleanup) } else { None },
        release: Some(if has("close")? { close } else { release }),
    };
    // Not before all is known: what raises above takes nothing.
    let context = Box::into_raw(Box::new(manager.clone().unbind()));
    table.context = context.cast();
    // SAFETY: the callbacks attach themselves, and what they hold is given up by `release`.
    let made = unsafe { Table::new(&table) };
    if made.is_err() {
        // SAFETY: made above; refused, so nobody else has it.
        drop(unsafe { Box::from_raw(context) });
    }
    Ok(made?)
}

/// The object behind a table.
///
/// # Safety
/// `context` is that of a table of ours which was not released yet.
unsafe fn object<'a>(context: *mut c_void) -> &'a Py<PyAny> {
    // SAFETY: the contract.
    unsafe { &*context.cast::<Py<PyAny>>() }
}

/// Has Python answer, on whatever thread this is; what it raises, and panics, become an error.
///
/// # Safety
/// As for [`object`]; `error` is NULL or has room for an error.
unsafe fn ask(
    context: *mut c_void,
    error: *mut DevxError,
    act: impl FnOnce(&Bound<'_, PyAny>) -> Result<()>,
) -> DevxStatus {
    // SAFETY: the contract.
    let object = unsafe { object(context) };
    let answer = core_error::caught(|| {
        let answer = queue::enter(|py| {
            let _aside = queue::Aside::new(py);
            act(object.bind(py)).map_err(|error| error::to_core(py, error))
        });
        answer.unwrap_or_else(|why| Err(CoreError::new(DEVX_CALLBACK, why)))
    });
    let Err(said) = answer else { return DEVX_OK };
    // SAFETY: the contract.
    if let Some(error) = unsafe { error.as_mut() } {
        error.driver_code = said.driver_code();
        text::fill(said.message(), &mut error.message);
    }
    said.status()
}

fn request_of<'py>(py: Python<'py>, raw: &DevxMemoryRequest) -> Result<Bound<'py, PyAny>> {
    let device = DEVICE.make(py, (raw.device_type, raw.device_id))?;
    let stream = (raw.stream != NO_SYNC).then_some(raw.stream);
    let flag = |bit: u32| raw.host_flags & bit != 0;
    let (mapped, portable) = (flag(DEVX_HOST_MAPPED), flag(DEVX_HOST_PORTABLE));
    Ok(REQUEST.make(py, (device, raw.bytes, stream, mapped, portable, flag(DEVX_HOST_WRITE_COMBINED)))?)
}

/// What gives memory back: a function, or nothing. It may run when the stream of the request is closed.
fn giving_back(release: &Bound<'_, PyAny>, stream: Hold) -> Result<Owner> {
    if release.is_none() {
        return Ok(Owner::none());
    }
    if !release.is_callable() {
        return wrong_type!("release is {release:?}: a function without arguments, or None, is needed");
    }
    Ok(queue::owner(Held::Call(release.clone().unbind(), stream)))
}

/// `allocate(request)` gives memory of another manager, or a pair of an address and what gives it back.
unsafe extern "C" fn allocate(
    context: *mut c_void,
    request: *const DevxMemoryRequest,
    out: *mut DevxMemory,
    error: *mut DevxError,
) -> DevxStatus {
    // SAFETY: the table's contract: there is a request.
    let request = unsafe { &*request };
    // SAFETY: the table's contract: there is room for memory.
    let out = unsafe { &mut *out };
    let act = |manager: &Bound<'_, PyAny>| {
        // What is to be given back is, before more is wanted.
        queue::drain();
        // Before there is memory that would have to be given back without it.
        let hold = Hold::new(request.stream)?;
        let given = call(manager, "allocate", (request_of(manager.py(), request)?,))?;
        (out.device_type, out.device_id) = (request.device_type, request.device_id);
        if let Ok(memory) = given.cast::<Memory>() {
            let memory = memory.get().get()?;
            if (memory.bytes as u64) < request.bytes as u64 {
                return refuse!(DEVX_CALLBACK, "it gave memory of {} bytes, not {}", memory.bytes, request.bytes);
            }
            // SAFETY: the table's contract: a stream that is named is alive.
            let stream = unsafe { RawStream::new(request.stream) };
            manager.py().detach(|| match stream {
                RawStream::NO_SYNC => memory.synchronize(),
                value => memory.ready.wait(memory.stream(value)?),
            })?;
            (out.device_type, out.device_id) = (memory.device.kind.0, memory.device.id);
            out.address = memory.address;
            out.owner = Owner::new(memory).into_raw();
            return Ok(());
        }
        let Ok((address, release)) = given.extract::<(usize, Bound<'_, PyAny>)>() else {
            return wrong_type!("it gave {given:?}: memory, or a pair (address, release), is needed");
        };
        out.owner = giving_back(&release, hold)?.into_raw();
        out.address = std::ptr::with_exposed_provenance_mut(address);
        Ok(())
    };
    // SAFETY: the table's contract.
    unsafe { ask(context, error, act) }
}

unsafe extern "C" fn initialize(context: *mut c_void, device_id: i32, error: *mut DevxError) -> DevxStatus {
    let act = |manager: &Bound<'_, PyAny>| {
        call(manager, "initialize", (device_id,))?;
        Ok(())
    };
    // SAFETY: the table's contract.
    unsafe { ask(context, error, act) }
}

/// `pin(request, address)` gives what unpins the memory.
unsafe extern "C" fn pin(
    context: *mut c_void,
    device_id: i32,
    address: *mut c_void,
    bytes: i64,
    host_flags: u32,
    out: *mut DevxOwner,
    error: *mut DevxError,
) -> DevxStatus {
    let device_type = DeviceType::CUDA_HOST.0;
    let raw = DevxMemoryRequest { device_type, device_id, bytes, stream: NO_SYNC, host_flags, reserved: 0 };
    let act = |manager: &Bound<'_, PyAny>| {
        let request = request_of(manager.py(), &raw)?;
        let release = call(manager, "pin", (request, address.addr()))?;
        let owner = giving_back(&release, Hold::none())?.into_raw();
        // SAFETY: the table's contract: there is room for an owner.
        unsafe { out.write(owner) };
        Ok(())
    };
    // SAFETY: the table's contract.
    unsafe { ask(context, error, act) }
}

/// As [`python::number`], of what a manager gave: it is not the caller's fault.
fn number<'py, T>(value: &Bound<'py, PyAny>, what: &str, least: T, most: T) -> Result<T>
where
    T: FromPyObjectOwned<'py, Error = PyErr> + PartialOrd + Display,
{
    match python::number(value, what, least, most) {
        Err(Error::Refused(error)) => refuse!(DEVX_CALLBACK, "{}", error.message()),
        number => number,
    }
}

/// `memory_info(device_id)` gives a pair of free and all bytes.
unsafe extern "C" fn memory_info(
    context: *mut c_void,
    device_id: i32,
    out: *mut DevxMemoryInfo,
    error: *mut DevxError,
) -> DevxStatus {
    let act = |manager: &Bound<'_, PyAny>| {
        let given = call(manager, "memory_info", (device_id,))?;
        let Ok((free, total)) = given.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
            return wrong_type!("it gave {given:?}: a pair (free bytes, all bytes) is needed");
        };
        let (free_bytes, total_bytes) = (number(&free, "free", 0, i64::MAX)?, number(&total, "total", 0, i64::MAX)?);
        // SAFETY: the table's contract: there is room for it.
        unsafe { out.write(DevxMemoryInfo { free_bytes, total_bytes }) };
        Ok(())
    };
    // SAFETY: the table's contract.
    unsafe { ask(context, error, act) }
}

/// `ipc_handle(address)` gives an `IpcHandle`.
unsafe extern "C" fn ipc_handle(
    context: *mut c_void,
    address: *const c_void,
    out: *mut DevxIpcHandle,
    error: *mut DevxError,
) -> DevxStatus {
    let act = |manager: &Bound<'_, PyAny>| {
        let given = call(manager, "ipc_handle", (address.addr(),))?;
        type Four<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);
        let Ok((handle, offset, bytes, device_id)) = given.extract::<Four<'_>>() else {
            return wrong_type!("it gave {given:?}: an IpcHandle is needed");
        };
        let (offset, bytes) = (number(&offset, "offset", 0, i64::MAX)?, number(&bytes, "bytes", 0, i64::MAX)?);
        let device_id = number(&device_id, "device_id", 0, i32::MAX)?;
        let Ok(handle) = handle.cast::<PyBytes>() else {
            return wrong_type!("handle is {handle}: bytes are needed");
        };
        let Ok(handle) = <[u8; 64]>::try_from(handle.as_bytes()) else {
            return refuse!(DEVX_CALLBACK, "handle has {} bytes: it must have 64", handle.as_bytes().len());
        };
        // SAFETY: the table's contract: there is room for it.
        unsafe { out.write(DevxIpcHandle { handle, offset, bytes, device_id, reserved: 0 }) };
        Ok(())
    };
    // SAFETY: the table's contract.
    unsafe { ask(context, error, act) }
}

unsafe extern "C" fn reset(context: *mut c_void, device_id: i32, error: *mut DevxError) -> DevxStatus {
    let act = |manager: &Bound<'_, PyAny>| {
        queue::drain();
        call(manager, "reset", (device_id,))?;
        Ok(())
    };
    // SAFETY: the table's contract.
    unsafe { ask(context, error, act) }
}

unsafe extern "C" fn trim(context: *mut c_void, device_id: i32, keep: i64, error: *mut DevxError) -> DevxStatus {
    let act = |manager: &Bound<'_, PyAny>| {
        queue::drain();
        call(manager, "trim", (device_id, keep))?;
        Ok(())
    };
    // SAFETY: the table's contract.
    unsafe { ask(context, error, act) }
}

unsafe extern "C" fn defer_cleanup(context: *mut c_void, begin: i32) {
    let act = |manager: &Bound<'_, PyAny>| {
        if let Err(error) = call(manager, "defer_cleanup", (begin != 0,)) {
            let py = manager.py();
            let end = (!raised::is_error(py, &error)).then(|| error.clone_ref(py));
            error.write_unraisable(py, Some(manager));
            // At last: from here on it may be raised again in whatever runs.
            end.iter().for_each(|end| raised::keep(py, end));
        }
        Ok(())
    };
    // SAFETY: the table's contract, and NULL for an error that nobody would read.
    unsafe { ask(context, std::ptr::null_mut(), act) };
}

fn call<'py>(manager: &Bound<'py, PyAny>, method: &str, arguments: impl Arguments<'py>) -> PyResult<Bound<'py, PyAny>> {
    python::call(&manager.getattr(method)?, arguments)
}

unsafe extern "C" fn release(context: *mut c_void) {
    // SAFETY: the context of a table of ours, which calls this once.
    let manager = unsafe { Box::from_raw(context.cast::<Py<PyAny>>()) };
    drop(queue::owner(Held::Object(*manager)));
}

/// As [`release`], of an object with a method `close`, which is called before.
unsafe extern "C" fn close(context: *mut c_void) {
    // SAFETY: the context of a table of ours, which calls this once.
    let manager = unsafe { Box::from_raw(context.cast::<Py<PyAny>>()) };
    drop(queue::owner(Held::Closing(*manager)));
}
