//! `cuGetProcAddress`: which exported name a request means, by version and default stream.

#![allow(non_snake_case, reason = "the names of the CUDA driver API")]

use crate::glue::{Entry, Out, entry_points, out, text};
use simcuda::{Code, CuResult, Sim};
use std::ffi::c_char;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD_STREAM: u64 = 2;

/// Status of a look-up.
const FOUND: u32 = 0;
const MISSING: u32 = 1;
const TOO_OLD: u32 = 2;

/// Functions whose base name is exported with a suffix, or that were added in some version: the base name, the first
/// version, and the exported name.
const VERSIONS: &[(&str, i32, &str)] = &[
    ("cuDeviceGetUuid", 9020, "cuDeviceGetUuid"),
    ("cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"),
    ("cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2"),
    ("cuDevicePrimaryCtxRelease", 7000, "cuDevicePrimaryCtxRelease_v2"),
    ("cuDevicePrimaryCtxReset", 7000, "cuDevicePrimaryCtxReset_v2"),
    ("cuDevicePrimaryCtxSetFlags", 7000, "cuDevicePrimaryCtxSetFlags_v2"),
    ("cuCtxCreate", 3020, "cuCtxCreate_v2"),
    ("cuCtxCreate", 11040, "cuCtxCreate_v3"),
    ("cuCtxCreate", 12050, "cuCtxCreate_v4"),
    ("cuCtxDestroy", 4000, "cuCtxDestroy_v2"),
    ("cuCtxPushCurrent", 4000, "cuCtxPushCurrent_v2"),
    ("cuCtxPopCurrent", 4000, "cuCtxPopCurrent_v2"),
    ("cuCtxGetDevice", 2000, "cuCtxGetDevice"),
    ("cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"),
    ("cuCtxSynchronize", 2000, "cuCtxSynchronize"),
    ("cuCtxSynchronize", 13000, "cuCtxSynchronize_v2"),
    ("cuCtxGetId", 12000, "cuCtxGetId"),
    ("cuMemGetInfo", 3020, "cuMemGetInfo_v2"),
    ("cuMemAlloc", 3020, "cuMemAlloc_v2"),
    ("cuMemFree", 3020, "cuMemFree_v2"),
    ("cuMemAllocHost", 3020, "cuMemAllocHost_v2"),
    ("cuMemHostRegister", 4000, "cuMemHostRegister_v2"),
    ("cuMemHostGetDevicePointer", 3020, "cuMemHostGetDevicePointer_v2"),
    ("cuMemGetAddressRange", 3020, "cuMemGetAddressRange_v2"),
    ("cuMemcpyHtoD", 3020, "cuMemcpyHtoD_v2"),
    ("cuMemcpyDtoH", 3020, "cuMemcpyDtoH_v2"),
    ("cuMemcpyDtoD", 3020, "cuMemcpyDtoD_v2"),
    ("cuMemcpyHtoDAsync", 3020, "cuMemcpyHtoDAsync_v2"),
    ("cuMemcpyDtoHAsync", 3020, "cuMemcpyDtoHAsync_v2"),
    ("cuMemcpyDtoDAsync", 3020, "cuMemcpyDtoDAsync_v2"),
    ("cuMemsetD8", 3020, "cuMemsetD8_v2"),
    ("cuMemsetD32", 3020, "cuMemsetD32_v2"),
    ("cuMemAllocAsync", 11020, "cuMemAllocAsync"),
    ("cuMemFreeAsync", 11020, "cuMemFreeAsync"),
    ("cuMemAllocFromPoolAsync", 11020, "cuMemAllocFromPoolAsync"),
    ("cuMemPoolCreate", 11020, "cuMemPoolCreate"),
    ("cuMemPoolDestroy", 11020, "cuMemPoolDestroy"),
    ("cuMemPoolTrimTo", 11020, "cuMemPoolTrimTo"),
    ("cuMemPoolGetAttribute", 11020, "cuMemPoolGetAttribute"),
    ("cuMemPoolSetAttribute", 11020, "cuMemPoolSetAttribute"),
    ("cuMemPoolSetAccess", 11020, "cuMemPoolSetAccess"),
    ("cuMemPoolGetAccess", 11020, "cuMemPoolGetAccess"),
    ("cuMemPoolExportToShareableHandle", 11020, "cuMemPoolExportToShareableHandle"),
    ("cuMemPoolImportFromShareableHandle", 11020, "cuMemPoolImportFromShareableHandle"),
    ("cuMemPoolExportPointer", 11020, "cuMemPoolExportPointer"),
    ("cuMemPoolImportPointer", 11020, "cuMemPoolImportPointer"),
    ("cuDeviceGetDefaultMemPool", 11020, "cuDeviceGetDefaultMemPool"),
    ("cuDeviceGetMemPool", 11020, "cuDeviceGetMemPool"),
    ("cuDeviceSetMemPool", 11020, "cuDeviceSetMemPool"),
    ("cuIpcOpenMemHandle", 4010, "cuIpcOpenMemHandle_v2"),
    ("cuStreamDestroy", 4000, "cuStreamDestroy_v2"),
    ("cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"),
    ("cuStreamGetCaptureInfo", 10010, "cuStreamGetCaptureInfo"),
    ("cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"),
    ("cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"),
    ("cuStreamGetCtx", 9020, "cuStreamGetCtx"),
    ("cuStreamGetCtx", 12050, "cuStreamGetCtx_v2"),
    ("cuStreamGetId", 12000, "cuStreamGetId"),
    ("cuStreamGetDevice", 12080, "cuStreamGetDevice"),
    ("cuEventDestroy", 4000, "cuEventDestroy_v2"),
    ("cuEventRecordWithFlags", 11010, "cuEventRecordWithFlags"),
    ("cuEventElapsedTime", 2000, "cuEventElapsedTime"),
    ("cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"),
    ("cuGetProcAddress", 11030, "cuGetProcAddress"),
    ("cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
];

fn tables() -> impl Iterator<Item = &'static Entry> {
    use crate::{context, copy, device, event, memory, module, pool, stream};
    [
        device::TABLE,
        context::TABLE,
        stream::TABLE,
        event::TABLE,
        memory::TABLE,
        copy::TABLE,
        pool::TABLE,
        module::TABLE,
        TABLE,
    ]
    .into_iter()
    .flatten()
}

pub(crate) fn exported(name: &str) -> Option<*const ()> {
    tables().find(|e| e.name == name).map(|e| e.at)
}

/// Exported names that a driver of this version does not have yet.
pub(crate) fn too_new_for(version: i32) -> impl Iterator<Item = &'static str> {
    VERSIONS.iter().filter(move |v| v.1 > version).map(|v| v.2)
}

/// The function that a base name means to a client built against `wanted`.
fn find(sim: &Sim, name: &str, wanted: i32, flags: u64) -> (Option<*const ()>, u32) {
    let version = sim.version().min(wanted);
    let family: Vec<_> = VERSIONS.iter().filter(|v| v.0 == name).collect();
    let chosen = if family.is_empty() {
        Some(name)
    } else {
        family.iter().filter(|v| v.1 <= version).max_by_key(|v| v.1).map(|v| v.2)
    };
    let Some(chosen) = chosen else { return (None, TOO_OLD) };
    if too_new_for(sim.version()).any(|name| name == chosen) {
        return (None, MISSING);
    }
    if flags & PER_THREAD_STREAM != 0 {
        for suffix in ["_ptsz", "_ptds"] {
            if let Some(at) = exported(&format!("{chosen}{suffix}")) {
                return (Some(at), FOUND);
            }
        }
    }
    match exported(chosen) {
        Some(at) => (Some(at), FOUND),
        None => (None, MISSING),
    }
}

fn look_up(
    sim: &Sim,
    name: *const c_char,
    at: Out<'_, *const ()>,
    version: i32,
    flags: u64,
    status: Out<'_, u32>,
) -> CuResult<()> {
    let (name, at) = (text(name).ok_or(Code::INVALID_VALUE)?, out(at)?);
    let (found, how) = find(sim, name, version, flags);
    at.write(found.unwrap_or(std::ptr::null()));
    // The older form has no status; only its result reports a failure.
    if let Some(status) = status {
        status.write(how);
    }
    if found.is_none() {
        sim.log_missing(&format!("{name} (version {version}, flags {flags})"));
        return Err(Code::NOT_FOUND);
    }
    Ok(())
}

entry_points! { TABLE, sim;
    fn cuGetProcAddress(name: *const c_char, at: Out<'_, *const ()>, version: i32, flags: u64) {
        look_up(sim, name, at, version, flags, None)
    }
    fn cuGetProcAddress_v2(
        name: *const c_char, at: Out<'_, *const ()>, version: i32, flags: u64, status: Out<'_, u32>,
    ) {
        look_up(sim, name, at, version, flags, status)
    }
}
