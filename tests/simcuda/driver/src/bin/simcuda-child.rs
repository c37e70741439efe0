//! `simcuda-child ROLE DIRECTORY`: a process of the tests in `tests`, a client of the driver placed in the directory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a role that unwraps fails, and so does its test")]

#[path = "../../tests/library/client.rs"]
mod client;

use client::Cuda;
use std::ffi::{CString, c_char};
use std::path::Path;
use std::process::ExitCode;

type Role = fn(&Cuda);

const ROLES: &[(&str, Role)] = &[
    ("reads_device_memory", reads_device_memory),
    ("reads_freed_pinned_memory", reads_freed_pinned_memory),
    ("dereferences_a_handle", dereferences_a_handle),
    ("frees_twice", frees_twice),
    ("leaks", leaks),
    ("meets_faults", meets_faults),
    ("finds_no_device", finds_no_device),
    ("forks", forks),
    ("calls_after_the_end", calls_after_the_end),
    ("look_ups", look_ups),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, directory] = args.as_slice() else {
        eprintln!("usage: simcuda-child ROLE DIRECTORY");
        return ExitCode::from(client::UNKNOWN_ROLE);
    };
    let Some((_, role)) = ROLES.iter().find(|(known, _)| known == name) else {
        eprintln!("simcuda-child: no role {name}");
        return ExitCode::from(client::UNKNOWN_ROLE);
    };
    print!("{}", client::greeting(name));
    role(&Cuda::open(Path::new(directory)));
    ExitCode::SUCCESS
}

/// Makes a context current.
fn with_context(cuda: &Cuda) -> u64 {
    assert_eq!(cu!(cuda, "cuInit", 0), 0);
    let mut ctx = 0u64;
    assert_eq!(cu!(cuda, "cuDevicePrimaryCtxRetain", &raw mut ctx, 0), 0);
    assert_eq!(cu!(cuda, "cuCtxSetCurrent", ctx), 0);
    ctx
}

fn alloc(cuda: &Cuda, n: u64) -> u64 {
    let mut a = 0u64;
    assert_eq!(cu!(cuda, "cuMemAlloc_v2", &raw mut a, n), 0);
    a
}

fn read(address: u64) -> u8 {
    // SAFETY: none: these roles are about reads that must trap, in a process that ends with them.
    unsafe { (address as *const u8).read_volatile() }
}

fn reads_device_memory(cuda: &Cuda) {
    with_context(cuda);
    let a = alloc(cuda, 8);
    println!("reads");
    read(a);
}

fn reads_freed_pinned_memory(cuda: &Cuda) {
    with_context(cuda);
    let mut p = 0u64;
    assert_eq!(cu!(cuda, "cuMemAllocHost_v2", &raw mut p, 8), 0);
    assert_eq!(read(p), 0xCD);
    assert_eq!(cu!(cuda, "cuMemFreeHost", p), 0);
    println!("reads");
    read(p);
}

fn dereferences_a_handle(cuda: &Cuda) {
    let ctx = with_context(cuda);
    println!("reads");
    read(ctx);
}

fn frees_twice(cuda: &Cuda) {
    with_context(cuda);
    let a = alloc(cuda, 8);
    assert_eq!(cu!(cuda, "cuMemFree_v2", a), 0);
    assert_eq!(cu!(cuda, "cuMemFree_v2", a), 1);
    println!("went on");
}

fn leaks(cuda: &Cuda) {
    with_context(cuda);
    alloc(cuda, 8);
}

fn meets_faults(cuda: &Cuda) {
    assert_eq!(cu!(cuda, "cuInit", 0), 0);
    let mut n = 0i32;
    assert_eq!(cu!(cuda, "cuDeviceGetCount", &raw mut n), 0);
    assert_eq!(n, 3);
    assert_eq!(cu!(cuda, "cuDeviceGetCount", &raw mut n), 424_242);
    assert_eq!(cu!(cuda, "cuDeviceGetCount", &raw mut n), 0);
    assert_eq!(cu!(cuda, "cuDeviceGet", &raw mut n, 0), 700);
    assert_eq!(cu!(cuda, "cuDeviceGetCount", &raw mut n), 700);
    let mut text = [0u8; 64];
    assert_eq!(cu!(cuda, "simcuda_last_fault", text.as_mut_ptr(), text.len()), 16);
    assert!(text.starts_with(b"cuDeviceGetCount\0"));
    assert_eq!(cu!(cuda, "simcuda_reset"), 0);
    assert_eq!(cu!(cuda, "cuDeviceGetCount", &raw mut n), 3);
}

fn finds_no_device(cuda: &Cuda) {
    assert_eq!(cu!(cuda, "cuInit", 0), 100);
    assert_eq!(cu!(cuda, "cuDeviceGetCount", &mut 0i32 as *mut i32), 3);
}

fn forks(cuda: &Cuda) {
    with_context(cuda);
    let (a, s) = (alloc(cuda, 64), {
        let mut s = 0u64;
        assert_eq!(cu!(cuda, "cuStreamCreate", &raw mut s, 1), 0);
        s
    });
    assert_eq!(cu!(cuda, "cuMemsetD8Async", a, 1, 64, s), 0);
    // SAFETY: the child calls the driver, which must not lock anything there, and ends like any process.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let codes = [
            cu!(cuda, "cuInit", 0),
            cu!(cuda, "cuMemFree_v2", a),
            cu!(cuda, "cuStreamSynchronize", s),
            cu!(cuda, "cuDevicePrimaryCtxRelease_v2", 0),
        ];
        // SAFETY: ends the child with its exit handlers, the driver's among them.
        unsafe { libc::exit(if codes == [3; 4] { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    assert_eq!(cu!(cuda, "cuStreamSynchronize", s), 0);
    assert_eq!(cu!(cuda, "cuMemFree_v2", a), 0);
    assert_eq!(cu!(cuda, "cuStreamDestroy_v2", s), 0);
    assert_eq!(cu!(cuda, "cuDevicePrimaryCtxRelease_v2", 0), 0);
}

/// At the end of a process, the driver is gone before the last exit handlers of its clients.
fn calls_after_the_end(cuda: &Cuda) {
    with_context(cuda);
    // SAFETY: this is the function's type.
    let end: extern "C" fn() = unsafe { cuda.get("simcuda_deinit") };
    end();
    assert_eq!(cu!(cuda, "cuCtxSynchronize"), 4);
    assert_eq!(cu!(cuda, "cuInit", 0), 4);
}

/// Which exported function a request means, in the version profile that the environment names.
fn look_ups(cuda: &Cuda) {
    // A driver before 12.0 only has the form without a status.
    let (new, old) = ("cuGetProcAddress_v2", "cuGetProcAddress");
    let with_status = cuda.has(new);
    // SAFETY: this is the function's type; the old form has one argument less and ignores the last.
    let get: extern "C" fn(*const c_char, *mut *const (), i32, u64, *mut u32) -> u32 =
        unsafe { cuda.get(if with_status { new } else { old }) };
    let ask = |name: &str, version: i32, flags: u64| {
        let (name, mut at, mut status) = (CString::new(name).unwrap(), std::ptr::null(), 9);
        let code = get(name.as_ptr(), &raw mut at, version, flags, &raw mut status);
        assert_eq!(code == 0, !at.is_null());
        (at, if with_status { status } else { u32::from(code != 0) })
    };
    // SAFETY: the address is only compared.
    let exported = |name: &str| unsafe { cuda.get::<*const ()>(name) };
    let found = |name: &str| (exported(name), 0);
    let profile: i32 = std::env::var("PROFILE").unwrap().parse().unwrap();
    assert_eq!(ask("cuMemAlloc", 12000, 0), found("cuMemAlloc_v2"));
    assert_eq!(ask("cuMemAlloc_v2", 12000, 0), found("cuMemAlloc_v2"));
    assert_eq!(ask("cuMemcpyHtoDAsync", 12000, 2), found("cuMemcpyHtoDAsync_v2_ptsz"));
    assert_eq!(ask("cuMemcpyHtoD", 12000, 2), found("cuMemcpyHtoD_v2_ptds"));
    assert_eq!(ask("cuStreamSynchronize", 12000, 2), found("cuStreamSynchronize_ptsz"));
    assert_eq!(ask("cuInit", 12000, 2), found("cuInit"));
    assert_eq!(ask("cuCtxGetDevice", 12080, 0), found("cuCtxGetDevice"));
    let too_old = if with_status { 2 } else { 1 };
    assert_eq!(ask("cuMemAllocAsync", 11010, 0), (std::ptr::null(), too_old));
    assert_eq!(ask("cuNothing", 13000, 0), (std::ptr::null(), 1));
    let newest = |old: &'static str, from: i32, new: &'static str| found(if profile >= from { new } else { old });
    assert_eq!(ask("cuCtxGetDevice", 13000, 0), newest("cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"));
    assert_eq!(ask("cuEventElapsedTime", 13000, 0), newest("cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"));
    assert_eq!(ask("cuGetProcAddress", 13000, 0), newest("cuGetProcAddress", 12000, "cuGetProcAddress_v2"));
    assert_eq!(ask("cuDeviceGetUuid", 13000, 0), found("cuDeviceGetUuid_v2"));
    assert_eq!(ask("cuStreamGetId", 13000, 0).1, if profile >= 12000 { 0 } else { too_old });
    // Clients that probe by name find what a driver of that version has.
    for (name, from) in [
        ("cuMemAlloc_v2", 0),
        ("cuGetProcAddress", 0),
        ("cuGetProcAddress_v2", 12000),
        ("cuCtxGetId", 12000),
        ("cuStreamGetId_ptsz", 12000),
        ("cuEventElapsedTime_v2", 12080),
        ("cuCtxGetDevice_v2", 13000),
        ("cuCtxSynchronize_v2", 13000),
    ] {
        assert_eq!(cuda.has(name), profile >= from, "{name} in {profile}");
    }
    let mut version = 0i32;
    assert_eq!(cu!(cuda, "cuDriverGetVersion", &raw mut version), 0);
    assert_eq!(version, profile);
}
