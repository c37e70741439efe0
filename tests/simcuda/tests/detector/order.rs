//! Programs whose order is wrong: accesses that nothing orders.

use crate::programs;
use simcuda::{Addr, HostOrder, LEGACY, PER_THREAD};
use std::sync::Arc;

programs! {
    event_left_out: Race("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2") |w, good| {
        let (a, b, s, t) = (w.dev(64), w.dev(64), w.nb(), w.nb());
        w.upload_async(a, &[1; 64], s).unwrap();
        if good { w.order(s, t) }
        w.memcpy_dtod_async(b, a, 64, t).unwrap();
    }
    recorded_before_the_work: Race("cuMemsetD8Async", "cuMemcpyDtoDAsync_v2") |w, good| {
        let (a, b, s, t, e) = (w.dev(64), w.dev(64), w.nb(), w.nb(), w.event());
        if !good { w.event_record(e, s).unwrap() }
        w.memset_d8_async(a, 7, 64, s).unwrap();
        if good { w.event_record(e, s).unwrap() }
        w.stream_wait_event(t, e, 0).unwrap();
        w.memcpy_dtod_async(b, a, 64, t).unwrap();
    }
    waited_before_recording: Race("cuMemsetD8Async", "cuMemsetD8Async") |w, good| {
        let (a, s, t, e) = (w.dev(64), w.nb(), w.nb(), w.event());
        w.memset_d8_async(a, 7, 64, s).unwrap();
        if good { w.event_record(e, s).unwrap() }
        w.stream_wait_event(t, e, 0).unwrap();
        if !good { w.event_record(e, s).unwrap() }
        w.memset_d8_async(a, 8, 64, t).unwrap();
    }
    waited_on_the_wrong_stream: Race("cuMemsetD8Async", "cuMemsetD8Async") |w, good| {
        let (a, s, t, u) = (w.dev(64), w.nb(), w.nb(), w.nb());
        w.memset_d8_async(a, 7, 64, s).unwrap();
        w.order(s, if good { t } else { u });
        w.memset_d8_async(a, 8, 64, t).unwrap();
    }
    event_recorded_again_elsewhere: Race("cuMemsetD8Async", "cuMemsetD8Async") |w, good| {
        let (a, s, t, u, e, f) = (w.dev(64), w.nb(), w.nb(), w.nb(), w.event(), w.event());
        w.memset_d8_async(a, 7, 64, s).unwrap();
        w.event_record(e, s).unwrap();
        w.event_record(if good { f } else { e }, u).unwrap();
        w.stream_wait_event(t, e, 0).unwrap();
        w.memset_d8_async(a, 8, 64, t).unwrap();
    }
    only_one_of_two_producers_waited_for: Race("cuMemsetD8Async", "cuMemcpyDtoDAsync_v2") |w, good| {
        let (a, b, s, t, u) = (w.dev(64), w.dev(64), w.nb(), w.nb(), w.nb());
        w.memset_d8_async(a, 7, 32, s).unwrap();
        w.memset_d8_async(a + 32, 7, 32, t).unwrap();
        w.order(s, u);
        if good { w.order(t, u) }
        w.memcpy_dtod_async(b, a, 64, u).unwrap();
    }
    buffer_refilled_under_its_reader: Race("cuMemcpyDtoDAsync_v2", "cuMemsetD8Async") |w, good| {
        let (a, b, s, t) = (w.dev(64), w.dev(64), w.nb(), w.nb());
        w.memset_d8_async(a, 7, 64, s).unwrap();
        w.order(s, t);
        w.memcpy_dtod_async(b, a, 64, t).unwrap();
        if good { w.order(t, s) }
        w.memset_d8_async(a, 8, 64, s).unwrap();
    }
    halves_that_overlap: Race("cuMemsetD8Async", "cuMemsetD8Async") |w, good| {
        let (a, s, t) = (w.dev(64), w.nb(), w.nb());
        w.memset_d8_async(a, 7, if good { 32 } else { 33 }, s).unwrap();
        w.memset_d8_async(a + 32, 8, 32, t).unwrap();
    }
    host_reads_too_early: Race("cuMemcpyDtoHAsync_v2", "simcuda_host_access") |w, good| {
        let (a, p, s) = (w.dev(64), w.pinned(64), w.nb());
        w.memset_d8_async(a, 7, 64, s).unwrap();
        w.memcpy_dtoh_async(p, a, 64, s).unwrap();
        if good { w.stream_synchronize(s).unwrap() }
        let data = w.host_read(p, 64).unwrap();
        if good { assert_eq!(data, [7; 64]) }
    }
    host_waits_for_the_wrong_stream: Race("cuMemcpyDtoHAsync_v2", "simcuda_host_access") |w, good| {
        let (a, p, s, t) = (w.dev(64), w.pinned(64), w.nb(), w.nb());
        w.memset_d8_async(a, 7, 64, s).unwrap();
        w.memcpy_dtoh_async(p, a, 64, s).unwrap();
        w.stream_synchronize(if good { s } else { t }).unwrap();
        w.host_read(p, 64).unwrap();
    }
    host_overwrites_a_pinned_source: Race("cuMemcpyHtoDAsync_v2", "simcuda_host_access") |w, good| {
        let (a, p, s, e) = (w.dev(64), w.pinned(64), w.nb(), w.event());
        w.memcpy_htod_async(a, p, 64, s).unwrap();
        w.event_record(e, s).unwrap();
        if good { w.event_synchronize(e).unwrap() }
        w.host_write(p, &[9; 64]).unwrap();
    }
    host_writes_managed_memory_in_use: Race("cuMemsetD8Async", "simcuda_host_access") |w, good| {
        let (m, s) = (w.mem_alloc_managed(64, 1).unwrap(), w.nb());
        w.memset_d8_async(m, 7, 64, s).unwrap();
        if good { w.ctx_synchronize().unwrap() }
        w.host_write(m, &[9; 64]).unwrap();
    }
    registered_memory_read_too_early: Race("cuMemcpyDtoHAsync_v2", "simcuda_host_access") |w, good| {
        let (a, s, mut own) = (w.dev(64), w.nb(), vec![0u8; 64]);
        let at = own.as_mut_ptr() as u64;
        // SAFETY: the vector outlives the registration, which ends below.
        w.mem_host_register(unsafe { Addr::any(at) }, 64, 0).unwrap();
        w.memcpy_dtoh_async(at, a, 64, s).unwrap();
        if good { w.stream_synchronize(s).unwrap() }
        w.host_access(at, 64, false).unwrap();
        w.stream_synchronize(s).unwrap();
        w.mem_host_unregister(at).unwrap();
    }
    host_function_beside_the_copy: Race("cuMemcpyDtoHAsync_v2", "") |w, good| {
        let (a, p, s, t) = (w.dev(64), w.pinned(64), w.nb(), w.nb());
        w.memcpy_dtoh_async(p, a, 64, s).unwrap();
        if good { w.order(s, t) }
        let own = Arc::clone(w);
        w.launch_host_func(t, move || { own.host_access(p, 64, false).unwrap(); }).unwrap();
        w.stream_synchronize(t).unwrap();
    }
    non_blocking_then_legacy: Race("cuMemsetD8Async", "cuMemcpyDtoDAsync_v2") |w, good| {
        let (a, b, s) = (w.dev(64), w.dev(64), if good { w.blocking() } else { w.nb() });
        w.memset_d8_async(a, 7, 64, s).unwrap();
        w.memcpy_dtod_async(b, a, 64, LEGACY).unwrap();
    }
    legacy_then_non_blocking: Race("cuMemsetD8Async", "cuMemcpyDtoDAsync_v2") |w, good| {
        let (a, b, s) = (w.dev(64), w.dev(64), if good { w.blocking() } else { w.nb() });
        w.memset_d8_async(a, 7, 64, 0).unwrap();
        w.memcpy_dtod_async(b, a, 64, s).unwrap();
    }
    blocking_streams_are_not_ordered: Race("cuMemsetD8Async", "cuMemsetD8Async") |w, good| {
        let (a, c, s, t) = (w.dev(64), w.dev(64), w.blocking(), w.blocking());
        w.memset_d8_async(a, 7, 64, s).unwrap();
        // Any work on the legacy stream comes between.
        if good { w.memset_d8_async(c, 1, 64, LEGACY).unwrap() }
        w.memset_d8_async(a, 8, 64, t).unwrap();
    }
    legacy_stream_of_another_context: Race("cuMemsetD8Async", "cuMemsetD8Async") |w, good| {
        let a = w.dev(64);
        w.memset_d8_async(a, 7, 64, LEGACY).unwrap();
        let other = w.ctx_create(0, 0).unwrap();
        if good { w.ctx_pop().unwrap(); }
        w.memset_d8_async(a, 8, 64, LEGACY).unwrap();
        if good { w.ctx_push(other).unwrap() }
        w.ctx_pop().unwrap();
    }
    per_thread_streams_differ: Race("cuMemsetD8Async", "cuMemsetD8Async") |w, good| {
        let (a, s) = (w.dev(64), w.nb());
        let there = if good { s } else { PER_THREAD };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                w.ctx_set_current(w.ctx).unwrap();
                w.memset_d8_async(a, 7, 64, there).unwrap();
            });
        });
        w.memset_d8_async(a, 8, 64, there).unwrap();
    }
    staged_upload_taken_for_finished: Race("cuMemcpyHtoD_v2", "cuMemcpyDtoDAsync_v2") |w, good| {
        let (a, b, s) = (w.dev(64), w.dev(64), w.nb());
        w.upload(a, &[3; 64]).unwrap();
        if good { w.stream_synchronize(LEGACY).unwrap() }
        w.memcpy_dtod_async(b, a, 64, s).unwrap();
    }
    device_copy_taken_for_synchronous: Race("cuMemcpyDtoD_v2", "cuMemsetD8Async") |w, good| {
        let (a, b, s) = (w.dev(64), w.dev(64), w.nb());
        w.memcpy_dtod(b, a, 64, LEGACY).unwrap();
        if good { w.order(LEGACY, s) }
        w.memset_d8_async(b, 1, 64, s).unwrap();
    }
    memset_taken_for_synchronous: Race("cuMemsetD8_v2", "cuMemcpyDtoDAsync_v2") |w, good| {
        let (a, b, s) = (w.dev(64), w.dev(64), w.nb());
        w.memset_d8(a, 3, 64, LEGACY).unwrap();
        if good { w.ctx_synchronize().unwrap() }
        w.memcpy_dtod_async(b, a, 64, s).unwrap();
    }
    pool_memory_used_before_it_is_there: Race("cuMemAllocAsync", "cuMemsetD8Async") |w, good| {
        let (s, t) = (w.nb(), w.nb());
        let a = w.mem_alloc_async(64, s).unwrap();
        if good { w.order(s, t) }
        w.memset_d8_async(a, 1, 64, t).unwrap();
    }
    peer_copy_unordered: Race("cuMemcpyPeerAsync", "cuMemsetD8Async") |w, good| {
        let other = w.primary_retain(1).unwrap();
        let (a, s) = (w.dev(64), w.nb());
        w.ctx_push(other).unwrap();
        let (b, t) = (w.dev(64), w.nb());
        w.memcpy_peer_async(b, other, a, w.ctx, 64, s).unwrap();
        if good {
            w.ctx_pop().unwrap();
            w.order(s, t);
            w.ctx_push(other).unwrap();
        }
        w.memset_d8_async(b, 1, 64, t).unwrap();
        w.ctx_pop().unwrap();
    }
    threads_with_no_edge: Race("cuMemAlloc_v2", "cuMemsetD8Async") |w, good| {
        w.set_host_order(HostOrder::Annotated);
        let (a, s) = (w.dev(64), w.nb());
        if good { w.annotate_release(1) }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if good { w.annotate_acquire(1) }
                w.memset_d8_async(a, 7, 64, s).unwrap();
            });
        });
    }
}
