//! The `simcuda_*` functions, which tests call; `simcuda.h` describes them.

#![allow(clippy::needless_pass_by_value, reason = "C signatures")]

use crate::glue::{put_text, text};
use crate::sim;
use simcuda::{Code, Fault, HostOrder, Live, Mode};
use std::ffi::c_char;

/// The marker: a program that finds it does not run on a GPU.
#[unsafe(no_mangle)]
extern "C" fn simcuda_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_seed(mode: *const c_char, seed: u64) -> i32 {
    let mode = match text(mode) {
        Some("lazy") => Mode::Lazy,
        Some("threads") => Mode::Threads { workers: 2, delay_us: 100 },
        Some("adversarial") => Mode::Adversarial,
        _ => return -1,
    };
    sim().set_schedule(mode, seed);
    0
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_reuse_streams(reuse: i32) {
    sim().reuse_streams(reuse != 0);
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_fail(function: *const c_char, nth: u64, code: u32, sticky: i32) -> i32 {
    let Some(function) = text(function).filter(|_| nth > 0 && code != 0) else { return -1 };
    let fault = match function {
        "*" => Fault::any(nth, Code(code)),
        name => Fault::of(name, nth, Code(code)),
    };
    sim().fail(if sticky != 0 { fault.sticky() } else { fault });
    0
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_fail_clear() {
    sim().fail_nothing();
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_last_fault(buffer: *mut c_char, len: usize) -> usize {
    put_text(sim().faults_fired().1.unwrap_or(""), buffer, len)
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_calls(function: *const c_char) -> u64 {
    text(function).map_or(0, |f| sim().calls(f))
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_stat(name: *const c_char) -> i64 {
    text(name).and_then(|n| sim().stat(n)).and_then(|v| i64::try_from(v).ok()).unwrap_or(-1)
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_findings() -> usize {
    sim().findings().len()
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_finding(index: usize, buffer: *mut c_char, len: usize) -> usize {
    sim().findings().get(index).map_or(0, |f| put_text(&f.to_string(), buffer, len))
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_findings_clear() -> usize {
    sim().take_findings().len()
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_ledger(buffer: *mut c_char, len: usize) -> usize {
    let lines: Vec<String> = sim().live().iter().map(Live::to_string).collect();
    put_text(&lines.join("\n"), buffer, len)
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_report(buffer: *mut c_char, len: usize) -> usize {
    put_text(&sim().report(), buffer, len)
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_quiesce() {
    sim().quiesce();
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_step() -> i32 {
    i32::from(sim().step())
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_reset() -> usize {
    let Some(old) = crate::replace() else { return 0 };
    let findings = old.take_findings();
    for f in &findings {
        eprintln!("simcuda: {f}\nsimcuda: {}", old.schedule());
    }
    findings.len()
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_label(label: *const c_char) {
    sim().label(text(label));
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_host_access(address: u64, n: u64, write: i32) -> u32 {
    sim().host_access(address, n, write != 0).map_or_else(|code| code.0, |()| 0)
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_host_order(annotated: i32) {
    sim().set_host_order(if annotated != 0 { HostOrder::Annotated } else { HostOrder::Observed });
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_annotate_release(token: u64) {
    sim().annotate_release(token);
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_annotate_acquire(token: u64) {
    sim().annotate_acquire(token);
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_deinit() {
    sim().deinitialise();
}
