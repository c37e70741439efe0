//! The CUDA driver: found at run time, probed once, called through signatures whose result is a number.
//!
//! cudarc provides the types and constants, and finds the library under other names. Its functions are not used, because
//! they return a Rust enum, and a newer driver can return codes that the enum does not have.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUipcEventHandle, CUipcMemHandle, CUmemPoolProps,
    CUmemPoolPtrExportData, CUmemoryPool, CUstream, CUuuid,
};
use libloading::Library;

use super::context;
use crate::abi::types::{DEVX_DEVICE, DEVX_DRIVER, DEVX_OUT_OF_MEMORY};
use crate::error::{Error, Result, Text};
use crate::fork::Process;

/// The result of a driver call. The set is open.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    /// The driver is shutting down with the process.
    pub(crate) const DEINITIALIZED: Self = Self(4);
    /// The loaded library is not a driver, but the stub that programs are linked with where there is no driver.
    pub(crate) const STUB: Self = Self(34);
    pub(crate) const NO_DEVICE: Self = Self(100);
    /// No context is current, or an IPC handle is from this very process.
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const CONTEXT_IS_DESTROYED: Self = Self(709);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const NOT_PERMITTED: Self = Self(800);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    /// The legacy default stream was named while a stream that it waits for is being captured.
    pub(crate) const CAPTURE_IMPLICIT: Self = Self(906);
}

macro_rules! functions {
    ($($name:ident: $symbol:literal ($($argument:ty),*);)*) => {
        /// The functions of the driver that this library uses.
        pub(crate) struct Driver {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> Code,)*
            process: Process,
        }

        impl Driver {
            /// # Safety
            /// `find` returns NULL, or the function of that name in a CUDA driver that stays loaded.
            unsafe fn from_symbols(find: impl Fn(&CStr) -> *const c_void) -> std::result::Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                let mut find = |symbol: &'static str, name: &CStr| {
                    let address = find(name);
                    if address.is_null() {
                        missing.push(symbol);
                    }
                    address
                };
                $(let $name = find($symbol, match CStr::from_bytes_with_nul(concat!($symbol, "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                });)*
                if !missing.is_empty() {
                    return Err(missing);
                }
                Ok(Self {
                    // SAFETY: not NULL, and by the contract of this function the driver's function of this name, which
                    // has this signature (cuda.h). The result is an `int` in C, of which only the bits are taken.
                    $($name: unsafe {
                        std::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) -> Code>($name)
                    },)*
                    process: Process::here(),
                })
            }
        }
    };
}

functions! {
    init: "cuInit" (c_uint);
    driver_get_version: "cuDriverGetVersion" (*mut c_int);
    get_error_name: "cuGetErrorName" (Code, *mut *const c_char);
    get_error_string: "cuGetErrorString" (Code, *mut *const c_char);
    device_get: "cuDeviceGet" (*mut CUdevice, c_int);
    device_get_count: "cuDeviceGetCount" (*mut c_int);
    device_get_name: "cuDeviceGetName" (*mut c_char, c_int, CUdevice);
    device_get_uuid: "cuDeviceGetUuid_v2" (*mut CUuuid, CUdevice);
    primary_ctx_retain: "cuDevicePrimaryCtxRetain" (*mut CUcontext, CUdevice);
    primary_ctx_get_state: "cuDevicePrimaryCtxGetState" (CUdevice, *mut c_uint, *mut c_int);
    ctx_get_current: "cuCtxGetCurrent" (*mut CUcontext);
    ctx_get_device: "cuCtxGetDevice" (*mut CUdevice);
    ctx_synchronize: "cuCtxSynchronize" ();
    ctx_push_current: "cuCtxPushCurrent_v2" (CUcontext);
    ctx_pop_current: "cuCtxPopCurrent_v2" (*mut CUcontext);
    stream_create: "cuStreamCreate" (*mut CUstream, c_uint);
    stream_destroy: "cuStreamDestroy_v2" (CUstream);
    stream_synchronize: "cuStreamSynchronize" (CUstream);
    stream_query: "cuStreamQuery" (CUstream);
    stream_wait_event: "cuStreamWaitEvent" (CUstream, CUevent, c_uint);
    stream_get_ctx: "cuStreamGetCtx" (CUstream, *mut CUcontext);
    stream_is_capturing: "cuStreamIsCapturing" (CUstream, *mut c_uint);
    exchange_capture_mode: "cuThreadExchangeStreamCaptureMode" (*mut c_uint);
    event_create: "cuEventCreate" (*mut CUevent, c_uint);
    event_record: "cuEventRecord" (CUevent, CUstream);
    event_query: "cuEventQuery" (CUevent);
    event_synchronize: "cuEventSynchronize" (CUevent);
    event_destroy: "cuEventDestroy_v2" (CUevent);
    mem_get_info: "cuMemGetInfo_v2" (*mut usize, *mut usize);
    mem_get_address_range: "cuMemGetAddressRange_v2" (*mut CUdeviceptr, *mut usize, CUdeviceptr);
    mem_alloc: "cuMemAlloc_v2" (*mut CUdeviceptr, usize);
    mem_free: "cuMemFree_v2" (CUdeviceptr);
    mem_alloc_async: "cuMemAllocAsync" (*mut CUdeviceptr, usize, CUstream);
    mem_free_async: "cuMemFreeAsync" (CUdeviceptr, CUstream);
    mem_host_alloc: "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    mem_free_host: "cuMemFreeHost" (*mut c_void);
    mem_alloc_managed: "cuMemAllocManaged" (*mut CUdeviceptr, usize, c_uint);
    mem_host_register: "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    mem_host_unregister: "cuMemHostUnregister" (*mut c_void);
    mem_pool_create: "cuMemPoolCreate" (*mut CUmemoryPool, *const CUmemPoolProps);
    mem_pool_destroy: "cuMemPoolDestroy" (CUmemoryPool);
    mem_pool_trim: "cuMemPoolTrimTo" (CUmemoryPool, usize);
    mem_pool_get_attribute: "cuMemPoolGetAttribute" (CUmemoryPool, c_uint, *mut c_void);
    mem_pool_set_attribute: "cuMemPoolSetAttribute" (CUmemoryPool, c_uint, *mut c_void);
    mem_alloc_from_pool: "cuMemAllocFromPoolAsync" (*mut CUdeviceptr, usize, CUmemoryPool, CUstream);
    mem_pool_export: "cuMemPoolExportToShareableHandle" (*mut c_void, CUmemoryPool, c_uint, u64);
    mem_pool_import: "cuMemPoolImportFromShareableHandle" (*mut CUmemoryPool, *mut c_void, c_uint, u64);
    mem_pool_export_pointer: "cuMemPoolExportPointer" (*mut CUmemPoolPtrExportData, CUdeviceptr);
    mem_pool_import_pointer: "cuMemPoolImportPointer" (*mut CUdeviceptr, CUmemoryPool, *mut CUmemPoolPtrExportData);
    ipc_get_mem_handle: "cuIpcGetMemHandle" (*mut CUipcMemHandle, CUdeviceptr);
    ipc_open_mem_handle: "cuIpcOpenMemHandle_v2" (*mut CUdeviceptr, CUipcMemHandle, c_uint);
    ipc_close_mem_handle: "cuIpcCloseMemHandle" (CUdeviceptr);
    ipc_get_event_handle: "cuIpcGetEventHandle" (*mut CUipcEventHandle, CUevent);
    ipc_open_event_handle: "cuIpcOpenEventHandle" (*mut CUevent, CUipcEventHandle);
    pointer_get_attributes: "cuPointerGetAttributes" (c_uint, *mut c_uint, *mut *mut c_void, CUdeviceptr);
    memcpy_async: "cuMemcpyAsync" (CUdeviceptr, CUdeviceptr, usize, CUstream);
    memcpy_peer_async: "cuMemcpyPeerAsync" (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);
}

/// Why there is no driver. This is found out once, and stays for the life of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Absent {
    NoLibrary,
    MissingSymbols(Vec<&'static str>),
    Init(u32),
}

static DRIVER: OnceLock<std::result::Result<Driver, Absent>> = OnceLock::new();

/// The process that was the first to look for the driver; 0 if none has looked yet.
static LOOKING: AtomicU64 = AtomicU64::new(0);

impl Driver {
    /// Returns the driver, which is looked for at the first call.
    ///
    /// # Errors
    /// `DEVX_DEVICE` if there is no library, if it lacks functions, or if it has no device; also in a child of `fork`,
    /// which must not call the driver any more.
    pub(crate) fn get() -> Result<&'static Self> {
        let found = match DRIVER.get() {
            Some(found) => found,
            None => Self::look()?,
        };
        match found {
            Ok(driver) if driver.process.is_here() => Ok(driver),
            Ok(driver) => Err(of_parent(driver.process)),
            Err(absent) => Err(Error::new(DEVX_DEVICE, format_args!("{absent}"))),
        }
    }

    /// # Errors
    /// `DEVX_DEVICE` in a fork of a process that was just looking: the thread that looked is missing here, and never
    /// finishes.
    #[cold]
    fn look() -> Result<&'static std::result::Result<Self, Absent>> {
        match LOOKING.compare_exchange(0, Process::here().to_bits(), Relaxed, Relaxed).map_err(Process::from_bits) {
            Err(parent) if !parent.is_here() => Err(of_parent(parent)),
            _ => Ok(DRIVER.get_or_init(probe)),
        }
    }

    /// The driver, if it was needed before. This is for release paths, which must not load the driver.
    pub(crate) fn loaded() -> Option<&'static Self> {
        let driver = DRIVER.get()?.as_ref().ok()?;
        driver.process.is_here().then_some(driver)
    }

    /// Turns the result of a call into an error that names the call, the code and its meaning.
    pub(crate) fn check(&self, call: &str, code: Code) -> Result<()> {
        if code == Code::SUCCESS {
            return Ok(());
        }
        if code == Code::CONTEXT_IS_DESTROYED {
            // Somebody may have reset a device. The next call that uses one finds out.
            context::doubt_all();
        }
        let status = if code == Code::OUT_OF_MEMORY { DEVX_OUT_OF_MEMORY } else { DEVX_DRIVER };
        // SAFETY: this function writes the address of a static text, or NULL.
        let name = unsafe { self.describe(self.get_error_name, code) };
        // SAFETY: as above.
        let meaning = unsafe { self.describe(self.get_error_string, code) };
        let text: Text = match (name, meaning) {
            (Some(name), Some(meaning)) => format_args!("{call}: {name} ({}): {meaning}", code.0).into(),
            _ => format_args!("{call}: driver code {}, which this driver has no name for", code.0).into(),
        };
        Err(Error::driver(status, i32::try_from(code.0).unwrap_or(i32::MAX), text))
    }

    /// # Safety
    /// `function` writes NULL or the address of a static text.
    unsafe fn describe(
        &self,
        function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
        code: Code,
    ) -> Option<Cow<'static, str>> {
        let mut text = std::ptr::null();
        // SAFETY: a call of the driver with room for its result.
        let result = unsafe { function(code, &mut text) };
        if result != Code::SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: the driver's texts are static and NUL-terminated.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy())
    }
}

fn of_parent(process: Process) -> Error {
    let text = format_args!(
        "the CUDA driver was initialised in process {process}, of which this one is a fork: it cannot be used here"
    );
    Error::new(DEVX_DEVICE, text)
}

fn probe() -> std::result::Result<Driver, Absent> {
    let library = open().ok_or(Absent::NoLibrary)?;
    let find = |name: &CStr| {
        // SAFETY: the symbol is only taken as an address here.
        let symbol = unsafe { library.get::<*const c_void>(name.to_bytes_with_nul()) };
        // SAFETY: as above; the library stays loaded.
        symbol.map_or(std::ptr::null(), |symbol| unsafe { symbol.try_as_raw_ptr() }.unwrap_or_default().cast_const())
    };
    // SAFETY: these are the symbols of the CUDA driver.
    let driver = unsafe { Driver::from_symbols(find) }.map_err(Absent::MissingSymbols)?;
    // SAFETY: the first call of the driver; the flags must be 0.
    match unsafe { (driver.init)(0) } {
        Code::SUCCESS => Ok(driver),
        Code(code) => Err(Absent::Init(code)),
    }
}

/// Opens the library, which is never closed.
fn open() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    // First by the name that every driver has for its clients: `libcuda.so` is a stub for linkers if the directories of
    // the toolkit are searched, too. No other name is tried: whatever has one is loaded, and runs, in this process.
    // SAFETY: loading a CUDA driver has no preconditions.
    let library = ["libcuda.so.1", "libcuda.so"].into_iter().find_map(|name| unsafe { Library::new(name) }.ok())?;
    Some(LIBRARY.get_or_init(|| library))
}

impl std::fmt::Display for Absent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoLibrary => f.write_str("there is no CUDA driver on this machine (libcuda.so.1 was not found)"),
            Self::MissingSymbols(symbols) => {
                write!(f, "the CUDA driver of this machine lacks {}: it is too old", symbols.join(", "))
            }
            Self::Init(code) if *code == Code::NO_DEVICE.0 => {
                f.write_str("there is a CUDA driver, but no CUDA device that it may use (cuInit: 100)")
            }
            Self::Init(code) if *code == Code::STUB.0 => {
                f.write_str("there is no CUDA driver on this machine, only the toolkit's stub of one (cuInit: 34)")
            }
            Self::Init(code) => write!(f, "the CUDA driver cannot be initialised (cuInit: {code})"),
        }
    }
}
