//! Events.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that unwraps fails as it should")]

mod world;

use simcuda::{Code, EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, LEGACY, Mode};
use world::{MODES, World};

#[test]
fn an_event_never_recorded_is_done_and_orders_nothing() {
    let w = World::strict(Mode::Lazy, 1);
    let (e, s) = (w.event(), w.nb());
    w.event_query(e).unwrap();
    w.event_synchronize(e).unwrap();
    w.stream_wait_event(s, e, 0).unwrap();
    assert_eq!(w.stat("submitted"), Some(0));
}

#[test]
fn a_wait_keeps_its_event_past_destruction_and_rerecording() {
    for mode in MODES {
        for seed in 0..20 {
            let w = World::strict(mode, seed);
            let (a, b, s, t, u, e) = (w.dev(8), w.dev(8), w.nb(), w.nb(), w.nb(), w.event());
            w.upload_async(a, &[1; 8], s).unwrap();
            w.event_record(e, s).unwrap();
            w.stream_wait_event(t, e, 0).unwrap();
            w.event_record(e, u).unwrap();
            w.event_destroy(e).unwrap();
            w.memcpy_dtod_async(b, a, 8, t).unwrap();
            w.stream_synchronize(t).unwrap();
            assert_eq!(w.peek(b, 8).unwrap(), [1; 8]);
            w.mem_free(a).unwrap();
        }
    }
}

#[test]
fn waiting_across_devices() {
    for mode in MODES {
        let w = World::strict(mode, 2);
        let (a, s, e) = (w.dev(8), w.nb(), w.event());
        w.upload_async(a, &[1; 8], s).unwrap();
        w.event_record(e, s).unwrap();
        let other = w.primary_retain(1).unwrap();
        w.ctx_push(other).unwrap();
        let (b, t) = (w.dev(8), w.nb());
        w.stream_wait_event(t, e, 0).unwrap();
        w.memcpy_peer_async(b, other, a, w.ctx, 8, t).unwrap();
        w.stream_synchronize(t).unwrap();
        assert_eq!(w.peek(b, 8).unwrap(), [1; 8]);
        w.ctx_pop().unwrap();
        w.mem_free(a).unwrap();
    }
}

#[test]
fn a_synchronous_peer_copy_is_serialised_with_both_contexts() {
    for mode in MODES {
        let w = World::strict(mode, 2);
        let other = w.primary_retain(1).unwrap();
        let a = w.dev(8);
        w.memset_d8(a, 3, 8, LEGACY).unwrap();
        w.ctx_push(other).unwrap();
        let (b, c) = (w.dev(8), w.dev(8));
        w.memset_d8(b, 1, 8, LEGACY).unwrap();
        w.memcpy_peer(b, other, a, w.ctx, 8).unwrap();
        w.memcpy_dtod(c, b, 8, LEGACY).unwrap();
        let mut out = [0; 8];
        w.download(&mut out, c).unwrap();
        assert_eq!(out, [3; 8]);
        w.ctx_pop().unwrap();
        w.memset_d8(a, 4, 8, LEGACY).unwrap();
    }
}

#[test]
fn times() {
    let w = World::strict(Mode::Lazy, 1);
    let (s, t) = (w.nb(), w.nb());
    let (e, f, plain) = (w.event_create(0).unwrap(), w.event_create(EVENT_BLOCKING_SYNC).unwrap(), w.event());
    assert_eq!(w.event_elapsed(e, f), Err(Code::INVALID_HANDLE));
    w.event_record(e, s).unwrap();
    w.event_record(f, t).unwrap();
    assert_eq!(w.event_elapsed(e, f), Err(Code::NOT_READY));
    w.event_record(plain, s).unwrap();
    w.ctx_synchronize().unwrap();
    assert!(w.event_elapsed(e, f).unwrap().abs() < 1e4);
    assert_eq!(w.event_elapsed(e, plain), Err(Code::INVALID_HANDLE));
    // Recorded again: the old time no longer counts.
    w.event_record(e, s).unwrap();
    assert_eq!(w.event_elapsed(e, f), Err(Code::NOT_READY));
}

#[test]
fn flags() {
    let w = World::strict(Mode::Lazy, 1);
    assert_eq!(w.event_create(8), Err(Code::INVALID_VALUE));
    assert_eq!(w.event_create(EVENT_INTERPROCESS), Err(Code::INVALID_VALUE));
    let (shared, s) = (w.event_create(EVENT_INTERPROCESS | EVENT_DISABLE_TIMING).unwrap(), w.nb());
    w.event_record_with_flags(shared, s, 0).unwrap();
    assert_eq!(w.event_record_with_flags(shared, s, 1), Err(Code::INVALID_VALUE));
    w.event_synchronize(shared).unwrap();
    assert_eq!(w.stream_wait_event(s, shared, 2), Err(Code::INVALID_VALUE));
}
