//! Programs that break rules other than order and lifetime.

use crate::programs;
use simcuda::{LEGACY, PoolProps};
use std::sync::Arc;

programs! {
    copy_one_byte_too_long: OutOfBounds("", "cuMemcpyDtoDAsync_v2") |w, good| {
        let (a, b, s) = (w.dev(100), w.dev(100), w.nb());
        assert_eq!(w.memcpy_dtod_async(b, a, if good { 100 } else { 101 }, s).is_ok(), good);
    }
    fill_that_starts_inside_and_ends_outside: OutOfBounds("", "cuMemsetD8Async") |w, good| {
        let (a, s) = (w.dev(100), w.nb());
        assert_eq!(w.memset_d8_async(a + 90, 1, if good { 10 } else { 11 }, s).is_ok(), good);
    }
    address_one_past_the_end: OutOfBounds("", "cuMemcpyDtoH_v2") |w, good| {
        let (a, mut out) = (w.dev(100), [0; 1]);
        assert_eq!(w.download(&mut out, a + if good { 99 } else { 100 }).is_ok(), good);
    }
    negative_offset: OutOfBounds("", "cuMemsetD8Async") |w, good| {
        let (a, s) = (w.dev(100), w.nb());
        assert_eq!(w.memset_d8_async(if good { a } else { a - 1 }, 1, 2, s).is_ok(), good);
    }
    handle_of_nothing: InvalidHandle("", "cuStreamSynchronize") |w, good| {
        let s = w.nb();
        assert_eq!(w.stream_synchronize(if good { s } else { 0xdead_beef }).is_ok(), good);
    }
    event_taken_for_a_stream: InvalidHandle("", "cuMemsetD8Async") |w, good| {
        let (a, s, e) = (w.dev(64), w.nb(), w.event());
        assert_eq!(w.memset_d8_async(a, 1, 64, if good { s } else { e }).is_ok(), good);
    }
    event_of_another_context_recorded: WrongContext("", "cuEventRecord") |w, good| {
        let s = w.nb();
        let other = w.ctx_create(0, 1).unwrap();
        if good { w.ctx_pop().unwrap(); }
        let e = w.event();
        assert_eq!(w.event_record(e, s).is_ok(), good);
        if good { w.ctx_push(other).unwrap() }
        w.ctx_destroy(other).unwrap();
    }
    default_stream_of_the_wrong_context_recorded: WrongContext("", "cuEventRecord") |w, good| {
        let e = w.event();
        let other = w.ctx_create(0, 1).unwrap();
        if good { w.ctx_set_current(w.ctx).unwrap() }
        assert_eq!(w.event_record(e, LEGACY).is_ok(), good);
        w.ctx_destroy(other).unwrap();
    }
    popped_too_often: ContextImbalance("", "cuCtxPopCurrent_v2") |w, good| {
        w.ctx_push(w.ctx).unwrap();
        w.ctx_pop().unwrap();
        w.ctx_pop().unwrap();
        if good { w.ctx_push(w.ctx).unwrap() }
        assert_eq!(w.ctx_pop().is_ok(), good);
    }
    primary_released_too_often: ContextImbalance("", "cuDevicePrimaryCtxRelease_v2") |w, good| {
        if good { w.primary_retain(0).unwrap(); }
        w.primary_release(0).unwrap();
        assert_eq!(w.primary_release(0).is_ok(), good);
    }
    primary_destroyed: ContextImbalance("", "cuCtxDestroy_v2") |w, good| {
        let own = w.ctx_create(0, 0).unwrap();
        assert_eq!(w.ctx_destroy(if good { own } else { w.ctx }).is_ok(), good);
    }
    peer_memory_without_permission: PeerAccess("", "cuMemsetD8Async") |w, good| {
        let s = w.nb();
        let other = w.primary_retain(1).unwrap();
        w.ctx_push(other).unwrap();
        let b = w.dev(64);
        w.ctx_pop().unwrap();
        if good { w.ctx_enable_peer(other, 0).unwrap() }
        assert_eq!(w.memset_d8_async(b, 1, 64, s).is_ok(), good);
    }
    pool_memory_without_permission: PeerAccess("", "cuMemsetD8Async") |w, good| {
        let s = w.nb();
        let pool = w.pool_create(PoolProps { device: 1, ..PoolProps::default() }).unwrap();
        if good { w.pool_set_access(pool, &[(0, 3)]).unwrap() }
        let b = w.mem_alloc_from_pool(64, pool, s).unwrap();
        assert_eq!(w.memset_d8_async(b, 1, 64, s).is_ok(), good);
    }
    bytes_that_nobody_wrote: UninitRead("", "cuMemcpyDtoH_v2") |w, good| {
        let (a, mut out) = (w.dev(64), [0; 64]);
        w.memset_d8(a, 1, if good { 64 } else { 63 }, LEGACY).unwrap();
        w.download(&mut out, a).unwrap();
    }
    driver_called_in_a_host_function: CallInCallback("", "cuEventQuery") |w, good| {
        let (s, e, own) = (w.nb(), w.event(), Arc::clone(w));
        w.launch_host_func(s, move || if !good { own.event_query(e).unwrap_err(); }).unwrap();
        w.stream_synchronize(s).unwrap();
    }
    driver_called_in_a_callback: CallInCallback("", "cuMemFree_v2") |w, good| {
        let (s, a, own) = (w.nb(), w.dev(64), Arc::clone(w));
        w.stream_add_callback(s, 0, move || if !good { own.mem_free(a).unwrap_err(); }).unwrap();
        w.stream_synchronize(s).unwrap();
        w.mem_free(a).unwrap();
    }
    synchronised_while_capturing: CaptureViolation("", "cuStreamSynchronize") |w, good| {
        let s = w.nb();
        w.stream_begin_capture(s, 2).unwrap();
        if !good { w.stream_synchronize(s).unwrap_err(); }
        assert_eq!(w.stream_end_capture(s).is_ok(), good);
    }
    allocated_while_capturing: CaptureViolation("", "cuMemAlloc_v2") |w, good| {
        let s = w.nb();
        w.stream_begin_capture(s, if good { 2 } else { 0 }).unwrap();
        assert_eq!(w.mem_alloc(64).is_ok(), good);
        assert_eq!(w.stream_end_capture(s).is_ok(), good);
    }
    event_asked_while_another_thread_captures: CaptureViolation("", "cuEventQuery") |w, good| {
        let (s, e) = (w.nb(), w.event());
        w.stream_begin_capture(s, if good { 1 } else { 0 }).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(w.event_query(e).is_ok(), good));
        });
        assert_eq!(w.stream_end_capture(s).is_ok(), good);
    }
    legacy_stream_while_capturing: CaptureViolation("", "cuMemsetD8Async") |w, good| {
        let (a, s) = (w.dev(64), if good { w.nb() } else { w.blocking() });
        w.stream_begin_capture(s, 2).unwrap();
        assert_eq!(w.memset_d8_async(a, 1, 64, LEGACY).is_ok(), good);
        assert_eq!(w.stream_end_capture(s).is_ok(), good);
    }
    capture_not_joined: CaptureViolation("", "cuStreamEndCapture") |w, good| {
        let (a, s, t) = (w.dev(64), w.nb(), w.nb());
        w.stream_begin_capture(s, 2).unwrap();
        w.order(s, t);
        w.memset_d8_async(a, 1, 64, t).unwrap();
        if good { w.order(t, s) }
        assert_eq!(w.stream_end_capture(s).is_ok(), good);
    }
    capture_waits_for_outside_work: CaptureViolation("", "cuStreamWaitEvent") |w, good| {
        let (s, t, e) = (w.nb(), w.nb(), w.event());
        w.event_record(e, t).unwrap();
        if good { w.stream_wait_event(s, e, 0).unwrap() }
        w.stream_begin_capture(s, 2).unwrap();
        if !good { w.stream_wait_event(s, e, 0).unwrap_err(); }
        assert_eq!(w.stream_end_capture(s).is_ok(), good);
    }
}
