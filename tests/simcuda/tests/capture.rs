//! Stream capture: states and the 900 codes. The violations themselves are in `detector`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that unwraps fails as it should")]

mod world;

use simcuda::{CaptureStatus, Code, LEGACY, Mode, PoolProps};
use world::World;

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

#[test]
fn captured_work_is_counted_and_not_run() {
    let w = World::strict(Mode::Lazy, 1);
    let (a, s, t) = (w.dev(8), w.nb(), w.nb());
    w.stream_begin_capture(s, GLOBAL).unwrap();
    assert_eq!(w.stream_is_capturing(s), Ok(CaptureStatus::Active));
    w.memset_d8_async(a, 1, 8, s).unwrap();
    w.order(s, t);
    let (status, id) = w.stream_capture_info(t).unwrap();
    assert_eq!((status, id), (CaptureStatus::Active, w.stream_capture_info(s).unwrap().1));
    w.memset_d8_async(a, 2, 8, t).unwrap();
    w.order(t, s);
    let graph = w.stream_end_capture(s).unwrap();
    assert_eq!(w.graph_nodes(graph), Ok(2));
    assert_eq!(w.stream_is_capturing(t), Ok(CaptureStatus::None));
    w.ctx_synchronize().unwrap();
    assert_eq!((w.peek(a, 8).unwrap(), w.stat("submitted")), (vec![0xCD; 8], Some(0)));
    w.graph_destroy(graph).unwrap();
    w.mem_free(a).unwrap();
}

#[test]
fn a_violation_invalidates_and_the_end_says_so() {
    let w = World::lenient(1);
    let (a, s, e) = (w.dev(8), w.nb(), w.event());
    type Breaks = fn(&World, u64, u64, u64) -> Code;
    let broken: [Breaks; 13] = [
        |w, s, _, _| w.stream_synchronize(s).unwrap_err(),
        |w, s, _, _| w.stream_query(s).unwrap_err(),
        |w, _, _, _| w.ctx_synchronize().unwrap_err(),
        |w, _, _, _| w.mem_alloc(8).unwrap_err(),
        |w, _, _, a| w.mem_free(a).unwrap_err(),
        |w, _, e, _| w.event_synchronize(e).unwrap_err(),
        |w, s, _, _| w.stream_add_callback(s, 0, || ()).unwrap_err(),
        |w, s, _, _| w.stream_device(s).unwrap_err(),
        |w, _, _, _| w.pool_attribute(w.default_pool(0).unwrap(), 4).unwrap_err(),
        |w, _, _, _| w.pool_set_attribute(w.default_pool(0).unwrap(), 4, 0).unwrap_err(),
        |w, _, _, _| w.pool_create(PoolProps::default()).unwrap_err(),
        |w, _, _, _| w.pool_trim(w.default_pool(0).unwrap(), 0).unwrap_err(),
        |w, _, _, _| w.primary_retain(1).unwrap_err(),
    ];
    for (n, breaks) in broken.into_iter().enumerate() {
        w.stream_begin_capture(s, GLOBAL).unwrap();
        assert_eq!(breaks(&w, s, e, a), Code::CAPTURE_UNSUPPORTED, "{n}");
        assert_eq!(w.stream_is_capturing(s), Ok(CaptureStatus::Invalidated), "{n}");
        assert_eq!(w.memset_d8_async(a, 1, 8, s), Err(Code::CAPTURE_INVALIDATED), "{n}");
        assert_eq!(w.stream_end_capture(s), Err(Code::CAPTURE_INVALIDATED), "{n}");
        assert_eq!(w.stream_is_capturing(s), Ok(CaptureStatus::None), "{n}");
        assert_eq!(w.take_findings().len(), 1, "{n}");
    }
}

#[test]
fn a_capture_frees_only_its_own_memory() {
    let w = World::lenient(1);
    let s = w.nb();
    let before = w.mem_alloc_async(8, s).unwrap();
    w.stream_begin_capture(s, RELAXED).unwrap();
    let own = w.mem_alloc_async(8, s).unwrap();
    w.mem_free_async(own, s).unwrap();
    assert_eq!(w.stream_is_capturing(s), Ok(CaptureStatus::Active));
    assert_eq!(w.mem_free_async(before, s), Err(Code::INVALID_VALUE));
    assert_eq!((w.stream_end_capture(s), w.take_findings().len()), (Err(Code::CAPTURE_INVALIDATED), 1));
    w.mem_free_async(before, s).unwrap();
    w.stream_synchronize(s).unwrap();
}

#[test]
fn modes_name_the_threads_that_must_be_careful() {
    for (mode, mine, other) in [(GLOBAL, false, false), (THREAD_LOCAL, false, true), (RELAXED, true, true)] {
        for here in [true, false] {
            let w = World::lenient(1);
            let s = w.nb();
            w.stream_begin_capture(s, mode).unwrap();
            let allowed = if here {
                w.mem_alloc(8).is_ok()
            } else {
                std::thread::scope(|scope| {
                    let there = || {
                        w.ctx_set_current(w.ctx).unwrap();
                        w.mem_alloc(8).is_ok()
                    };
                    scope.spawn(there).join().unwrap()
                })
            };
            assert_eq!(allowed, if here { mine } else { other }, "mode {mode}, own thread {here}");
            assert_eq!(w.stream_end_capture(s).is_ok(), allowed);
        }
    }
    let w = World::strict(Mode::Lazy, 1);
    let s = w.nb();
    assert_eq!(w.exchange_capture_mode(RELAXED), Ok(GLOBAL));
    w.stream_begin_capture(s, GLOBAL).unwrap();
    w.mem_alloc(8).unwrap();
    w.stream_end_capture(s).unwrap();
    assert_eq!(w.exchange_capture_mode(7), Err(Code::INVALID_VALUE));
}

#[test]
fn codes() {
    let w = World::lenient(1);
    let (a, s, t, b, e) = (w.dev(8), w.nb(), w.nb(), w.blocking(), w.event());
    assert_eq!(w.stream_begin_capture(LEGACY, GLOBAL), Err(Code::CAPTURE_UNSUPPORTED));
    assert_eq!(w.stream_begin_capture(s, 3), Err(Code::INVALID_VALUE));
    assert_eq!(w.stream_end_capture(s), Err(Code::INVALID_VALUE));
    // The legacy stream while a blocking stream captures.
    w.stream_begin_capture(b, RELAXED).unwrap();
    assert_eq!(w.stream_is_capturing(LEGACY), Err(Code::CAPTURE_IMPLICIT));
    assert_eq!(w.stream_capture_info(LEGACY), Err(Code::CAPTURE_IMPLICIT));
    assert_eq!((w.stream_is_capturing(b), w.take_findings().len()), (Ok(CaptureStatus::Active), 0));
    assert_eq!(w.memset_d8_async(a, 1, 8, LEGACY), Err(Code::CAPTURE_IMPLICIT));
    assert_eq!(w.stream_end_capture(b), Err(Code::CAPTURE_INVALIDATED));
    // Two captures do not merge.
    w.stream_begin_capture(s, RELAXED).unwrap();
    w.stream_begin_capture(t, RELAXED).unwrap();
    assert_eq!(w.stream_begin_capture(t, RELAXED), Err(Code::INVALID_VALUE));
    w.event_record(e, s).unwrap();
    assert_eq!(w.event_query(e), Err(Code::CAPTURED_EVENT));
    assert_eq!(w.stream_wait_event(t, e, 0), Err(Code::CAPTURE_MERGE));
    assert_eq!(w.stream_end_capture(s), Err(Code::CAPTURE_INVALIDATED));
    assert_eq!(w.stream_end_capture(t), Err(Code::CAPTURE_INVALIDATED));
    // The wrong stream, and the wrong thread.
    w.stream_begin_capture(s, THREAD_LOCAL).unwrap();
    w.order(s, t);
    assert_eq!(w.stream_end_capture(t), Err(Code::CAPTURE_UNMATCHED));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(w.stream_end_capture(s), Err(Code::CAPTURE_WRONG_THREAD)));
    });
    assert_eq!(w.stream_end_capture(s), Err(Code::CAPTURE_UNJOINED));
    // Work outside the capture, with and without the external flag.
    w.event_record(e, t).unwrap();
    w.stream_begin_capture(s, RELAXED).unwrap();
    w.stream_wait_event(s, e, simcuda::EVENT_EXTERNAL).unwrap();
    assert_eq!(w.stream_wait_event(s, e, 0), Err(Code::CAPTURE_ISOLATION));
    assert_eq!(w.stream_end_capture(s), Err(Code::CAPTURE_INVALIDATED));
    w.take_findings();
}
