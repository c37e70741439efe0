//! The C ABI through `dlopen`: names, marker, look-ups by version, and a round trip.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that unwraps fails as it should")]

mod library;

use library::Placed;
use library::client::Cuda;
use std::ffi::{CStr, c_char};

/// Everything that devexchange and the reference's clients use.
const NEEDED: &str = "cuInit cuDriverGetVersion cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceGetAttribute \
    cuDeviceGetUuid_v2 cuDeviceTotalMem_v2 cuDeviceCanAccessPeer cuDevicePrimaryCtxRetain \
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxGetState cuDevicePrimaryCtxReset_v2 cuCtxCreate_v2 \
    cuCtxDestroy_v2 cuCtxGetCurrent cuCtxSetCurrent cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuCtxGetDevice \
    cuCtxGetId cuCtxSynchronize cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuStreamCreate \
    cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamSynchronize cuStreamQuery cuStreamWaitEvent \
    cuStreamGetCtx cuStreamGetFlags cuStreamGetPriority cuStreamIsCapturing cuStreamBeginCapture_v2 \
    cuStreamEndCapture cuStreamGetCaptureInfo_v2 cuLaunchHostFunc cuStreamAddCallback cuEventCreate cuEventRecord \
    cuEventRecordWithFlags cuEventQuery cuEventSynchronize cuEventDestroy_v2 cuEventElapsedTime cuMemAlloc_v2 \
    cuMemFree_v2 cuMemAllocHost_v2 cuMemHostAlloc cuMemFreeHost cuMemAllocManaged cuMemHostRegister_v2 \
    cuMemHostUnregister cuMemHostGetDevicePointer_v2 cuMemHostGetFlags cuMemGetInfo_v2 cuMemGetAddressRange_v2 \
    cuPointerGetAttribute cuPointerGetAttributes cuPointerSetAttribute cuMemcpy cuMemcpyAsync cuMemcpyHtoD_v2 \
    cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyPeer \
    cuMemcpyPeerAsync cuMemsetD8_v2 cuMemsetD8Async cuMemAllocAsync cuMemFreeAsync cuMemAllocFromPoolAsync \
    cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemPoolSetAccess \
    cuMemPoolGetAccess cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle cuMemPoolExportPointer \
    cuMemPoolImportPointer cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool cuIpcGetMemHandle \
    cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcOpenEventHandle cuGetErrorName \
    cuGetErrorString cuGetProcAddress_v2 cuStreamSynchronize_ptsz cuMemcpyHtoD_v2_ptds cuMemcpyHtoDAsync_v2_ptsz \
    simcuda_version simcuda_seed simcuda_fail simcuda_stat simcuda_report simcuda_quiesce simcuda_reset";

#[test]
fn every_needed_name_is_exported() {
    let placed = Placed::new();
    let cuda = Cuda::open(&placed.0);
    let missing: Vec<&str> = NEEDED.split_whitespace().filter(|n| !cuda.has(n)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // Names that exist only with a suffix are absent without it.
    for absent in ["cuMemAlloc", "cuCtxCreate", "cuMemcpyHtoD", "cuStreamDestroy"] {
        assert!(!cuda.has(absent), "{absent}");
    }
    assert_eq!(simcuda_driver::lookup("cuMemAlloc"), None);
    assert!(NEEDED.split_whitespace().filter(|n| n.starts_with("cu")).all(|n| simcuda_driver::lookup(n).is_some()));
}

#[test]
fn round_trip() {
    let placed = Placed::new();
    let cuda = Cuda::open(&placed.0);
    // SAFETY: this is the function's type.
    let version: extern "C" fn() -> *const c_char = unsafe { cuda.get("simcuda_version") };
    // SAFETY: the marker is a string that lives for ever.
    assert_eq!(unsafe { CStr::from_ptr(version()) }.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    assert_eq!(cu!(cuda, "cuDeviceGetCount", &mut 0i32 as *mut i32), 3);
    assert_eq!(cu!(cuda, "cuInit", 0), 0);
    let mut name = [0u8; 64];
    assert_eq!(cu!(cuda, "cuDeviceGetName", name.as_mut_ptr(), name.len(), 0), 0);
    assert!(name.starts_with(b"Simulated CUDA device 0\0"));
    let mut short = [9u8; 5];
    assert_eq!(cu!(cuda, "cuDeviceGetName", short.as_mut_ptr(), 5, 0), 0);
    assert_eq!(&short, b"Simu\0");
    let (mut ctx, mut a, mut s, mut e) = (0u64, 0u64, 0u64, 0u64);
    assert_eq!(cu!(cuda, "cuDevicePrimaryCtxRetain", &raw mut ctx, 0), 0);
    assert_eq!(cu!(cuda, "cuCtxSetCurrent", ctx), 0);
    assert_eq!(cu!(cuda, "cuMemAlloc_v2", &raw mut a, 256), 0);
    assert_eq!(cu!(cuda, "cuStreamCreate", &raw mut s, 1), 0);
    assert_eq!(cu!(cuda, "cuEventCreate", &raw mut e, 2), 0);
    let (input, mut output) = ([7u8; 256], [0u8; 256]);
    assert_eq!(cu!(cuda, "cuMemcpyHtoDAsync_v2", a, input.as_ptr(), 256, s), 0);
    assert_eq!(cu!(cuda, "cuEventRecord", e, s), 0);
    assert_eq!(cu!(cuda, "cuStreamWaitEvent", 2, e, 0), 0);
    assert_eq!(cu!(cuda, "cuMemcpyDtoH_v2_ptds", output.as_mut_ptr(), a, 256), 0);
    assert_eq!(output, input);
    let (mut kind, mut range, mut ordinal) = (9u32, 9u64, 9i32);
    assert_eq!(cu!(cuda, "cuPointerGetAttribute", &raw mut kind, 2, a), 0);
    let places = [(&raw mut range).cast::<u8>(), (&raw mut ordinal).cast()];
    assert_eq!(cu!(cuda, "cuPointerGetAttributes", 2, [12u32, 9].as_ptr(), places.as_ptr(), a + 5), 0);
    assert_eq!((kind, range, ordinal), (2, 256, 0));
    // NULL outputs and invalid handles: the result is an error, and nothing happens.
    assert_eq!(cu!(cuda, "cuMemAlloc_v2", 0, 256), 1);
    assert_eq!(cu!(cuda, "cuStreamCreate", 0, 0), 1);
    assert_eq!(cu!(cuda, "cuPointerGetAttribute", 0, 2, a), 1);
    assert_eq!(cu!(cuda, "cuPointerGetAttributes", 2, 0, 0, a), 1);
    assert_eq!(cu!(cuda, "cuLaunchHostFunc", s, 0, 0), 1);
    assert_eq!(cu!(cuda, "cuMemPoolCreate", &raw mut range, 0), 1);
    assert_eq!(cu!(cuda, "cuMemFree_v2", a), 0);
    assert_eq!(cu!(cuda, "cuEventDestroy_v2", e), 0);
    assert_eq!(cu!(cuda, "cuStreamDestroy_v2", s), 0);
    // Faults, counts and findings through the control functions.
    // SAFETY: these are the functions' types.
    let stat: extern "C" fn(*const c_char) -> i64 = unsafe { cuda.get("simcuda_stat") };
    assert_eq!((stat(c"live_device".as_ptr()), stat(c"findings".as_ptr())), (0, 0));
    assert_eq!(cu!(cuda, "simcuda_fail", c"cuMemAlloc_v2".as_ptr(), 1, 31337, 0), 0);
    assert_eq!(cu!(cuda, "cuMemAlloc_v2", &raw mut a, 256), 31337);
    assert_eq!(cu!(cuda, "cuMemFree_v2", a), 1);
    assert_eq!(stat(c"findings".as_ptr()), 1);
    let mut text = [0u8; 4096];
    assert!(cu!(cuda, "simcuda_finding", 0, text.as_mut_ptr(), text.len()) > 10);
    assert!(text.starts_with(b"DoubleFree"));
    assert_eq!(cu!(cuda, "simcuda_findings_clear"), 1);
    assert_eq!(cu!(cuda, "cuDevicePrimaryCtxRelease_v2", 0), 0);
}

#[test]
fn errors_have_names_and_unknown_ones_do_not() {
    let placed = Placed::new();
    let cuda = Cuda::open(&placed.0);
    for (function, code, expected) in [
        ("cuGetErrorName", 0, Some("CUDA_SUCCESS")),
        ("cuGetErrorName", 709, Some("CUDA_ERROR_CONTEXT_IS_DESTROYED")),
        ("cuGetErrorString", 2, Some("out of memory")),
        ("cuGetErrorName", 31337, None),
        ("cuGetErrorString", u32::MAX, None),
    ] {
        let mut at: *const c_char = std::ptr::dangling();
        // SAFETY: this is the functions' type.
        let get: extern "C" fn(u32, *mut *const c_char) -> u32 = unsafe { cuda.get(function) };
        assert_eq!(get(code, &raw mut at), u32::from(expected.is_none()));
        // SAFETY: the driver gave NULL or a string that lives for ever.
        let text = (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) }.to_str().unwrap());
        assert_eq!(text, expected);
    }
}

/// What look-ups find is asked in a process of its own for each version profile.
#[test]
fn version_profiles() {
    for profile in [11080, 12020, 12090, 13000] {
        let placed = Placed::version(profile);
        let env = [("PROFILE", &*profile.to_string()), ("SIMCUDA_STRICT", "1")];
        let out = library::child("look_ups", &placed.0, &env);
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{profile}: {errors}");
        assert!(errors.contains("simcuda: cuNothing (version 13000"), "{errors}");
    }
}
