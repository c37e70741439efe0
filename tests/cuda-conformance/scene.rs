//! Tools for the questions: work that waits for a gate, and calls on other threads.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use devexchange_tests::{cu, cu_ok, sim};

/// The size of the allocations in the questions.
pub(crate) const N: u64 = 256;
/// The handles of the legacy and the per-thread default stream.
pub(crate) const LEGACY: u64 = 1;
pub(crate) const PER_THREAD: u64 = 2;

/// How long to wait for something that must not happen.
const A_WHILE: Duration = Duration::from_millis(150);
/// How long to wait for something that must happen.
const LONG: Duration = Duration::from_secs(20);

/// Initialises the driver and makes the primary context of device 0 current.
pub(crate) fn start() {
    sim::set_current(sim::primary(0));
}

pub(crate) fn devices() -> i32 {
    let mut count = 0_i32;
    cu_ok!("cuDeviceGetCount", &raw mut count);
    count
}

/// A host function that is queued on a stream and returns when the gate is opened.
pub(crate) struct Gate(&'static AtomicBool);

extern "C" fn hold(data: *mut c_void) {
    // SAFETY: `Gate::on` passes a flag that is never freed.
    let open = unsafe { &*data.cast::<AtomicBool>() };
    while !open.load(SeqCst) {
        std::thread::sleep(Duration::from_micros(50));
    }
}

impl Gate {
    pub(crate) fn on(stream: u64) -> Self {
        let open: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let hold: extern "C" fn(*mut c_void) = hold;
        cu_ok!("cuLaunchHostFunc", stream, hold as usize, &raw const *open);
        Self(open)
    }

    pub(crate) fn open(&self) {
        self.0.store(true, SeqCst);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

fn within(time: Duration, happens: impl Fn() -> bool) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if happens() {
            return true;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    happens()
}

/// Whether the work on a stream waits for a closed gate. Opens the gate, after which the work must end.
pub(crate) fn held_by(gate: &Gate, stream: u64) -> &'static str {
    let done = || cu!("cuStreamQuery", stream) == 0;
    if within(A_WHILE, done) {
        return "does not wait";
    }
    gate.open();
    if within(LONG, done) { "waits" } else { "never ends" }
}

/// Whether the work on a stream ends although a gate is closed; for questions where it should.
pub(crate) fn passes(stream: u64) -> &'static str {
    if within(LONG, || cu!("cuStreamQuery", stream) == 0) { "does not wait" } else { "waits" }
}

/// Makes a call on another thread, where the primary context is current.
pub(crate) fn elsewhere<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        start();
        let _ = send.send(act());
    });
    receive
}

/// Whether a call returns while a gate is closed; for questions where it should. Allows five seconds, for a busy machine.
pub(crate) fn returns(gate: &Gate, act: impl FnOnce() -> u32 + Send + 'static) -> String {
    returns_within(Duration::from_secs(5), gate, act)
}

/// Like [`returns`], for questions where the call should wait.
pub(crate) fn waits(gate: &Gate, act: impl FnOnce() -> u32 + Send + 'static) -> String {
    returns_within(A_WHILE, gate, act)
}

fn returns_within(time: Duration, gate: &Gate, act: impl FnOnce() -> u32 + Send + 'static) -> String {
    let receive = elsewhere(act);
    let (when, code) = match receive.recv_timeout(time) {
        Ok(code) => ("returns at once", code),
        Err(_) => {
            gate.open();
            ("waits", receive.recv_timeout(LONG).expect("the call returns"))
        }
    };
    if code == 0 { when.to_owned() } else { format!("{when}, {}", crate::answer::said(code)) }
}

/// A stream that waits for the legacy default stream, and for which that stream waits.
pub(crate) fn blocking_stream() -> u64 {
    let mut stream = 0_u64;
    cu_ok!("cuStreamCreate", &raw mut stream, 0);
    stream
}

pub(crate) fn alloc_async(stream: u64) -> u64 {
    let mut address = 0_u64;
    cu_ok!("cuMemAllocAsync", &raw mut address, N, stream);
    address
}

pub(crate) fn managed() -> u64 {
    let mut address = 0_u64;
    cu_ok!("cuMemAllocManaged", &raw mut address, N, 1);
    address
}

/// Pageable host memory that begins at a page.
pub(crate) fn pageable(bytes: usize) -> &'static mut [u8] {
    // SAFETY: a new mapping overlaps no other memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    assert!(at != libc::MAP_FAILED);
    // SAFETY: the mapping has this many zero bytes and is never unmapped, and nothing else refers to it.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), bytes) }
}

/// Creates another context of device 0, which becomes current.
pub(crate) fn second_context() -> u64 {
    let mut context = 0_u64;
    cu_ok!("cuCtxCreate_v2", &raw mut context, 0, 0);
    context
}

/// Whether all bytes are equal to `byte`.
pub(crate) fn all(bytes: &[u8], byte: u8) -> bool {
    bytes.iter().all(|b| *b == byte)
}
