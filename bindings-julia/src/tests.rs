//! The functions as Julia calls them. There is one queue in a process, so the tests take turns.

use super::*;
use std::cell::Cell;
use std::collections::HashSet;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::server::Collector;
use devexchange_core::abi::types::{DEVX_CALLBACK, DEVX_NOT_READY, DEVX_OUT_OF_MEMORY};

static TURN: Mutex<()> = Mutex::new(());
static WAKES: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count(counter: *mut c_void) -> c_int {
    // SAFETY: `start` gives a counter that lives as long as the process.
    unsafe { &*counter.cast::<AtomicUsize>() }.fetch_add(1, SeqCst);
    0
}

/// A queue with nothing in it.
fn start() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the counter lives as long as the process.
    let status = unsafe { devx_julia_queue_start(Some(count), std::ptr::from_ref(&WAKES).cast_mut().cast()) };
    assert_eq!(status, DEVX_OK);
    assert!(drain(16).is_empty());
    turn
}

fn register(token: u64) -> DevxOwner {
    let mut owner = DevxOwner { context: null_mut(), release: None };
    // SAFETY: the owner can be written.
    assert_eq!(unsafe { devx_julia_register(token, &raw mut owner) }, DEVX_OK);
    owner
}

fn release(owner: &DevxOwner) {
    let call = owner.release.expect("an owner of ours has a release");
    // SAFETY: the tests release each owner once.
    unsafe { call(owner.context) }
}

fn drain(capacity: usize) -> Vec<u64> {
    let mut tokens = vec![u64::MAX; capacity];
    // SAFETY: the vector has so many tokens.
    let taken = unsafe { devx_julia_drain(tokens.as_mut_ptr(), capacity) };
    tokens.truncate(taken);
    tokens
}

/// An owner for other threads: its context is made to be released anywhere.
struct Sent(DevxOwner);
// SAFETY: the release of an owner may be called from any thread.
unsafe impl Send for Sent {}

#[test]
fn what_is_released_comes_out_once_and_in_order() {
    let _turn = start();
    let owners: Vec<_> = (0..5).map(register).collect();
    assert!(drain(16).is_empty());
    for i in [3, 0, 4] {
        release(owners.get(i).expect("there are five"));
    }
    assert_eq!(devx_julia_push(77), DEVX_OK);
    assert_eq!(drain(2), [3, 0]);
    assert_eq!(drain(2), [4, 77]);
    assert!(drain(2).is_empty());
    for i in [1, 2] {
        let owner = owners.get(i).expect("there are five");
        // SAFETY: these two were not released.
        unsafe { devx_julia_cancel(owner.context) };
    }
    assert!(drain(16).is_empty());
}

#[test]
fn every_push_wakes_until_silenced() {
    let _turn = start();
    let before = WAKES.load(SeqCst);
    devx_julia_push(1);
    release(&register(2));
    assert_eq!(WAKES.load(SeqCst), before + 2);
    devx_julia_silence();
    devx_julia_push(3);
    release(&register(4));
    assert_eq!(WAKES.load(SeqCst), before + 2);
    assert_eq!(drain(16), [1, 2, 3, 4]);
    devx_julia_push(5);
    // After a restart, the new handle is woken if tokens are waiting.
    // SAFETY: the counter lives as long as the process.
    unsafe { devx_julia_queue_start(Some(count), std::ptr::from_ref(&WAKES).cast_mut().cast()) };
    assert_eq!(WAKES.load(SeqCst), before + 3);
    assert_eq!(drain(16), [5]);
}

#[test]
fn what_cannot_be_is_refused() {
    let _turn = start();
    // SAFETY: NULL is among what the functions take.
    unsafe {
        assert_eq!(devx_julia_queue_start(None, std::ptr::from_ref(&WAKES).cast_mut().cast()), DEVX_NULL_ARGUMENT);
    }
    // SAFETY: as above.
    assert_eq!(unsafe { devx_julia_queue_start(Some(count), null_mut()) }, DEVX_NULL_ARGUMENT);
    // SAFETY: as above.
    assert_eq!(unsafe { devx_julia_register(1, null_mut()) }, DEVX_NULL_ARGUMENT);
    // SAFETY: as above.
    unsafe { devx_julia_cancel(null_mut()) };
    // SAFETY: as above.
    assert_eq!(unsafe { devx_julia_drain(null_mut(), 8) }, 0);
    assert!(drain(0).is_empty());
}

#[test]
fn a_panic_becomes_a_status() {
    assert_eq!(guard(DEVX_PANIC, || std::panic::resume_unwind(Box::new("a test"))), DEVX_PANIC);
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("dropped"));
        }
    }
    assert_eq!(guard(DEVX_PANIC, || std::panic::resume_unwind(Box::new(Bomb))), DEVX_PANIC);
}

const THREADS: u64 = 8;
const EACH: u64 = 5_000;

#[test]
fn nothing_is_lost_or_doubled_between_threads() {
    let _turn = start();
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let pushers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    for i in 0..EACH {
                        let token = thread * EACH + i;
                        match i % 3 {
                            0 => assert_eq!(devx_julia_push(token), DEVX_OK),
                            1 => release(&register(token)),
                            _ => {
                                // SAFETY: registered just now, and not released.
                                unsafe { devx_julia_cancel(register(u64::MAX).context) };
                                release(&register(token));
                            }
                        }
                    }
                })
            })
            .collect();
        while !pushers.iter().all(|pusher| pusher.is_finished()) {
            seen.extend(drain(97));
        }
    });
    loop {
        let rest = drain(1000);
        if rest.is_empty() {
            break;
        }
        seen.extend(rest);
    }
    assert_eq!(seen.len() as u64, THREADS * EACH);
    for thread in 0..THREADS {
        let own: Vec<_> = seen.iter().copied().filter(|token| token / EACH == thread).collect();
        assert!(own.is_sorted(), "thread {thread} is out of order");
    }
    assert_eq!(seen.iter().collect::<HashSet<_>>().len() as u64, THREADS * EACH);
}

#[test]
fn owners_may_be_released_on_any_thread() {
    let _turn = start();
    let (send, receive) = std::sync::mpsc::channel::<Sent>();
    let receive = Mutex::new(receive);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let next = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    match next {
                        Ok(Sent(owner)) => release(&owner),
                        Err(_) => break,
                    }
                }
            });
        }
        for token in 0..EACH {
            send.send(Sent(register(token))).expect("the receivers wait for all");
        }
        drop(send);
    });
    let mut seen = drain(2 * EACH as usize);
    seen.sort_unstable();
    assert_eq!(seen, (0..EACH).collect::<Vec<_>>());
}

#[test]
fn several_may_drain() {
    let _turn = start();
    let (seen, pushed) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let all = pushed.load(SeqCst);
                    let some = drain(13);
                    if some.is_empty() && all {
                        break;
                    }
                    seen.lock().unwrap_or_else(PoisonError::into_inner).extend(some);
                }
            });
        }
        (0..EACH).for_each(|token| assert_eq!(devx_julia_push(token), DEVX_OK));
        pushed.store(true, SeqCst);
    });
    let mut seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    seen.sort_unstable();
    assert_eq!(seen, (0..EACH).collect::<Vec<_>>());
}

// ---- requests ----

const TAG: u64 = 5;

/// In place of a Julia function: returns whether it did not throw.
type Function = fn(&mut Call) -> bool;

/// In place of `jl_call0`.
unsafe extern "C" fn call_function(function: *mut c_void) -> *mut c_void {
    // SAFETY: the tests only have functions of this type.
    let function = unsafe { std::mem::transmute::<*mut c_void, Function>(function) };
    // SAFETY: `Server::serve` is on this thread's stack.
    let ended = function(unsafe { &mut *devx_julia_called() });
    std::ptr::without_provenance_mut(usize::from(ended))
}

/// In place of Julia's record of a thread. The byte says whether the collector waits: 0 if it does.
#[repr(C)]
struct Record {
    other: [Cell<u64>; 5],
    collector: Cell<i8>,
    more: [Cell<u64>; 20],
}

thread_local!(static RECORD: Record = const {
    Record { other: [const { Cell::new(0) }; 5], collector: Cell::new(0), more: [const { Cell::new(0) }; 20] }
});
thread_local!(static TOLD: Cell<u32> = const { Cell::new(0) });

fn collector() -> i8 {
    RECORD.with(|record| record.collector.get())
}

fn tell(what: i8) -> i8 {
    RECORD.with(|record| {
        // Counts something.
        record.other[3].set(record.other[3].get() + 1);
        record.collector.replace(what)
    })
}

unsafe extern "C" fn thread() -> *mut u8 {
    RECORD.with(|record| std::ptr::from_ref(record).cast_mut().cast())
}

unsafe extern "C" fn wait() -> i8 {
    TOLD.set(TOLD.get() + 1);
    tell(0)
}

unsafe extern "C" fn go_on() -> i8 {
    tell(2)
}

unsafe extern "C" fn take_back(before: i8) {
    tell(before);
}

fn server(answer: Function, refuse: Function) -> Server {
    let collector = Collector { wait, end_wait: take_back, go_on, end_go_on: take_back };
    Server { call: call_function, thread, collector, answer: answer as *mut c_void, refuse: refuse as *mut c_void }
}

/// Fails with the token as the driver code.
fn fail(call: &mut Call) -> bool {
    assert_eq!(collector(), 0);
    call.error.driver_code = call.token as i32;
    call.error.status = DEVX_OUT_OF_MEMORY;
    true
}

fn be_interrupted(_: &mut Call) -> bool {
    false
}

fn source(token: u64, patience_ns: i64) -> DevxBatchSource {
    source_of(token, patience_ns, &server(fail, be_interrupted))
}

fn source_of(token: u64, patience_ns: i64, server: &Server) -> DevxBatchSource {
    let owner = register(token);
    let mut source = DevxBatchSource { context: null_mut(), next: None, release: None };
    // SAFETY: both can be read and written, and the functions may be called anywhere.
    let status = unsafe { devx_julia_source(token, TAG, server, patience_ns, &raw const owner, &raw mut source) };
    assert_eq!(status, DEVX_OK);
    source
}

/// Calls the source on this thread; returns the status, the driver code and the text.
fn ask(source: &DevxBatchSource) -> (Status, i32, String) {
    let (mut batch, mut error) = (null_mut(), Call::of(call::NEXT).error);
    let next = source.next.expect("a source of ours has a next");
    // SAFETY: the source is not released, and the outputs can be written.
    let status = unsafe { next(source.context, &raw mut batch, &raw mut error) };
    (status, error.driver_code, devexchange_core::text::read(&error.message).to_string())
}

fn release_source(source: &DevxBatchSource) {
    let call = source.release.expect("a source of ours has a release");
    // SAFETY: the tests release each source once.
    unsafe { call(source.context) }
}

struct Asked(DevxBatchSource);
// SAFETY: a source may be asked on any thread.
unsafe impl Sync for Asked {}
// SAFETY: as above.
unsafe impl Send for Asked {}
impl Asked {
    fn ask(&self) -> (Status, i32, String) {
        ask(&self.0)
    }
}

/// The address in the next token of a request.
fn request() -> *mut c_void {
    loop {
        if let [token] = *drain(1) {
            assert_eq!(token & 7, TAG);
            return std::ptr::with_exposed_provenance_mut((token >> 3) as usize & !7);
        }
        std::thread::yield_now();
    }
}

/// Takes a request and returns its call, unless nobody waits any more.
fn take(request: *mut c_void) -> Option<Call> {
    let mut call = Call::of(-1);
    // SAFETY: the tests take each request once, and the call can be written.
    unsafe { devx_julia_take(request, &raw mut call) }.then_some(call)
}

fn answer(request: *mut c_void, status: Status) -> Status {
    let mut call = Call::of(call::NEXT);
    call.error.status = status;
    call.error.driver_code = 4;
    // SAFETY: the tests answer what they took, once.
    unsafe { devx_julia_answer(request, &raw const call) }
}

#[test]
fn a_foreign_thread_waits_for_the_answer() {
    let _turn = start();
    let source = Asked(source(9, -1));
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| source.ask());
        let request = request();
        let asked = take(request).expect("somebody waits");
        assert_eq!((asked.token, asked.operation, asked.error.status), (9, call::NEXT, DEVX_CALLBACK));
        assert!(!asker.is_finished());
        assert_eq!(answer(request, DEVX_CLOSED), DEVX_OK);
        assert_eq!(asker.join().expect("no panic"), (DEVX_CLOSED, 4, String::new()));
    });
    release_source(&source.0);
    assert_eq!(drain(8), [9]);
}

#[test]
fn a_julia_thread_is_served_at_once() {
    let _turn = start();
    let source = Asked(source(11, -1));
    let (status, code, _) = on_julia_thread(&source);
    assert_eq!((status, code), (DEVX_OUT_OF_MEMORY, 11));
    release_source(&source.0);
    assert_eq!(drain(8), [11]);
}

fn on_julia_thread(source: &Asked) -> (Status, i32, String) {
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            devx_julia_thread();
            source.ask()
        });
        asker.join().expect("no panic")
    })
}

#[test]
fn an_answer_that_is_interrupted_is_refused() {
    let _turn = start();
    // An answer that was there already does not count.
    let answered = |call: &mut Call| {
        call.error.status = DEVX_OK;
        false
    };
    let source = Asked(source_of(12, -1, &server(answered, fail)));
    let (status, code, _) = on_julia_thread(&source);
    assert_eq!((status, code), (DEVX_OUT_OF_MEMORY, 12));
    release_source(&source.0);
    // Whoever refuses can be interrupted, too.
    thread_local!(static TRIES: Cell<u32> = const { Cell::new(0) });
    let at_last = |call: &mut Call| {
        TRIES.set(TRIES.get() + 1);
        TRIES.get() == 3 && fail(call)
    };
    let source = Asked(source_of(13, -1, &server(be_interrupted, at_last)));
    let (status, code, _) = on_julia_thread(&source);
    assert_eq!((status, code), (DEVX_OUT_OF_MEMORY, 13));
    release_source(&source.0);
    // What always throws does not hang.
    let source = Asked(source_of(14, -1, &server(be_interrupted, be_interrupted)));
    let (status, _, said) = on_julia_thread(&source);
    assert_eq!(status, DEVX_CALLBACK);
    assert!(said.contains("it was interrupted"), "{said}");
    release_source(&source.0);
    assert_eq!(drain(8), [12, 13, 14]);
}

#[test]
fn the_collector_is_told_only_if_it_does_not_wait() {
    let _turn = start();
    let source = Asked(source(17, -1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            devx_julia_thread();
            // Told again, it could throw an interrupt.
            assert_eq!(source.ask().0, DEVX_OUT_OF_MEMORY);
            assert_eq!((TOLD.get(), collector()), (0, 0));
            tell(2);
            assert_eq!(source.ask().0, DEVX_OUT_OF_MEMORY);
            assert_eq!((TOLD.get(), collector()), (1, 2));
        });
    });
    release_source(&source.0);
    assert_eq!(drain(8), [17]);
}

#[test]
fn a_call_within_a_call_leaves_the_outer_one_as_it_was() {
    let _turn = start();
    static INNER: OnceLock<Asked> = OnceLock::new();
    let inner = INNER.get_or_init(|| Asked(source(15, -1)));
    let answer = |call: &mut Call| {
        let (status, code, _) = INNER.get().expect("made above").ask();
        assert_eq!((status, code), (DEVX_OUT_OF_MEMORY, 15));
        assert!(std::ptr::eq(devx_julia_called(), call));
        fail(call)
    };
    let source = Asked(source_of(16, -1, &server(answer, be_interrupted)));
    let (status, code, _) = on_julia_thread(&source);
    assert_eq!((status, code), (DEVX_OUT_OF_MEMORY, 16));
    release_source(&source.0);
    release_source(&inner.0);
    assert_eq!(drain(8), [16, 15]);
}

#[test]
fn a_request_that_nobody_takes_runs_out() {
    let _turn = start();
    let source = source(9, 20_000_000);
    let (status, _, said) = ask(&source);
    assert_eq!(status, DEVX_NOT_READY);
    assert!(said.contains("within 0.02 s"), "{said}");
    assert!(take(request()).is_none());
    release_source(&source);
    assert_eq!(drain(8), [9]);
}

#[test]
fn silence_sends_everybody_away() {
    let _turn = start();
    let source = Asked(source(9, -1));
    std::thread::scope(|scope| {
        let askers = [scope.spawn(|| source.ask()), scope.spawn(|| source.ask())];
        let (taken, waiting) = (request(), request());
        assert!(take(taken).is_some());
        devx_julia_silence();
        for asker in askers {
            assert_eq!(asker.join().expect("no panic").0, DEVX_CLOSED);
        }
        assert_eq!(answer(taken, DEVX_OK), DEVX_CLOSED);
        assert!(take(waiting).is_none());
    });
    assert_eq!(source.ask().0, DEVX_CLOSED);
    release_source(&source.0);
    assert_eq!(drain(8), [9]);
}

#[test]
fn what_nobody_took_is_discarded() {
    let _turn = start();
    let owner = register(9);
    let mut source = DevxBatchSource { context: null_mut(), next: None, release: None };
    let mut wake = DevxWake { context: null_mut(), wake: None, release: None };
    // SAFETY: what is refused is not touched.
    let status = unsafe { devx_julia_source(9, TAG, std::ptr::null(), -1, &raw const owner, &raw mut source) };
    assert_eq!(status, DEVX_NULL_ARGUMENT);
    // SAFETY: as above.
    let status = unsafe { devx_julia_wake(9, std::ptr::null(), &raw mut wake) };
    assert_eq!(status, DEVX_NULL_ARGUMENT);
    let server = server(fail, be_interrupted);
    // SAFETY: all can be read and written.
    let status = unsafe { devx_julia_source(9, TAG, &server, -1, &raw const owner, &raw mut source) };
    assert_eq!(status, DEVX_OK);
    // SAFETY: nobody took the source, which gives the owner back.
    unsafe { devx_julia_discard(source.context) };
    // SAFETY: both can be read and written.
    assert_eq!(unsafe { devx_julia_wake(9, &raw const owner, &raw mut wake) }, DEVX_OK);
    // SAFETY: nobody took the record, which gives the owner back.
    unsafe { devx_julia_discard_wake(wake.context) };
    // SAFETY: NULL is fine.
    unsafe { devx_julia_discard(null_mut()) };
    // SAFETY: as above.
    unsafe { devx_julia_discard_wake(null_mut()) };
    // SAFETY: nobody has the owner.
    unsafe { devx_julia_cancel(owner.context) };
    assert!(drain(8).is_empty());
}

#[test]
fn a_waker_pushes_its_token_until_it_is_released() {
    let _turn = start();
    let owner = register(64);
    let mut record = DevxWake { context: null_mut(), wake: None, release: None };
    // SAFETY: both can be read and written.
    assert_eq!(unsafe { devx_julia_wake(70, &raw const owner, &raw mut record) }, DEVX_OK);
    let (wake, release) = (record.wake.expect("it has one"), record.release.expect("it has one"));
    for _ in 0..2 {
        // SAFETY: not released yet.
        unsafe { wake(record.context) };
    }
    assert_eq!(drain(8), [70]);
    // SAFETY: as above.
    unsafe { wake(record.context) };
    // SAFETY: released once.
    unsafe { release(record.context) };
    assert_eq!(drain(8), [70, 64]);
}

#[test]
fn what_is_kept_is_let_go_in_order() {
    let _turn = start();
    let (first, second) = (register(3), register(4));
    // SAFETY: both can be read.
    let kept = unsafe { devx_julia_keep(&raw const first, &raw const second) };
    assert!(drain(8).is_empty());
    // SAFETY: kept above.
    unsafe { devx_julia_let_go(kept) };
    assert_eq!(drain(8), [3, 4]);
    // SAFETY: NULL is fine.
    assert!(unsafe { devx_julia_keep(std::ptr::null(), &raw const second) }.is_null());
    // SAFETY: as above.
    unsafe { devx_julia_let_go(null_mut()) };
    assert!(drain(8).is_empty());
}

mod managers;
