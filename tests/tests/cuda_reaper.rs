//! The thread that gives up what queued work uses: when the driver cannot say whether the work is done, under capture,
//! when memory is short, and at the end of the process.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use devexchange_core::runtime::cuda::{Event, kept_events};
use devexchange_core::runtime::{releases_lost, releases_waiting};
use devexchange_core::{DType, Stream, Tensor};
use devexchange_tests::cu_ok;
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::peer::forked;
use devexchange_tests::sim::{self, Schedule, Session};

const N: u64 = 256;
const LAZY: Schedule = Schedule { mode: "lazy", seed: 1 };

/// The same number as in `core/src/runtime/cuda/reaper.rs`: this many queries in a row can fail.
const TRIES: u64 = 3;

/// Codes of the driver: a kernel failed; the driver, or the context, is gone, or the event together with its context.
const FAILED: u32 = 719;
const GONE: [u32; 2] = [4, 709];
const NO_EVENT: u32 = 400;

/// Memory of a producer, and a stream with work that reads it.
struct Scene {
    memory: u64,
    scratch: u64,
    stream: u64,
    released: Arc<AtomicU32>,
}

impl Scene {
    fn new() -> Self {
        let (memory, stream) = (sim::alloc(N), sim::stream());
        sim::fill(memory, 1, N, stream);
        Self { memory, scratch: sim::alloc(N), stream, released: Arc::default() }
    }

    fn on(&self) -> Stream {
        sim::on(self.stream)
    }

    /// A tensor that is in use.
    fn used(&self) -> Tensor {
        let released = Arc::clone(&self.released);
        let tensor = foreign::tensor(self.memory, N, CUDA0, move || {
            released.fetch_add(1, SeqCst);
        });
        sim::copy(self.scratch, self.memory, N, self.stream);
        tensor.used_on(self.on()).expect("used");
        tensor
    }

    /// The number of releases, and of things given up for lost, after this many failing queries.
    fn with_failures(failures: u64, code: u32) -> (u32, i64) {
        let session = Session::new();
        session.begin(LAZY);
        let (scene, before) = (Self::new(), releases_lost());
        (1..=failures).for_each(|nth| sim::fail("cuEventQuery", nth, code, false));
        drop(scene.used());
        sim::settle();
        sim::fail_clear();
        let found = (scene.released.load(SeqCst), releases_lost() - before);
        scene.end();
        session.accept();
        found
    }

    fn end(self) {
        sim::synchronize(self.stream);
        sim::free(self.memory);
        sim::free(self.scratch);
        sim::destroy(self.stream);
    }
}

/// For a driver that answers about an event only with a current context: a refused query is repeated with the event's
/// context.
#[test]
fn a_query_is_made_again_with_the_context_of_the_event() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    const INVALID_CONTEXT: u32 = 201;
    assert_eq!(Scene::with_failures(TRIES + 1, INVALID_CONTEXT), (1, 0));
    assert_eq!(Scene::with_failures(2 * (TRIES + 1), INVALID_CONTEXT), (0, 1));
}

#[test]
fn a_query_that_fails_is_made_again() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    for failures in 0..=TRIES {
        assert_eq!(Scene::with_failures(failures, FAILED), (1, 0), "{failures} failures");
    }
}

#[test]
fn what_cannot_be_asked_is_lost_and_counted() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    assert_eq!(Scene::with_failures(100, FAILED), (0, 1));
    assert_eq!(Scene::with_failures(100, FAILED), (0, 1));
}

#[test]
fn work_of_a_driver_that_is_gone_is_over() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    for code in GONE.into_iter().chain([NO_EVENT]) {
        assert_eq!(Scene::with_failures(100, code), (1, 0), "code {code}");
    }
}

/// The work in a context ends with it, and so do the events: what waited for them is released.
#[test]
fn a_release_that_waits_for_work_of_a_context_comes_when_that_is_destroyed() {
    if sim::skipped("a real driver may not survive what is asked of a context that is gone") {
        return;
    }
    let session = Session::new();
    for destroyed_first in [false, true] {
        session.begin(LAZY);
        let (released, before) = (Arc::new(AtomicU32::new(0)), releases_lost());
        let (memory, mut own) = (sim::alloc(N), 0_u64);
        cu_ok!("cuCtxCreate_v2", &raw mut own, 0, 0);
        let (scratch, stream) = (sim::alloc(N), sim::stream());
        let counted = Arc::clone(&released);
        let tensor = foreign::tensor(memory, N, CUDA0, move || {
            counted.fetch_add(1, SeqCst);
        });
        sim::copy(scratch, memory, N, stream);
        tensor.used_on(sim::on(stream)).expect("used");
        if destroyed_first {
            cu_ok!("cuCtxDestroy_v2", own);
            drop(tensor);
        } else {
            drop(tensor);
            cu_ok!("cuCtxDestroy_v2", own);
        }
        sim::settle();
        assert_eq!((released.load(SeqCst), releases_lost() - before), (1, 0), "destroyed first: {destroyed_first}");
        // The driver was asked about an event that is gone.
        let findings = sim::take_findings();
        assert!(findings.iter().all(|finding| finding.contains("StaleHandle")), "{findings:#?}");
        sim::set_current(sim::primary(0));
        sim::free(memory);
    }
    session.accept();
}

/// An event ends with its context, and another event can get its handle. So no event is kept for reuse from a context
/// that its creator may destroy, and no event that ended with its context is given back.
#[test]
fn nothing_is_kept_of_contexts_that_come_and_go() {
    if sim::skipped("a real driver may not survive what is asked of a context that is gone") {
        return;
    }
    let session = Session::new();
    session.begin(LAZY);
    let (kept, lost) = (kept_events(), releases_lost());
    for _ in 0..300 {
        let (memory, mut own) = (sim::alloc(N), 0_u64);
        cu_ok!("cuCtxCreate_v2", &raw mut own, 0, 0);
        let (scratch, stream) = (sim::alloc(N), sim::stream());
        let before = sim::stat("live_events");
        drop(Event::record(sim::on(stream)).expect("recorded"));
        assert_eq!(sim::stat("live_events"), before, "the context lives, and has its event back");
        let tensor = foreign::tensor(memory, N, CUDA0, || ());
        sim::copy(scratch, memory, N, stream);
        tensor.used_on(sim::on(stream)).expect("used");
        drop(tensor);
        cu_ok!("cuCtxDestroy_v2", own);
        sim::settle();
        sim::set_current(sim::primary(0));
        sim::free(memory);
    }
    assert_eq!((kept_events(), releases_lost()), (kept, lost));
    // The driver was asked about events that are gone, and about nothing else.
    let findings = sim::take_findings();
    assert!(
        findings.iter().all(|finding| finding.contains("StaleHandle") && finding.contains("cuEventQuery")),
        "{findings:#?}"
    );
    // There is room for the events of contexts that stay.
    let scene = Scene::new();
    drop(Event::record(scene.on()).expect("recorded"));
    let made = sim::calls("cuEventCreate");
    drop(Event::record(scene.on()).expect("recorded"));
    assert_eq!(sim::calls("cuEventCreate"), made);
    scene.end();
}

/// Otherwise data that lives longer than any of the contexts that use it would have ever more uses.
#[test]
fn uses_that_went_with_their_contexts_are_not_kept() {
    if sim::skipped("a real driver may not survive what is asked of a context that is gone") {
        return;
    }
    let session = Session::new();
    session.begin(LAZY);
    let memory = sim::alloc(N);
    let tensor = foreign::tensor(memory, N, CUDA0, || ());
    for _ in 0..200 {
        let mut own = 0_u64;
        cu_ok!("cuCtxCreate_v2", &raw mut own, 0, 0);
        tensor.used_on(sim::on(sim::stream())).expect("noted");
        cu_ok!("cuCtxDestroy_v2", own);
    }
    sim::set_current(sim::primary(0));
    let asked = sim::calls("cuEventQuery");
    drop(tensor);
    sim::settle();
    assert!(sim::calls("cuEventQuery") - asked < 50, "{} questions", sim::calls("cuEventQuery") - asked);
    sim::take_findings();
    sim::free(memory);
}

/// The driver says of such an event that there is none, as if it were a mistake to give it back.
#[test]
fn an_event_that_went_with_its_context_is_not_lost() {
    if sim::skipped("a real driver may not survive what is asked of a context that is gone") {
        return;
    }
    let session = Session::new();
    let (before, mut own) = (releases_lost(), 0_u64);
    cu_ok!("cuCtxCreate_v2", &raw mut own, 0, 0);
    let event = Event::record(sim::on(sim::stream())).expect("recorded");
    cu_ok!("cuCtxDestroy_v2", own);
    sim::set_current(sim::primary(0));
    drop(event);
    assert_eq!(releases_lost(), before);
    let findings = sim::take_findings();
    assert!(findings.iter().all(|finding| finding.contains("StaleHandle")), "{findings:#?}");
    drop(session);
}

#[test]
fn what_the_driver_does_not_take_back_is_counted() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    let session = Session::new();
    let allocate = || Tensor::allocate(CUDA0, DType::UINT8, &[N as i64], None).expect("allocated");
    for (code, lost) in [(0, 0), (FAILED, 1), (GONE[0], 0), (GONE[1], 0)] {
        let (tensor, before) = (allocate(), releases_lost());
        let address = tensor.data() as u64;
        if code != 0 {
            sim::fail("cuMemFree_v2", 1, code, false);
        }
        drop(tensor);
        sim::settle();
        sim::fail_clear();
        assert_eq!(releases_lost() - before, lost, "code {code}");
        if code != 0 {
            sim::free(address);
        }
    }
    session.accept();
}

#[test]
fn releases_wait_for_their_work_alone() {
    let session = Session::new();
    session.each(20, || {
        let (scene, other) = (Scene::new(), Scene::new());
        let (early, late) = (scene.used(), scene.used());
        drop(early);
        // Under a capture of another stream, which a query of events would break.
        sim::begin_capture(other.stream, 0);
        drop(late);
        sim::settle();
        assert_eq!(sim::end_capture(other.stream), 0, "the capture is intact");
        assert_eq!(scene.released.load(SeqCst), 2);
        scene.end();
        other.end();
    });
}

#[test]
fn memory_of_a_stream_waits_for_the_end_of_a_capture() {
    let session = Session::new();
    session.each(5, || {
        let scene = Scene::new();
        let tensor = Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(scene.on())).expect("allocated");
        sim::begin_capture(scene.stream, 1);
        drop(tensor);
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(releases_waiting(), 1);
        assert_eq!(sim::end_capture(scene.stream), 0, "the capture is intact");
        sim::settle();
        scene.end();
    });
}

/// What waits at a fork is left to the parent. In the child nothing waits, whatever is released there.
#[test]
fn nothing_waits_in_a_child() {
    let session = Session::new();
    session.each(5, || {
        let scene = Scene::new();
        let allocate = || Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(scene.on())).expect("allocated");
        let (before, in_child) = (allocate(), allocate().into_raw());
        sim::begin_capture(scene.stream, 1);
        drop(before);
        assert_eq!(releases_waiting(), 1);
        let status = forked(|| {
            // SAFETY: taken back once in each of the two processes.
            drop(unsafe { Tensor::from_raw(in_child) });
            releases_waiting() == 0
        });
        assert_eq!((status, releases_waiting()), (0, 1));
        // SAFETY: as above.
        drop(unsafe { Tensor::from_raw(in_child) });
        assert_eq!(sim::end_capture(scene.stream), 0, "the capture is intact");
        sim::settle();
        scene.end();
    });
}

#[test]
fn memory_on_its_way_back_is_waited_for_where_it_is_short() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    let session = Session::new();
    session.begin(LAZY);
    let scene = Scene::new();
    // Makes sure that the thread exists.
    drop(scene.used());
    sim::settle();
    let allocate = || Tensor::allocate(CUDA0, DType::UINT8, &[16], None);
    let slow = Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(scene.on())).expect("allocated");
    sim::begin_capture(scene.stream, 2);
    drop(slow);
    // Longer than the thread sleeps, so it is hardly ever awake when the capture ends. If it is, it gives the memory
    // back earlier.
    std::thread::sleep(Duration::from_millis(5));
    sim::fail("cuMemAlloc_v2", 1, 2, false);
    let before = sim::calls("cuMemFreeAsync");
    assert_eq!(sim::end_capture(scene.stream), 0, "the capture is intact");
    let second = allocate().expect("allocated at the second try");
    assert_eq!(sim::calls("cuMemFreeAsync") - before, 1, "what was on its way is back");
    drop(second);
    // Two failures in a row are too many.
    sim::fail("cuMemAlloc_v2", 1, 2, false);
    sim::fail("cuMemAlloc_v2", 2, 2, false);
    allocate().expect_err("no memory");
    sim::fail_clear();
    sim::settle();
    scene.end();
}

/// An allocation that waits for a release also waits for what that release gives up in turn, however long that takes.
#[test]
fn what_a_release_gives_up_is_waited_for_where_memory_is_short() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    let session = Session::new();
    session.begin(LAZY);
    let scene = Scene::new();
    let freed = Tensor::allocate(CUDA0, DType::UINT8, &[16], None).expect("allocated");
    let used = |on_release: Box<dyn FnOnce() + Send>| {
        let tensor = foreign::tensor(scene.memory, N, CUDA0, on_release);
        tensor.used_on(scene.on()).expect("used");
        tensor
    };
    let sleep = |milliseconds| std::thread::sleep(Duration::from_millis(milliseconds));
    let (begins, begun) = std::sync::mpsc::channel();
    let first = used(Box::new(move || {
        begins.send(()).expect("somebody listens");
        sleep(30);
    }));
    let slow = used(Box::new(move || sleep(60)));
    let outer = used(Box::new(move || drop((slow, freed))));
    sim::synchronize(scene.stream);
    let before = sim::calls("cuMemFree_v2");
    sim::fail("cuMemAlloc_v2", 1, 2, false);
    // The thread is busy with the first release until somebody waits for the other.
    drop(first);
    begun.recv_timeout(devexchange_tests::patient(Duration::from_secs(20))).expect("it is at it");
    drop(outer);
    let second = Tensor::allocate(CUDA0, DType::UINT8, &[16], None).expect("allocated at the second try");
    assert_eq!(sim::calls("cuMemFree_v2") - before, 1, "what was on its way is back");
    drop(second);
    sim::settle();
    scene.end();
}

/// An allocation that waited within a release would wait for itself.
#[test]
fn a_release_may_allocate_where_memory_is_short() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    let session = Session::new();
    session.begin(LAZY);
    let scene = Scene::new();
    let tensor = foreign::tensor(scene.memory, N, CUDA0, || {
        sim::fail("cuMemAlloc_v2", 1, 2, false);
        drop(Tensor::allocate(CUDA0, DType::UINT8, &[16], None).expect("allocated at the second try"));
    });
    sim::copy(scene.scratch, scene.memory, N, scene.stream);
    tensor.used_on(scene.on()).expect("used");
    drop(tensor);
    sim::settle();
    scene.end();
}

/// A release that needs something held by the thread that asks for memory: the allocation is refused in the end, and
/// nobody waits for ever.
#[test]
fn a_release_may_need_what_the_one_has_who_is_short_of_memory() {
    let session = Session::new();
    if sim::skipped("memory is short when the simulated driver says so") {
        return;
    }
    session.begin(LAZY);
    let (scene, lock) = (Scene::new(), Arc::new(std::sync::Mutex::new(())));
    let (theirs, released) = (Arc::clone(&lock), Arc::clone(&scene.released));
    let tensor = foreign::tensor(scene.memory, N, CUDA0, move || {
        drop(theirs.lock());
        released.fetch_add(1, SeqCst);
    });
    tensor.used_on(scene.on()).expect("used");
    sim::quiesce();
    let (tells, told) = std::sync::mpsc::channel();
    let asks = std::thread::spawn(move || {
        sim::set_current(sim::primary(0));
        let held = lock.lock();
        drop(tensor);
        (1..=2).for_each(|nth| sim::fail("cuMemAlloc_v2", nth, 2, false));
        let made = Tensor::allocate(CUDA0, DType::UINT8, &[16], None);
        drop(held);
        tells.send(made.err().map(|error| error.status())).expect("somebody listens");
    });
    let status = told.recv_timeout(devexchange_tests::patient(Duration::from_secs(20))).expect("an answer");
    assert_eq!(status, Some(devexchange_core::abi::types::DEVX_OUT_OF_MEMORY));
    asks.join().expect("it ends");
    sim::settle();
    assert_eq!(scene.released.load(SeqCst), 1);
    scene.end();
}

/// Limits this process to this many bytes of addresses beyond those that it has; removes the limit if `None`.
fn limit_addresses(more: Option<u64>) {
    let limit = more.map_or(libc::RLIM_INFINITY, |more| {
        let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        let pages: u64 = text.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
        pages * 4096 + more
    });
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a call of the system.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// A release that came while no thread existed, and none could be made, runs once there is one.
#[test]
fn a_thread_that_could_not_be_made_is_made_later() {
    let (test, stacks) = ("a_thread_that_could_not_be_made_is_made_later", (1_u64 << 30).to_string());
    if sim::skipped("a driver of the machine needs many addresses")
        || !sim::is_apart(test, &[("RUST_MIN_STACK", &stacks)])
    {
        return;
    }
    let session = Session::new();
    session.begin(LAZY);
    let (first, second) = (Scene::new(), Scene::new());
    let (early, late) = (first.used(), second.used());
    limit_addresses(Some(64 << 20));
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "there is no room for a thread");
    drop(early);
    limit_addresses(None);
    assert_eq!((first.released.load(SeqCst), releases_waiting()), (0, 1), "it waits");
    drop(late);
    sim::settle();
    for scene in [first, second] {
        assert_eq!(scene.released.load(SeqCst), 1);
        scene.end();
    }
    assert_eq!(releases_lost(), 0);
}

// ---- the end of the process ----

static ENDING: AtomicBool = AtomicBool::new(false);

extern "C" fn end_begins() {
    ENDING.store(true, SeqCst);
}

/// Work that ends a while after the end of the process has begun.
extern "C" fn some_work(_: *mut std::ffi::c_void) {
    while !ENDING.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
}

/// A process gives the work half a second, which can be too short on a busy machine, so several processes try.
#[test]
fn the_end_of_the_process_waits_for_work_that_ends() {
    if sim::is_child() {
        sim::set_current(sim::primary(0));
        let (memory, stream) = (sim::alloc(N), sim::stream());
        let tensor = foreign::tensor(memory, N, CUDA0, || println!("released at the end"));
        let work: extern "C" fn(*mut std::ffi::c_void) = some_work;
        cu_ok!("cuLaunchHostFunc", stream, work as usize, 0);
        tensor.used_on(sim::on(stream)).expect("used");
        drop(tensor);
        // Registered after the handler of the thread that the release has started, so it is called before that one.
        // SAFETY: a function without arguments that does not unwind.
        assert_eq!(unsafe { libc::atexit(end_begins) }, 0);
        return;
    }
    let is_waited_for = || {
        let output = sim::child("the_end_of_the_process_waits_for_work_that_ends", &[("SIMCUDA_MODE", "threads")]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).contains("released at the end")
    };
    assert!((0..10).any(|_| is_waited_for()), "no process waited for its work");
}
