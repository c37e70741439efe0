//! Streams: order, default streams, host functions, and how polling makes progress.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that unwraps fails as it should")]

mod world;

use simcuda::{Code, Config, LEGACY, Mode, PER_THREAD};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use world::{MODES, World};

/// A host function that appends to a list.
fn log(w: &World, list: &Arc<Mutex<Vec<u32>>>, stream: u64, what: u32) {
    let list = Arc::clone(list);
    w.launch_host_func(stream, move || list.lock().unwrap().push(what)).unwrap();
}

#[test]
fn work_of_a_stream_stays_in_order_in_every_mode() {
    for mode in MODES {
        for seed in 0..20 {
            let w = World::strict(mode, seed);
            let (list, s, t) = (Arc::default(), w.nb(), w.nb());
            for i in 0..10 {
                log(&w, &list, s, i);
                log(&w, &list, t, 100 + i);
            }
            w.ctx_synchronize().unwrap();
            let all = list.lock().unwrap().clone();
            let (a, b): (Vec<u32>, Vec<u32>) = all.into_iter().partition(|x| *x < 100);
            assert_eq!((a, b), ((0..10).collect(), (100..110).collect()));
        }
    }
}

#[test]
fn the_legacy_stream_comes_between_blocking_streams() {
    for mode in MODES {
        for seed in 0..20 {
            let w = World::strict(mode, seed);
            let (list, s, t, free) = (Arc::default(), w.blocking(), w.blocking(), w.nb());
            log(&w, &list, s, 1);
            log(&w, &list, PER_THREAD, 1);
            log(&w, &list, LEGACY, 2);
            log(&w, &list, t, 3);
            log(&w, &list, PER_THREAD, 3);
            log(&w, &list, free, 100);
            w.ctx_synchronize().unwrap();
            let all = list.lock().unwrap().clone();
            let ordered: Vec<u32> = all.into_iter().filter(|x| *x != 100).collect();
            assert_eq!(ordered, [1, 1, 2, 3, 3], "{mode:?} {seed}");
        }
    }
}

#[test]
fn schedules_differ_by_seed_and_repeat_with_it() {
    let run = |mode, seed| {
        let w = World::strict(mode, seed);
        let list = Arc::new(Mutex::new(Vec::new()));
        for i in 0..6 {
            let s = w.nb();
            log(&w, &list, s, i);
        }
        w.ctx_synchronize().unwrap();
        Arc::into_inner(list).unwrap().into_inner().unwrap()
    };
    let orders: std::collections::BTreeSet<_> = (0..50).map(|seed| run(Mode::Lazy, seed)).collect();
    assert!(orders.len() > 30, "{}", orders.len());
    assert_eq!(run(Mode::Lazy, 9), run(Mode::Lazy, 9));
    assert_eq!(run(Mode::Adversarial, 1), [5, 4, 3, 2, 1, 0]);
}

#[test]
fn lazy_runs_nothing_early_and_adversarial_nothing_needless() {
    let w = World::strict(Mode::Lazy, 1);
    let (a, b, s, t) = (w.dev(8), w.dev(8), w.nb(), w.nb());
    w.memset_d8_async(a, 1, 8, s).unwrap();
    w.memset_d8_async(b, 2, 8, t).unwrap();
    assert_eq!(w.stat("executed"), Some(0));
    w.set_schedule(Mode::Adversarial, 1);
    w.stream_synchronize(s).unwrap();
    assert_eq!(w.stat("executed"), Some(1));
    assert_eq!((w.peek(a, 8).unwrap(), w.peek(b, 8).unwrap()), (vec![1; 8], vec![0xCD; 8]));
    // A wait needs the work that its streams wait for, too.
    w.order(t, s);
    w.stream_synchronize(s).unwrap();
    assert_eq!(w.peek(b, 8).unwrap(), [2; 8]);
}

#[test]
fn polling_gets_there() {
    for mode in MODES {
        for seed in 0..20 {
            let w = World::strict(mode, seed);
            let (a, s, e) = (w.dev(8), w.nb(), w.event());
            for i in 0..5 {
                w.memset_d8_async(a, i, 8, s).unwrap();
            }
            w.event_record(e, s).unwrap();
            let mut tries = 0;
            while w.event_query(e) == Err(Code::NOT_READY) {
                tries += 1;
                assert!(tries < 1_000_000, "{mode:?} {seed}");
            }
            // A query that says ready is as good as a wait.
            w.mem_free(a).unwrap();
            while w.stream_query(s) == Err(Code::NOT_READY) {}
        }
    }
}

#[test]
fn a_destroyed_stream_finishes_its_work() {
    for mode in MODES {
        let w = World::strict(mode, 3);
        let (a, s) = (w.dev(8), w.nb());
        w.memset_d8_async(a, 4, 8, s).unwrap();
        w.stream_destroy(s).unwrap();
        w.ctx_synchronize().unwrap();
        assert_eq!(w.peek(a, 8).unwrap(), [4; 8]);
        w.mem_free(a).unwrap();
    }
}

/// Nobody can wait for the stream any more, but a wait for the whole context includes it.
#[test]
fn a_context_is_waited_for_with_streams_that_are_no_more() {
    let w = World::strict(Mode::Threads { workers: 2, delay_us: 0 }, 3);
    let (a, s) = (w.dev(8), w.nb());
    w.memset_d8_async(a, 4, 8, s).unwrap();
    w.stream_destroy(s).unwrap();
    while w.stat("executed") < w.stat("submitted") {
        std::thread::yield_now();
    }
    w.ctx_synchronize().unwrap();
    w.mem_free(a).unwrap();
}

/// The legacy stream waits for a blocking stream that is destroyed, whether or not the work of that stream is done by then.
#[test]
fn the_legacy_stream_comes_after_blocking_streams_that_are_no_more() {
    for done_before in [false, true] {
        let w = World::strict(Mode::Lazy, 3);
        let (a, b, s, late) = (w.dev(8), w.dev(8), w.blocking(), w.nb());
        w.memset_d8_async(a, 4, 8, s).unwrap();
        if done_before {
            w.quiesce();
        }
        w.stream_destroy(s).unwrap();
        w.memcpy_dtod_async(b, a, 8, LEGACY).unwrap();
        // And so does what comes after the legacy stream.
        w.order(LEGACY, late);
        w.memset_d8_async(a, 5, 8, late).unwrap();
        w.stream_synchronize(late).unwrap();
        assert_eq!(w.peek(b, 8).unwrap(), [4; 8]);
    }
}

#[test]
fn what_streams_say_about_themselves() {
    let w = World::strict(Mode::Lazy, 1);
    let (s, t) = (w.nb(), w.stream_create_with_priority(0, -99).unwrap());
    assert_eq!((w.stream_flags(s), w.stream_flags(t), w.stream_flags(LEGACY)), (Ok(1), Ok(0), Ok(0)));
    assert_eq!((w.stream_priority(s), w.stream_priority(t)), (Ok(0), Ok(-5)));
    assert_eq!(w.ctx_stream_priority_range(), Ok((0, -5)));
    assert_eq!((w.stream_ctx(s), w.stream_ctx(0), w.stream_device(PER_THREAD)), (Ok(w.ctx), Ok(w.ctx), Ok(0)));
    assert_ne!(w.stream_id(s).unwrap(), w.stream_id(t).unwrap());
    assert_eq!(w.stream_create(2), Err(Code::INVALID_VALUE));
    assert_eq!(w.stream_destroy(LEGACY), Err(Code::INVALID_HANDLE));
    w.ctx_set_current(0).unwrap();
    assert_eq!(w.stream_synchronize(LEGACY), Err(Code::INVALID_CONTEXT));
    assert_eq!(w.stream_create(0), Err(Code::INVALID_CONTEXT));
    // An explicit handle needs no current context.
    w.stream_synchronize(s).unwrap();
    w.stream_destroy(s).unwrap();
}

#[test]
fn many_threads_at_once() {
    for mode in MODES {
        let w = World::strict(mode, 11);
        let count = Arc::new(AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    w.ctx_set_current(w.ctx).unwrap();
                    let (a, s) = (w.dev(64), w.nb());
                    for _ in 0..50 {
                        w.memset_d8_async(a, 1, 64, s).unwrap();
                        let count = Arc::clone(&count);
                        w.launch_host_func(s, move || _ = count.fetch_add(1, Ordering::Relaxed)).unwrap();
                        w.stream_synchronize(s).unwrap();
                    }
                    w.mem_free(a).unwrap();
                    w.stream_destroy(s).unwrap();
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 200);
    }
}

/// A client that waits outside the driver for its own host function is not left hanging.
#[test]
fn an_idle_driver_goes_on_when_asked_to() {
    for mode in [Mode::Lazy, Mode::Adversarial] {
        let w = World::with(Config { idle_ms: 1, ..Config::new(mode, 1) });
        let (s, (tx, rx)) = (w.nb(), std::sync::mpsc::channel());
        w.launch_host_func(s, move || tx.send(5).unwrap()).unwrap();
        assert_eq!(rx.recv_timeout(std::time::Duration::from_secs(10)), Ok(5));
    }
}

/// Host functions run on a thread of the driver, so a client may hold a lock that they take.
#[test]
fn host_functions_run_on_another_thread() {
    for mode in MODES {
        for seed in 0..5 {
            let w = World::strict(mode, seed);
            let (s, t, lock) = (w.nb(), w.nb(), Arc::new(Mutex::new(None)));
            let (theirs, own) = (Arc::clone(&lock), std::thread::current().id());
            w.launch_host_func(s, move || *theirs.lock().unwrap() = Some(std::thread::current().id())).unwrap();
            let (a, held) = (w.dev(8), lock.lock().unwrap());
            w.memset_d8_async(a, 1, 8, t).unwrap();
            w.stream_synchronize(t).unwrap();
            let _ = w.stream_query(s);
            drop(held);
            w.stream_synchronize(s).unwrap();
            assert!(lock.lock().unwrap().is_some_and(|id| id != own));
        }
    }
}

#[test]
fn a_panicking_host_function_does_not_stop_its_stream() {
    let w = World::strict(Mode::Lazy, 1);
    let s = w.nb();
    w.launch_host_func(s, || panic!("as a test of panics")).unwrap();
    w.stream_synchronize(s).unwrap();
}

/// As drivers may do: the new stream is a different one, and the old one's remaining work is done.
#[test]
fn handles_of_destroyed_streams_are_given_again_when_asked_for() {
    for mode in MODES {
        let w = World::strict(mode, 1);
        w.reuse_streams(true);
        let (list, s) = (Arc::default(), w.nb());
        log(&w, &list, s, 1);
        w.stream_destroy(s).unwrap();
        assert_eq!(w.stream_query(s), Err(Code::INVALID_HANDLE));
        assert_eq!(w.take_findings().len(), 1);
        let again = w.nb();
        assert_eq!(again, s);
        log(&w, &list, again, 2);
        w.ctx_synchronize().unwrap();
        let mut all = list.lock().unwrap().clone();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
        w.stream_destroy(again).unwrap();
    }
}
