//! Initialisation, errors and devices.

use std::ffi::{CStr, c_char};

use devexchange_tests::{cu, cu_ok};

use crate::answer::{Answer, INVALID_DEVICE, INVALID_VALUE, NOT_INITIALIZED, SUCCESS, said, skipped};
use crate::probe::{Probe, probe};
use crate::scene::{devices, start};

pub(super) const PROBES: &[Probe] = &[
    probe("device.before_init", "`cuDeviceGetCount` before `cuInit`", NOT_INITIALIZED, || {
        let mut count = 0_i32;
        said(cu!("cuDeviceGetCount", &raw mut count))
    })
    .bare(),
    probe("device.current_before_init", "`cuCtxGetCurrent` before `cuInit`", NOT_INITIALIZED, || {
        let mut context = 0_u64;
        said(cu!("cuCtxGetCurrent", &raw mut context))
    })
    .bare(),
    probe("device.version_before_init", "`cuDriverGetVersion` before `cuInit`", SUCCESS, || {
        let mut version = 0_i32;
        said(cu!("cuDriverGetVersion", &raw mut version))
    })
    .bare(),
    probe("device.version", "`cuDriverGetVersion`: at least 11.8, as 1000 × major + 10 × minor", "yes", || {
        let mut version = 0_i32;
        cu_ok!("cuDriverGetVersion", &raw mut version);
        if version >= 11080 && version % 10 == 0 { "yes".into() } else { format!("{version}") }
    }),
    probe("device.init_flags", "`cuInit(1)`", INVALID_VALUE, || said(cu!("cuInit", 1))).bare(),
    probe("device.init_again", "`cuInit(0)` a second time", SUCCESS, || said(cu!("cuInit", 0))),
    probe("device.number_below", "`cuDeviceGet(-1)`", INVALID_DEVICE, || get(-1)),
    probe("device.number_above", "`cuDeviceGet` of the number of devices", INVALID_DEVICE, || get(devices())),
    probe("device.unknown_attribute", "`cuDeviceGetAttribute` of attribute 100000", INVALID_VALUE, || {
        let mut value = 0_i32;
        said(cu!("cuDeviceGetAttribute", &raw mut value, 100_000, 0))
    }),
    probe("device.unified_addressing", "attribute `UNIFIED_ADDRESSING`", "1", || attribute(41)),
    probe("device.memory_pools", "attribute `MEMORY_POOLS_SUPPORTED`", "1", || attribute(115)),
    probe("device.uuid_stable", "`cuDeviceGetUuid` twice, and `cuDeviceGetUuid_v2`", "the same", || {
        let mut uuids = [[0_u8; 16]; 3];
        for (uuid, name) in uuids.iter_mut().zip(["cuDeviceGetUuid", "cuDeviceGetUuid", "cuDeviceGetUuid_v2"]) {
            let code = devexchange_tests::sim::cuda().call(name, &[uuid.as_mut_ptr() as u64, 0]);
            assert_eq!(code, 0, "{name}");
        }
        if uuids[0] == uuids[1] && uuids[0] == uuids[2] && uuids[0] != [0; 16] { "the same" } else { "not the same" }
            .into()
    }),
    probe("device.name_cut", "`cuDeviceGetName` into 4 bytes", "3 characters and a NUL", || {
        let mut name = [0x7f_u8; 8];
        let code = cu!("cuDeviceGetName", name.as_mut_ptr(), 4, 0);
        match (code, name.iter().position(|byte| *byte == 0), name[4]) {
            (0, Some(3), 0x7f) => "3 characters and a NUL".into(),
            (code, end, _) => format!("{}, NUL at {end:?}", said(code)),
        }
    }),
    probe("device.peer_itself", "`cuDeviceCanAccessPeer` of a device and itself", "0", || {
        let mut can = 7_i32;
        match cu!("cuDeviceCanAccessPeer", &raw mut can, 0, 0) {
            0 => can.to_string(),
            code => said(code),
        }
    }),
    probe("device.peer_none", "`cuDeviceCanAccessPeer` of a device and one that is not there", INVALID_DEVICE, || {
        let mut can = 7_i32;
        said(cu!("cuDeviceCanAccessPeer", &raw mut can, 0, 4096))
    }),
    probe("device.peer_symmetric", "`cuDeviceCanAccessPeer` in both directions", "the same", || {
        if devices() < 2 {
            return skipped("one device only");
        }
        let (mut there, mut back) = (7_i32, 8_i32);
        cu_ok!("cuDeviceCanAccessPeer", &raw mut there, 0, 1);
        cu_ok!("cuDeviceCanAccessPeer", &raw mut back, 1, 0);
        if there == back { "the same" } else { "not the same" }.into()
    }),
    probe("device.free_memory", "`cuMemGetInfo`: free bytes, and all", "0 < free <= all", || {
        let (mut free, mut total) = (0_u64, 0_u64);
        cu_ok!("cuMemGetInfo_v2", &raw mut free, &raw mut total);
        if 0 < free && free <= total { "0 < free <= all".into() } else { format!("{free} of {total}") }
    }),
    probe("device.error_names", "`cuGetErrorName` of each code that the simulated driver has", "as in cuda.h", || {
        let wrong: Vec<String> = (0..1000)
            .filter_map(|code| Some((code, simcuda::Code(code).name()?)))
            .filter(|(code, name)| text_of("cuGetErrorName", *code).1.as_deref() != Some(name))
            .map(|(code, _)| code.to_string())
            .collect();
        if wrong.is_empty() { "as in cuda.h".into() } else { format!("other names for {}", wrong.join(", ")) }
    }),
    probe(
        "device.error_texts",
        "`cuGetErrorString` of each code that the simulated driver has",
        "a text for each",
        || {
            let known = (0..1000).filter(|code| simcuda::Code(*code).name().is_some());
            let wrong: Vec<String> = known
                .filter(|code| text_of("cuGetErrorString", *code).1.is_none_or(|text| text.is_empty()))
                .map(|code| code.to_string())
                .collect();
            if wrong.is_empty() { "a text for each".into() } else { format!("none for {}", wrong.join(", ")) }
        },
    ),
    probe("device.error_name_unknown", "`cuGetErrorName` of code 7777", "CUDA_ERROR_INVALID_VALUE (1), NULL", || {
        unknown("cuGetErrorName")
    }),
    probe("device.error_text_unknown", "`cuGetErrorString` of code 7777", "CUDA_ERROR_INVALID_VALUE (1), NULL", || {
        unknown("cuGetErrorString")
    }),
    probe("device.current_after", "`cuCtxGetCurrent` after all calls that take a device", "none", || {
        cu_ok!("cuInit", 0);
        let (mut device, mut context, mut pool) = (0_i32, 0_u64, 0_u64);
        cu_ok!("cuDeviceGet", &raw mut device, 0);
        attribute(1);
        cu_ok!("cuDevicePrimaryCtxRetain", &raw mut context, device);
        cu_ok!("cuDeviceGetDefaultMemPool", &raw mut pool, device);
        if devexchange_tests::sim::current() == 0 { "none".into() } else { "one".into() }
    })
    .bare(),
    probe("device.default_pool", "`cuDeviceGetMemPool` and `cuDeviceGetDefaultMemPool`", "the same", || {
        let (mut current, mut default) = (0_u64, 1_u64);
        cu_ok!("cuDeviceGetMemPool", &raw mut current, 0);
        cu_ok!("cuDeviceGetDefaultMemPool", &raw mut default, 0);
        if current == default { "the same" } else { "not the same" }.into()
    }),
    probe("device.default_pool_destroy", "`cuMemPoolDestroy` of the default pool", INVALID_VALUE, || {
        let mut pool = 0_u64;
        cu_ok!("cuDeviceGetDefaultMemPool", &raw mut pool, 0);
        said(cu!("cuMemPoolDestroy", pool))
    }),
    probe("device.pool_threshold", "release threshold of the default pool", "0", || {
        let (mut pool, mut threshold) = (0_u64, 9_u64);
        cu_ok!("cuDeviceGetDefaultMemPool", &raw mut pool, 0);
        cu_ok!("cuMemPoolGetAttribute", pool, 4, &raw mut threshold);
        threshold.to_string()
    }),
];

fn get(number: i32) -> Answer {
    let mut device = 0_i32;
    said(cu!("cuDeviceGet", &raw mut device, number))
}

fn attribute(number: i32) -> Answer {
    let mut value = -1_i32;
    match cu!("cuDeviceGetAttribute", &raw mut value, number, 0) {
        0 => value.to_string(),
        code => said(code),
    }
}

/// The result of an error function, and the text that it gives on success.
fn text_of(function: &str, code: u32) -> (u32, Option<String>) {
    let mut text: *const c_char = std::ptr::dangling();
    let result = devexchange_tests::sim::cuda().call(function, &[u64::from(code), &raw mut text as u64]);
    if text.is_null() || result != 0 {
        return (result, None);
    }
    // SAFETY: on success, this is a string of the driver, which never frees it.
    (result, Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()))
}

fn unknown(function: &str) -> Answer {
    start();
    let mut text: *const c_char = std::ptr::dangling();
    let result = devexchange_tests::sim::cuda().call(function, &[7777, &raw mut text as u64]);
    format!("{}, {}", said(result), if text.is_null() { "NULL" } else { "not NULL" })
}
