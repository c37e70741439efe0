//! Programs that give things back too early, twice or in the wrong way, or use them afterwards.

use crate::{exporter, programs};
use simcuda::{Addr, PoolProps};

programs! {
    freed_while_work_is_queued: FreeRace("cuMemsetD8Async", "cuMemFree_v2") |w, good| {
        let (a, s) = (w.dev(64), w.nb());
        w.memset_d8_async(a, 1, 64, s).unwrap();
        if good { w.stream_synchronize(s).unwrap() }
        w.mem_free(a).unwrap();
    }
    released_after_the_wrong_stream: FreeRace("cuMemcpyDtoDAsync_v2", "cuMemFree_v2") |w, good| {
        let (a, b, producer, consumer) = (w.dev(64), w.dev(64), w.nb(), w.nb());
        w.memset_d8_async(a, 1, 64, producer).unwrap();
        w.order(producer, consumer);
        w.memcpy_dtod_async(b, a, 64, consumer).unwrap();
        w.stream_synchronize(if good { consumer } else { producer }).unwrap();
        w.mem_free(a).unwrap();
    }
    released_after_an_event_recorded_too_early: FreeRace("cuMemsetD8Async", "cuMemFree_v2") |w, good| {
        let (a, s, e) = (w.dev(64), w.nb(), w.event());
        w.memset_d8_async(a, 1, 64, s).unwrap();
        w.event_record(e, s).unwrap();
        w.memset_d8_async(a, 2, 64, s).unwrap();
        if good { w.event_record(e, s).unwrap() }
        w.event_synchronize(e).unwrap();
        w.mem_free(a).unwrap();
    }
    freed_on_another_stream: FreeRace("cuMemsetD8Async", "cuMemFreeAsync") |w, good| {
        let (s, t) = (w.nb(), w.nb());
        let a = w.mem_alloc_async(64, s).unwrap();
        w.memset_d8_async(a, 1, 64, s).unwrap();
        if good { w.order(s, t) }
        w.mem_free_async(a, t).unwrap();
    }
    only_one_of_two_readers_waited_for: FreeRace("cuMemcpyDtoDAsync_v2", "cuMemFreeAsync") |w, good| {
        let (b, c, s, t, u) = (w.dev(64), w.dev(64), w.nb(), w.nb(), w.nb());
        let a = w.mem_alloc_async(64, s).unwrap();
        w.memset_d8_async(a, 7, 64, s).unwrap();
        w.order(s, t);
        w.order(s, u);
        w.memcpy_dtod_async(b, a, 64, t).unwrap();
        w.memcpy_dtod_async(c, a, 64, u).unwrap();
        w.order(u, s);
        if good {
            w.order(t, s);
        }
        w.mem_free_async(a, s).unwrap();
    }
    freed_by_host_while_pool_work_is_queued: FreeRace("cuMemsetD8Async", "cuMemFree_v2") |w, good| {
        let s = w.nb();
        let a = w.mem_alloc_async(64, s).unwrap();
        w.memset_d8_async(a, 1, 64, s).unwrap();
        if good { w.stream_synchronize(s).unwrap() }
        w.mem_free(a).unwrap();
    }
    pinned_freed_under_a_copy: FreeRace("cuMemcpyHtoDAsync_v2", "cuMemFreeHost") |w, good| {
        let (a, p, s) = (w.dev(64), w.pinned(64), w.nb());
        w.memcpy_htod_async(a, p, 64, s).unwrap();
        if good { w.stream_synchronize(s).unwrap() }
        w.mem_free_host(p).unwrap();
    }
    managed_freed_under_work: FreeRace("cuMemsetD8Async", "cuMemFree_v2") |w, good| {
        let (m, s) = (w.mem_alloc_managed(64, 1).unwrap(), w.nb());
        w.memset_d8_async(m, 1, 64, s).unwrap();
        if good { w.stream_synchronize(s).unwrap() }
        w.mem_free(m).unwrap();
    }
    unregistered_under_a_copy: FreeRace("cuMemcpyDtoHAsync_v2", "cuMemHostUnregister") |w, good| {
        let (a, s, mut own) = (w.dev(64), w.nb(), vec![0u8; 64]);
        let at = own.as_mut_ptr() as u64;
        // SAFETY: the vector outlives the registration, which ends below.
        w.mem_host_register(unsafe { Addr::any(at) }, 64, 0).unwrap();
        w.memcpy_dtoh_async(at, a, 64, s).unwrap();
        if good { w.stream_synchronize(s).unwrap() }
        w.mem_host_unregister(at).unwrap();
    }
    import_closed_under_work: FreeRace("cuMemsetD8Async", "cuIpcCloseMemHandle") |w, good| {
        let (_exporter, handle) = exporter();
        let (a, s) = (w.ipc_open_mem(handle, 1).unwrap(), w.nb());
        w.memset_d8_async(a, 1, 64, s).unwrap();
        if good { w.stream_synchronize(s).unwrap() }
        w.ipc_close_mem(a).unwrap();
    }
    import_used_after_closing: UseAfterFree("cuIpcCloseMemHandle", "cuMemsetD8Async") |w, good| {
        let (_exporter, handle) = exporter();
        let (a, s) = (w.ipc_open_mem(handle, 1).unwrap(), w.nb());
        if !good { w.ipc_close_mem(a).unwrap() }
        assert_eq!(w.memset_d8_async(a, 1, 64, s).is_ok(), good);
        w.stream_synchronize(s).unwrap();
        if good { w.ipc_close_mem(a).unwrap() }
    }
    used_after_free: UseAfterFree("cuMemFree_v2", "cuMemcpyDtoH_v2") |w, good| {
        let (a, mut out) = (w.dev(64), [0; 64]);
        if !good { w.mem_free(a).unwrap() }
        assert_eq!(w.download(&mut out, a).is_ok(), good);
        if good { w.mem_free(a).unwrap() }
    }
    used_after_free_in_the_middle: UseAfterFree("cuMemFree_v2", "cuMemsetD8Async") |w, good| {
        let (a, s) = (w.dev(4096 * 3), w.nb());
        if !good { w.mem_free(a).unwrap() }
        assert_eq!(w.memset_d8_async(a + 5000, 1, 8, s).is_ok(), good);
    }
    used_after_async_free_on_the_same_stream: UseAfterFree("cuMemFreeAsync", "cuMemsetD8Async") |w, good| {
        let s = w.nb();
        let a = w.mem_alloc_async(64, s).unwrap();
        if !good { w.mem_free_async(a, s).unwrap() }
        assert_eq!(w.memset_d8_async(a, 1, 64, s).is_ok(), good);
        if good { w.mem_free_async(a, s).unwrap() }
    }
    pinned_used_after_free: UseAfterFree("cuMemFreeHost", "cuMemcpyHtoDAsync_v2") |w, good| {
        let (a, p, s) = (w.dev(64), w.pinned(64), w.nb());
        if !good { w.mem_free_host(p).unwrap() }
        assert_eq!(w.memcpy_htod_async(a, p, 64, s).is_ok(), good);
    }
    freed_pinned_read_by_the_host: UseAfterFree("cuMemFreeHost", "simcuda_host_access") |w, good| {
        let p = w.pinned(64);
        if !good { w.mem_free_host(p).unwrap() }
        assert_eq!(w.host_read(p, 64).is_ok(), good);
    }
    memory_of_an_ended_context: UseAfterFree("cuCtxDestroy_v2", "cuMemsetD8Async") |w, good| {
        let s = w.nb();
        let other = w.ctx_create(0, 0).unwrap();
        let a = w.dev(64);
        if !good { w.ctx_destroy(other).unwrap() } else { w.ctx_pop().unwrap(); }
        assert_eq!(w.memset_d8_async(a, 1, 64, s).is_ok(), good);
        if good { w.ctx_destroy(other).unwrap() }
    }
    freed_twice: DoubleFree("cuMemFree_v2", "cuMemFree_v2") |w, good| {
        let (a, b) = (w.dev(64), w.dev(64));
        w.mem_free(a).unwrap();
        assert_eq!(w.mem_free(if good { b } else { a }).is_ok(), good);
    }
    freed_twice_in_stream_order: DoubleFree("cuMemFreeAsync", "cuMemFreeAsync") |w, good| {
        let s = w.nb();
        let (a, b) = (w.mem_alloc_async(64, s).unwrap(), w.mem_alloc_async(64, s).unwrap());
        w.mem_free_async(a, s).unwrap();
        assert_eq!(w.mem_free_async(if good { b } else { a }, s).is_ok(), good);
    }
    freed_by_host_and_stream: DoubleFree("cuMemFree_v2", "cuMemFreeAsync") |w, good| {
        let (a, b, s) = (w.dev(64), w.dev(64), w.nb());
        w.mem_free(a).unwrap();
        assert_eq!(w.mem_free_async(if good { b } else { a }, s).is_ok(), good);
    }
    pinned_freed_twice: DoubleFree("cuMemFreeHost", "cuMemFreeHost") |w, good| {
        let (p, q) = (w.pinned(64), w.pinned(64));
        w.mem_free_host(p).unwrap();
        assert_eq!(w.mem_free_host(if good { q } else { p }).is_ok(), good);
    }
    interior_pointer_freed: InvalidFree("", "cuMemFree_v2") |w, good| {
        let a = w.dev(100);
        assert_eq!(w.mem_free(if good { a } else { a + 8 }).is_ok(), good);
    }
    pinned_given_to_the_device_free: InvalidFree("", "cuMemFree_v2") |w, good| {
        let (a, p) = (w.dev(100), w.pinned(100));
        assert_eq!(w.mem_free(if good { a } else { p }).is_ok(), good);
    }
    device_given_to_the_host_free: InvalidFree("", "cuMemFreeHost") |w, good| {
        let (a, p) = (w.dev(100), w.pinned(100));
        assert_eq!(w.mem_free_host(if good { p } else { a }).is_ok(), good);
    }
    import_given_to_free: InvalidFree("", "cuMemFree_v2") |w, good| {
        let (_exporter, handle) = exporter();
        let a = w.ipc_open_mem(handle, 1).unwrap();
        if good { w.ipc_close_mem(a).unwrap() } else { w.mem_free(a).unwrap_err(); }
    }
    event_destroyed_too_early: StaleHandle("cuEventDestroy_v2", "cuStreamWaitEvent") |w, good| {
        let (s, t, e) = (w.nb(), w.nb(), w.event());
        w.event_record(e, s).unwrap();
        if !good { w.event_destroy(e).unwrap() }
        assert_eq!(w.stream_wait_event(t, e, 0).is_ok(), good);
        if good { w.event_destroy(e).unwrap() }
    }
    event_destroyed_twice: StaleHandle("cuEventDestroy_v2", "cuEventDestroy_v2") |w, good| {
        let (e, f) = (w.event(), w.event());
        w.event_destroy(e).unwrap();
        assert_eq!(w.event_destroy(if good { f } else { e }).is_ok(), good);
    }
    stream_used_after_destroying_it: StaleHandle("cuStreamDestroy_v2", "cuMemsetD8Async") |w, good| {
        let (a, s) = (w.dev(64), w.nb());
        if !good { w.stream_destroy(s).unwrap() }
        assert_eq!(w.memset_d8_async(a, 1, 64, s).is_ok(), good);
        if good { w.stream_destroy(s).unwrap() }
    }
    stream_destroyed_twice: StaleHandle("cuStreamDestroy_v2", "cuStreamDestroy_v2") |w, good| {
        let (s, t) = (w.nb(), w.nb());
        w.stream_destroy(s).unwrap();
        assert_eq!(w.stream_destroy(if good { t } else { s }).is_ok(), good);
    }
    stream_of_a_released_context: StaleHandle("cuDevicePrimaryCtxRelease_v2", "cuStreamSynchronize") |w, good| {
        let s = w.nb();
        if good { w.primary_retain(0).unwrap(); }
        w.primary_release(0).unwrap();
        assert_eq!(w.stream_synchronize(s).is_ok(), good);
    }
    event_of_an_ended_context: StaleHandle("cuCtxDestroy_v2", "cuEventQuery") |w, good| {
        let other = w.ctx_create(0, 1).unwrap();
        let e = w.event();
        if !good { w.ctx_destroy(other).unwrap() }
        assert_eq!(w.event_query(e).is_ok(), good);
        if good { w.ctx_destroy(other).unwrap() }
    }
    pool_used_after_destroying_it: StaleHandle("cuMemPoolDestroy", "cuMemAllocFromPoolAsync") |w, good| {
        let (pool, s) = (w.pool_create(PoolProps::default()).unwrap(), w.nb());
        if !good { w.pool_destroy(pool).unwrap() }
        assert_eq!(w.mem_alloc_from_pool(64, pool, s).is_ok(), good);
    }
}
