//! The CUDA driver that the tests run on: the simulated one of `tests/simcuda`, loaded the way production loads a driver,
//! or with `DEVX_GPU=1` the real one of the machine. `DEVX_GPU=rehearsal` does all that is done on a GPU, but on the
//! simulated driver, which has to be the `libcuda.so.1` that the loader finds.
//!
//! cargo builds the cdylib; it is placed under both names of the driver and opened by its absolute path before the core
//! is called for the first time. What opens `libcuda.so.1` afterwards, as the core does, finds the one that is loaded.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use devexchange_core::runtime::cuda::{RawStream, Stream, info, kept_events, reaper};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::{patient, peer, root};

/// Whether the tests run on the driver of the machine, or do as if they did.
pub fn on_gpu() -> bool {
    rehearsal() || std::env::var_os("DEVX_GPU").is_some_and(|value| value == "1")
}

/// Whether queued work may be done before somebody asks for it: a GPU does it meanwhile, and so do the threads of the simulated
/// driver.
pub fn goes_on() -> bool {
    on_gpu() || mode_of_process() == "threads"
}

/// Whether what is done on a GPU is done on the simulated driver instead.
fn rehearsal() -> bool {
    std::env::var_os("DEVX_GPU").is_some_and(|value| value == "rehearsal")
}

static SKIPPED: AtomicU32 = AtomicU32::new(0);

/// Says that a part of a test needs the simulated driver; for `if skipped("…") { return; }`. On a GPU the line that it
/// prints makes `make gpu-test` count the whole test as skipped, since less was tested than its name says.
pub fn skipped(why: &str) -> bool {
    if on_gpu() {
        let count = SKIPPED.fetch_add(1, Relaxed) + 1;
        println!("skipped ({count}): {why}");
    }
    on_gpu()
}

/// Builds the simulated driver and places it under both names that clients look for; cargo itself says where it put it.
///
/// # Panics
/// If cargo fails.
pub fn place() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--package", "simcuda-driver", "--lib"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root())
        .output()
        .expect("run cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).expect("UTF-8");
    let built = messages.split('"').find(|text| text.ends_with("/libsimcuda_driver.so"));
    let built = Path::new(built.expect("cargo names the library"));
    let directory = built.with_file_name("simcuda");
    std::fs::create_dir_all(&directory).expect("make the directory");
    for name in ["libcuda.so.1", "libcuda.so"] {
        let link = directory.join(name);
        if std::fs::read_link(&link).ok().as_deref() != Some(built) {
            // Several test programs may place it at once: each makes a link of its own and renames it.
            let mine = directory.join(format!("{name}.{}", std::process::id()));
            let _ = std::fs::remove_file(&mine);
            std::os::unix::fs::symlink(built, &mine).expect("make the link");
            std::fs::rename(&mine, &link).expect("place the link");
        }
    }
    directory
}

/// The driver of this process, by its C functions.
pub struct Cuda {
    library: Library,
    /// Where it was loaded from.
    pub path: PathBuf,
}

/// The simulated driver: the one that is placed, or that is placed now.
pub fn placed() -> PathBuf {
    std::env::var_os(PLACED).map_or_else(|| place().join("libcuda.so.1"), PathBuf::from)
}

/// A call with integers and pointers. The result is not checked.
#[macro_export]
macro_rules! cu {
    ($name:literal $(, $argument:expr)* $(,)?) => {
        $crate::sim::cuda().call($name, &[$($argument as u64),*])
    };
}

/// As [`cu`], of a call that must succeed.
#[macro_export]
macro_rules! cu_ok {
    ($name:literal $(, $argument:expr)* $(,)?) => {
        assert_eq!($crate::cu!($name $(, $argument)*), 0, $name)
    };
}

/// For the children of a test, which need not ask cargo again.
const CHILD: &str = "DEVX_SIM_CHILD";
const PLACED: &str = "DEVX_SIM_PATH";

static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Chooses the driver of this process: for programs that are no tests, before they call it.
///
/// # Panics
/// If one was chosen before.
pub fn choose(path: &Path) {
    CHOSEN.set(path.to_owned()).expect("chosen once");
}

/// The driver, loaded at the first call.
///
/// # Panics
/// If there is none, or the core found another one.
pub fn cuda() -> &'static Cuda {
    static CUDA: OnceLock<Cuda> = OnceLock::new();
    CUDA.get_or_init(|| {
        let path = match CHOSEN.get() {
            Some(path) => path.clone(),
            None if on_gpu() => PathBuf::from("libcuda.so.1"),
            None => placed(),
        };
        let settings = [("SIMCUDA_DEVICES", "2"), ("SIMCUDA_REACH", "documented"), ("SIMCUDA_MODE", mode_of_process())];
        for (name, value) in settings {
            if std::env::var_os(name).is_none() {
                // SAFETY: only this function changes the environment, once, and the tests read it through std alone.
                unsafe { std::env::set_var(name, value) };
            }
        }
        // SAFETY: loading a CUDA driver runs no code that could do harm.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }.expect("open the driver");
        Cuda { library, path }
    })
}

/// `lazy`, or what a parent asks for ([`again_with_threads`]): once there were workers, they stay.
fn mode_of_process() -> &'static str {
    if std::env::var_os("DEVX_SIM_THREADS").is_some() { "threads" } else { "lazy" }
}

impl Cuda {
    /// Calls a function of up to six integer or pointer arguments by its exported name.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn call(&self, name: &str, arguments: &[u64]) -> u32 {
        type Any = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> u32;
        let mut all = [0; 6];
        assert!(arguments.len() <= all.len());
        for (slot, argument) in all.iter_mut().zip(arguments) {
            *slot = *argument;
        }
        let [a, b, c, d, e, f] = all;
        // SAFETY: up to six arguments of integer class go into registers on x86-64 and AArch64, of which the callee looks
        // at those that it has, in its own widths.
        let function: Any = unsafe { self.function(name) };
        // SAFETY: the tests pass what the function expects, valid for the length of the call.
        unsafe { function(a, b, c, d, e, f) }
    }

    /// Whether there is a function of that name.
    pub fn has(&self, name: &str) -> bool {
        // SAFETY: the address is not used.
        unsafe { self.library.get::<*const ()>(name.as_bytes()) }.is_ok()
    }

    /// A function that [`call`](Self::call) cannot call.
    ///
    /// # Safety
    /// `T` is the type of the function of that name.
    ///
    /// # Panics
    /// If there is no such function.
    pub unsafe fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the caller's contract.
        let symbol = unsafe { self.library.get::<T>(name.as_bytes()) };
        *symbol.unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

// ---- control of the simulated driver (simcuda.h) ----

/// Which schedule queued work follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// `lazy`, `threads` or `adversarial`.
    pub mode: &'static str,
    /// Seed of every choice.
    pub seed: u64,
}

/// `lazy` seeded schedules and an adversarial one; a few threaded ones in a process of [`again_with_threads`]; on a GPU
/// three times whatever it does.
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

/// Runs the other tests of this program in a process whose queued work is run by threads.
///
/// # Panics
/// If a test fails there.
pub fn again_with_threads(own_name: &str) {
    if mode_of_process() == "threads" || skipped("who runs the work is the driver's own affair") {
        return;
    }
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "--skip", own_name])
        .env("DEVX_SIM_THREADS", "1")
        .env(PLACED, &cuda().path)
        .output()
        .expect("run this program");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Whether this process was started by [`child`]: then a test plays its other part.
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs one test of this program as a process of its own, in which [`is_child`] says so.
///
/// # Panics
/// As [`peer::run`].
pub fn child(test: &str, variables: &[(&str, &str)]) -> std::process::Output {
    let path = cuda().path.to_str().expect("UTF-8");
    peer::run(test, &[&[(PLACED, path), (CHILD, "1")], variables].concat())
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("no NUL")
}

/// Sets the schedule of what is queued from now on.
pub fn set_schedule(schedule: Schedule) {
    if !on_gpu() {
        let mode = c_text(schedule.mode);
        cu_ok!("simcuda_seed", mode.as_ptr(), schedule.seed);
    }
}

/// How often a function of the driver was called so far (`*`: all); 0 on a GPU.
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

/// What the driver has to complain about; none on a GPU.
pub fn findings() -> Vec<String> {
    if on_gpu() {
        return Vec::new();
    }
    let count = u64::from(cu!("simcuda_findings"));
    (0..count).map(|index| text(|to, room| cu!("simcuda_finding", index, to, room).into())).collect()
}

/// The findings, which thereby are dealt with.
pub fn take_findings() -> Vec<String> {
    let findings = findings();
    if !findings.is_empty() {
        cu!("simcuda_findings_clear");
    }
    findings
}

/// What is live and where it was made, a line each.
pub fn ledger() -> String {
    text(|to, room| cu!("simcuda_ledger", to, room).into())
}

/// Makes the `nth` call from now of a function (`*`: of any) return `code`; with `sticky` all that follow, too.
pub fn fail(function: &str, nth: u64, code: u32, sticky: bool) {
    let function = c_text(function);
    cu_ok!("simcuda_fail", function.as_ptr(), nth, code, sticky);
}

/// Lets new streams have the handles of streams that are destroyed from now on, or no longer.
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

/// A name for what this thread is doing; it shows in the sites of findings.
pub fn label(label: Option<&str>) {
    if !on_gpu() {
        let label = label.map(c_text);
        cu!("simcuda_label", label.as_ref().map_or(std::ptr::null(), |label| label.as_ptr()));
    }
}

/// Runs all that is queued; orders nothing.
pub fn quiesce() {
    if !on_gpu() {
        cu!("simcuda_quiesce");
    }
}

/// This thread reads or writes memory that the driver knows and the host can touch.
pub fn host_access(address: u64, bytes: u64, write: bool) {
    if !on_gpu() {
        cu_ok!("simcuda_host_access", address, bytes, write);
    }
}

// ---- what producers and consumers of the tests do with the driver ----

/// A context by its handle.
pub type Context = u64;

/// The primary context of a device, which the tests keep until the process ends.
///
/// # Panics
/// If the driver fails.
pub fn primary(device: i32) -> Context {
    static PRIMARY: Mutex<Vec<(i32, Context)>> = Mutex::new(Vec::new());
    let mut known = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, context)) = known.iter().find(|(number, _)| *number == device) {
        return *context;
    }
    cu_ok!("cuInit", 0);
    let mut context = 0_u64;
    cu_ok!("cuDevicePrimaryCtxRetain", &raw mut context, device);
    known.push((device, context));
    context
}

/// The context that is current on this thread; 0 for none.
pub fn current() -> Context {
    let mut context = 0_u64;
    cu_ok!("cuCtxGetCurrent", &raw mut context);
    context
}

/// Makes a context current on this thread; 0 for none.
pub fn set_current(context: Context) {
    cu_ok!("cuCtxSetCurrent", context);
}

/// A stream that does not wait for the legacy default stream, of the current context.
pub fn stream() -> u64 {
    let mut stream = 0_u64;
    cu_ok!("cuStreamCreate", &raw mut stream, 1);
    stream
}

/// A stream of device 0 by its number: no test destroys one that it gave to the library and that it still needs.
pub fn on(stream: u64) -> Stream {
    on_device(0, stream)
}

/// As [`on`], said to be of another device.
///
/// # Panics
/// For 0.
pub fn on_device(ordinal: i32, stream: u64) -> Stream {
    Stream::new(ordinal, raw(stream as i64)).expect("a stream")
}

/// As [`on`], as a request has it.
pub fn raw(stream: i64) -> RawStream {
    // SAFETY: as above.
    unsafe { RawStream::new(stream) }
}

/// Destroys a stream.
pub fn destroy(stream: u64) {
    cu_ok!("cuStreamDestroy_v2", stream);
}

/// Waits for a stream.
pub fn synchronize(stream: u64) {
    cu_ok!("cuStreamSynchronize", stream);
}

/// Waits for streams, and destroys them.
pub fn finish<const N: usize>(streams: [u64; N]) {
    streams.into_iter().for_each(synchronize);
    streams.into_iter().for_each(destroy);
}

/// Device memory of the current context's device.
pub fn alloc(bytes: u64) -> u64 {
    let mut address = 0_u64;
    cu_ok!("cuMemAlloc_v2", &raw mut address, bytes);
    address
}

/// Lets work of one device at the memory of another one's default pool, or no longer.
pub fn let_at_pool(of: i32, device: i32, allowed: bool) {
    /// `CUmemAccessDesc`: a location (`CU_MEM_LOCATION_TYPE_DEVICE`, which one), and what is allowed there.
    #[repr(C)]
    struct Access(u32, i32, u32);
    /// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
    const READ_AND_WRITE: u32 = 3;
    let mut pool = 0_u64;
    cu_ok!("cuDeviceGetDefaultMemPool", &raw mut pool, of);
    let access = Access(1, device, if allowed { READ_AND_WRITE } else { 0 });
    cu_ok!("cuMemPoolSetAccess", pool, &raw const access, 1);
}

/// Gives device memory back at once, as bad producers do; the driver's answer is not looked at.
pub fn free(address: u64) {
    cu!("cuMemFree_v2", address);
}

/// Pinned host memory.
pub fn alloc_host(bytes: u64) -> u64 {
    let mut address = 0_u64;
    cu_ok!("cuMemHostAlloc", &raw mut address, bytes, 1);
    address
}

/// Queues work that writes: every byte becomes `byte`.
pub fn fill(address: u64, byte: u8, bytes: u64, stream: u64) {
    cu_ok!("cuMemsetD8Async", address, byte, bytes, stream);
}

/// Queues work that reads `from` and writes `to`.
pub fn copy(to: u64, from: u64, bytes: u64, stream: u64) {
    cu_ok!("cuMemcpyDtoDAsync_v2", to, from, bytes, stream);
}

/// What is in device memory after all that is queued on `stream`.
pub fn download(address: u64, bytes: u64, stream: u64) -> Vec<u8> {
    let mut data = vec![0_u8; bytes as usize];
    cu_ok!("cuMemcpyDtoHAsync_v2", data.as_mut_ptr(), address, bytes, stream);
    synchronize(stream);
    data
}

/// A new event without timing, of the current context.
pub fn event() -> u64 {
    let mut event = 0_u64;
    cu_ok!("cuEventCreate", &raw mut event, 2);
    event
}

/// Begins to capture what is queued on a stream. Modes: 0 global, 1 thread-local, 2 relaxed.
pub fn begin_capture(stream: u64, mode: u32) {
    cu_ok!("cuStreamBeginCapture_v2", stream, mode);
}

/// Ends a capture and throws the graph away; the driver's code says whether the capture was intact.
pub fn end_capture(stream: u64) -> u32 {
    let mut graph = 0_u64;
    let code = cu!("cuStreamEndCapture", stream, &raw mut graph);
    if code == 0 {
        cu_ok!("cuGraphDestroy", graph);
    }
    code
}

/// Queues a function that never returns.
pub fn block_forever(stream: u64) {
    extern "C" fn forever(_: *mut c_void) {
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    let forever: extern "C" fn(*mut c_void) = forever;
    cu_ok!("cuLaunchHostFunc", stream, forever as usize, 0);
}

// ---- one test at a time, with its books balanced ----

/// What there is in the driver, but contexts and events, which the core keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Device memory, pinned and managed memory.
    pub memory: i64,
    /// Streams.
    pub streams: i64,
    /// Events that are not in the core's pool.
    pub events: i64,
    /// What the core has given up for lost.
    pub lost: i64,
}

impl Live {
    /// As it is now.
    pub fn now() -> Self {
        let memory = ["live_device", "live_host", "live_managed", "live_imported"];
        Self {
            memory: memory.iter().map(|name| stat(name)).sum(),
            streams: stat("live_streams"),
            events: if on_gpu() { 0 } else { stat("live_events") - kept_events() as i64 },
            lost: reaper::leaked(),
        }
    }
}

/// The time of a test: no other one runs in this process, a context of device 0 is current, and at the end the driver
/// must have nothing to complain about and nothing left that was made meanwhile.
#[derive(Debug)]
pub struct Session {
    before: Mutex<Live>,
    contexts: i64,
    schedule: Mutex<Option<Schedule>>,
    _alone: MutexGuard<'static, ()>,
}

impl Session {
    /// Begins. Waits for the test before.
    ///
    /// # Panics
    /// If the core uses another driver than the tests.
    #[expect(clippy::new_without_default, reason = "beginning is an act, not a value")]
    pub fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = if on_gpu() { 1 } else { 2 };
        (0..devices).for_each(|device| {
            primary(device);
        });
        set_current(primary(0));
        let name = info::device_info(0).expect("the core finds the driver").name;
        assert_eq!(name.contains("Simulated"), rehearsal() || !on_gpu(), "the core uses {name}");
        take_findings();
        let contexts = stat("live_contexts");
        Self { before: Mutex::new(Live::now()), contexts, schedule: Mutex::new(None), _alone: alone }
    }

    /// Runs a scenario once for each schedule; afterwards nothing may be left of it.
    ///
    /// # Panics
    /// If the scenario fails, or leaves findings or live things behind.
    pub fn each(&self, lazy: u64, mut scenario: impl FnMut()) {
        for schedule in schedules(lazy) {
            self.begin(schedule);
            scenario();
            self.check();
        }
    }

    /// Follows another schedule from now on.
    pub fn begin(&self, schedule: Schedule) {
        *self.schedule.lock().unwrap_or_else(PoisonError::into_inner) = Some(schedule);
        set_schedule(schedule);
    }

    /// Takes what is there now for granted: what an injected failure explains.
    pub fn accept(&self) {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Live::now();
    }

    /// Checks that the driver has nothing to complain about, and that nothing is left that was made since the beginning.
    ///
    /// # Panics
    /// If it has, or something is.
    pub fn check(&self) {
        settle();
        let findings = take_findings();
        let now = Live::now();
        let schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(findings.is_empty(), "{schedule:?}: {findings:#?}");
        let before = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(now, before, "{schedule:?}: not all is as before; live are:\n{}", ledger());
        // The core keeps one primary context for each device that it was asked for.
        let (retained, devices) = (stat("live_contexts") - self.contexts, 2);
        assert!(retained <= devices, "{schedule:?}: {retained} contexts retained for {devices} devices");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        fail_clear_if_simulated();
        if std::thread::panicking() {
            eprintln!("schedule: {:?}", self.schedule);
            take_findings().iter().for_each(|finding| eprintln!("finding: {finding}"));
            return;
        }
        self.check();
    }
}

fn fail_clear_if_simulated() {
    if !on_gpu() {
        fail_clear();
    }
}

/// Waits until no release waits for work any more.
///
/// # Panics
/// If that takes more than ten seconds.
pub fn settle() {
    let end = Instant::now() + patient(Duration::from_secs(10));
    while reaper::waiting() > 0 {
        assert!(Instant::now() < end, "{} releases still wait", reaper::waiting());
        std::thread::sleep(Duration::from_micros(50));
    }
}
