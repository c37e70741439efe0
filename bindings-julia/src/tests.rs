//! The functions as Julia calls them. There is one queue in a process, so the tests take turns.

use super::*;
use std::collections::HashSet;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// Owners of other threads: the context may go anywhere, that is what it is for.
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
    // Whoever starts again is told that something is waiting.
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
