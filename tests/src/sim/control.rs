//! Control of the simulated driver (`simcuda.h`): schedules, failures, and its findings.

use std::ffi::CString;

use super::{cuda, mode_of_process, on_gpu};
use crate::{cu, cu_ok};

/// The schedule that queued work follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// `lazy`, `threads` or `adversarial`.
    pub mode: &'static str,
    /// Seed of every choice.
    pub seed: u64,
}

/// The schedules to try: `lazy` seeded ones and an adversarial one; a few threaded ones in a process of
/// [`again_with_threads`](super::again_with_threads); on a GPU, three runs of whatever it does.
pub fn schedules(lazy: u64) -> Vec<Schedule> {
    let of = |mode, seeds: u64| (1..=seeds).map(move |seed| Schedule { mode, seed });
    if on_gpu() {
        return of("gpu", 3).collect();
    }
    match mode_of_process() {
        "threads" => of("threads", 8).collect(),
        _ => of("lazy", lazy).chain(of("adversarial", 1)).collect(),
    }
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("no NUL")
}

/// Sets the schedule of work that is queued from now on.
pub fn set_schedule(schedule: Schedule) {
    if !on_gpu() {
        let mode = c_text(schedule.mode);
        cu_ok!("simcuda_seed", mode.as_ptr(), schedule.seed);
    }
}

/// How often a function of the driver has been called (`*`: all functions); 0 on a GPU.
pub fn calls(function: &str) -> u64 {
    number("simcuda_calls", function).unwrap_or(0)
}

/// One of the numbers of `simcuda_stat`; 0 on a GPU.
pub fn stat(name: &str) -> i64 {
    number("simcuda_stat", name).unwrap_or(0) as i64
}

fn number(function: &str, argument: &str) -> Option<u64> {
    if on_gpu() {
        return None;
    }
    let argument = c_text(argument);
    // SAFETY: both functions take a text and return 64 bits (simcuda.h).
    let function = unsafe { cuda().function::<unsafe extern "C" fn(*const i8) -> u64>(function) };
    // SAFETY: as above.
    Some(unsafe { function(argument.as_ptr().cast()) })
}

fn text(write: impl Fn(*mut u8, usize) -> u64) -> String {
    let mut bytes = vec![0_u8; 1 << 16];
    let length = (write(bytes.as_mut_ptr(), bytes.len()) as usize).min(bytes.len() - 1);
    bytes.truncate(length);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The driver's findings; none on a GPU.
pub fn findings() -> Vec<String> {
    if on_gpu() {
        return Vec::new();
    }
    let count = u64::from(cu!("simcuda_findings"));
    (0..count).map(|index| text(|to, room| cu!("simcuda_finding", index, to, room).into())).collect()
}

/// Takes the findings, which then count as handled.
pub fn take_findings() -> Vec<String> {
    let findings = findings();
    if !findings.is_empty() {
        cu!("simcuda_findings_clear");
    }
    findings
}

/// What is live and where it was made, one line each.
pub fn ledger() -> String {
    text(|to, room| cu!("simcuda_ledger", to, room).into())
}

/// Makes the `nth` call of a function from now on (`*`: of any function) return `code`; with `sticky`, all later ones,
/// too.
pub fn fail(function: &str, nth: u64, code: u32, sticky: bool) {
    let function = c_text(function);
    cu_ok!("simcuda_fail", function.as_ptr(), nth, code, sticky);
}

/// Lets new streams reuse the handles of streams that are destroyed from now on, or no longer.
pub fn reuse_streams(reuse: bool) {
    cu!("simcuda_reuse_streams", reuse);
}

/// Lets all calls succeed again.
pub fn fail_clear() {
    cu!("simcuda_fail_clear");
}

/// The function that a fault stopped last.
pub fn last_fault() -> String {
    text(|to, room| cu!("simcuda_last_fault", to, room).into())
}

/// Sets a name for what this thread is doing; it appears in the sites of findings.
pub fn label(label: Option<&str>) {
    if !on_gpu() {
        let label = label.map(c_text);
        cu!("simcuda_label", label.as_ref().map_or(std::ptr::null(), |label| label.as_ptr()));
    }
}

/// Runs all queued work, without creating any order.
pub fn quiesce() {
    if !on_gpu() {
        cu!("simcuda_quiesce");
    }
}

/// Declares that this thread reads or writes memory that the driver knows and the host can access.
pub fn host_access(address: u64, bytes: u64, write: bool) {
    if !on_gpu() {
        cu_ok!("simcuda_host_access", address, bytes, write);
    }
}
