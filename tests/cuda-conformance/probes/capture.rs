//! Stream capture: which calls it forbids, and what becomes of the capture.

use devexchange_tests::{cu, cu_ok, sim};

use crate::answer::{Answer, ILLEGAL_STATE, INVALID_VALUE, said, skipped};
use crate::probe::{Probe, probe};
use crate::scene::{LEGACY, N, alloc_async, blocking_stream, pageable, start};

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

const INTACT: &str = "success, the capture is intact";
const BROKEN: &str = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900), the capture is invalidated";
const IMPLICIT: &str = "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (906), the capture is intact";
const IMPLICIT_BROKEN: &str = "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (906), the capture is invalidated";
/// The call is refused, and the capture continues.
const REFUSED: &str = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900), the capture is intact";

pub(super) const PROBES: &[Probe] = &[
    probe("capture.synchronize", "`cuStreamSynchronize` of a stream that captures", BROKEN, || {
        during(|scene| cu!("cuStreamSynchronize", scene.capturing))
    }),
    probe("capture.query", "`cuStreamQuery` of a stream that captures", BROKEN, || {
        during(|scene| cu!("cuStreamQuery", scene.capturing))
    }),
    probe("capture.synchronize_other", "`cuStreamSynchronize` of another stream while one captures", BROKEN, || {
        during(|scene| cu!("cuStreamSynchronize", scene.other))
    }),
    probe("capture.query_other", "`cuStreamQuery` of another stream while one captures", BROKEN, || {
        during(|scene| cu!("cuStreamQuery", scene.other))
    }),
    probe("capture.context_synchronize", "`cuCtxSynchronize`", BROKEN, || during(|_| cu!("cuCtxSynchronize"))),
    probe("capture.alloc", "`cuMemAlloc`", BROKEN, || during(|_| alloc())),
    probe("capture.alloc_host", "`cuMemHostAlloc`", BROKEN, || {
        during(|_| {
            let mut address = 0_u64;
            cu!("cuMemHostAlloc", &raw mut address, N, 0)
        })
    }),
    probe("capture.alloc_managed", "`cuMemAllocManaged`", BROKEN, || {
        during(|_| {
            let mut address = 0_u64;
            cu!("cuMemAllocManaged", &raw mut address, N, 1)
        })
    }),
    probe("capture.free", "`cuMemFree`", BROKEN, || during(|scene| cu!("cuMemFree_v2", scene.memory))),
    probe("capture.alloc_async", "`cuMemAllocAsync` on the stream that captures", INTACT, || {
        during(|scene| {
            let mut address = 0_u64;
            cu!("cuMemAllocAsync", &raw mut address, N, scene.capturing)
        })
    }),
    probe("capture.alloc_async_other", "`cuMemAllocAsync` on another stream", INTACT, || {
        during(|scene| {
            let mut address = 0_u64;
            cu!("cuMemAllocAsync", &raw mut address, N, scene.other)
        })
    }),
    probe("capture.free_async_other", "`cuMemFreeAsync` on another stream", INTACT, || {
        let other = sim::stream();
        let address = alloc_async(other);
        during(move |_| cu!("cuMemFreeAsync", address, other))
    }),
    probe("capture.upload", "`cuMemcpyHtoD` from pageable memory", BROKEN, || {
        during(|scene| cu!("cuMemcpyHtoD_v2", scene.memory, scene.host, N))
    }),
    probe("capture.download", "`cuMemcpyDtoHAsync` to pageable memory on the stream that captures", BROKEN, || {
        during(|scene| cu!("cuMemcpyDtoHAsync_v2", scene.host, scene.memory, N, scene.capturing))
    })
    .or(&[INTACT]),
    probe("capture.download_other", "`cuMemcpyDtoHAsync` to pageable memory on another stream", INTACT, || {
        during(|scene| cu!("cuMemcpyDtoHAsync_v2", scene.host, scene.memory, N, scene.other))
    })
    .or(&[BROKEN]),
    probe("capture.fill", "`cuMemsetD8Async` on the stream that captures", INTACT, || {
        during(|scene| cu!("cuMemsetD8Async", scene.memory, 1, N, scene.capturing))
    }),
    probe("capture.fill_other", "`cuMemsetD8Async` on another stream", INTACT, || {
        during(|scene| cu!("cuMemsetD8Async", scene.memory, 1, N, scene.other))
    }),
    probe("capture.host_function", "`cuLaunchHostFunc` on the stream that captures", INTACT, || {
        extern "C" fn nothing(_: *mut std::ffi::c_void) {}
        let nothing: extern "C" fn(*mut std::ffi::c_void) = nothing;
        during(move |scene| cu!("cuLaunchHostFunc", scene.capturing, nothing as usize, 0))
    }),
    probe(
        "capture.is_capturing",
        "`cuStreamIsCapturing` of the stream that captures",
        "1, the capture is intact",
        || status(|scene| scene.capturing),
    ),
    probe("capture.is_capturing_other", "`cuStreamIsCapturing` of another stream", "0, the capture is intact", || {
        status(|scene| scene.other)
    }),
    probe(
        "capture.is_capturing_legacy",
        "`cuStreamIsCapturing` of the legacy default stream, while a non-blocking stream captures",
        "0, the capture is intact",
        || status(|_| LEGACY),
    ),
    probe("capture.info", "`cuStreamGetCaptureInfo` of the stream that captures", INTACT, || {
        during(|scene| info(scene.capturing))
    }),
    probe("capture.stream_context", "`cuStreamGetCtx` of the stream that captures", INTACT, || {
        during(|scene| context_of(scene.capturing))
    })
    .or(&[BROKEN, REFUSED]),
    probe("capture.stream_context_other", "`cuStreamGetCtx` of another stream", INTACT, || {
        during(|scene| context_of(scene.other))
    })
    .or(&[BROKEN, REFUSED]),
    // Source: github.com/NVIDIA/cccl, also for the answers about pools below.
    probe("capture.stream_device", "`cuStreamGetDevice` of the stream that captures", BROKEN, || {
        if !sim::cuda().has("cuStreamGetDevice") {
            return skipped("the driver is older than 12.8");
        }
        during(|scene| {
            let mut device = 0_i32;
            cu!("cuStreamGetDevice", scene.capturing, &raw mut device)
        })
    }),
    probe("capture.stream_id", "`cuStreamGetId` of the stream that captures", INTACT, || {
        if !sim::cuda().has("cuStreamGetId") {
            return skipped("the driver is older than 12.0");
        }
        during(|scene| {
            let mut id = 0_u64;
            cu!("cuStreamGetId", scene.capturing, &raw mut id)
        })
    })
    .or(&[BROKEN, REFUSED]),
    probe("capture.pool", "`cuDeviceGetDefaultMemPool`", INTACT, || {
        during(|_| {
            let mut pool = 0_u64;
            cu!("cuDeviceGetDefaultMemPool", &raw mut pool, 0)
        })
    }),
    probe("capture.pool_attribute", "`cuMemPoolGetAttribute`", BROKEN, || {
        during(|_| {
            let (mut pool, mut threshold) = (0_u64, 0_u64);
            cu_ok!("cuDeviceGetDefaultMemPool", &raw mut pool, 0);
            cu!("cuMemPoolGetAttribute", pool, 4, &raw mut threshold)
        })
    }),
    probe("capture.pool_set_attribute", "`cuMemPoolSetAttribute`", BROKEN, || {
        during(|_| {
            let (mut pool, mut threshold) = (0_u64, 0_u64);
            cu_ok!("cuDeviceGetDefaultMemPool", &raw mut pool, 0);
            cu!("cuMemPoolSetAttribute", pool, 4, &raw mut threshold)
        })
    }),
    probe("capture.memory_info", "`cuMemGetInfo`", BROKEN, || {
        during(|_| {
            let (mut free, mut total) = (0_u64, 0_u64);
            cu!("cuMemGetInfo_v2", &raw mut free, &raw mut total)
        })
    })
    .or(&[INTACT]),
    probe("capture.shared_event", "`cuEventCreate` of an event for other processes", BROKEN, || {
        during(|_| {
            let mut event = 0_u64;
            cu!("cuEventCreate", &raw mut event, 2 | 4)
        })
    })
    .or(&[INTACT]),
    probe("capture.memory_handle", "`cuIpcGetMemHandle`", BROKEN, || {
        let mut handle = [0_u8; 64];
        during(|scene| cu!("cuIpcGetMemHandle", handle.as_mut_ptr(), scene.memory))
    })
    .or(&[INTACT]),
    probe("capture.stream_flags", "`cuStreamGetFlags` of the stream that captures", INTACT, || {
        during(|scene| {
            let mut flags = 0_u32;
            cu!("cuStreamGetFlags", scene.capturing, &raw mut flags)
        })
    })
    .or(&[BROKEN, REFUSED]),
    probe("capture.current", "`cuCtxGetCurrent`", INTACT, || {
        during(|_| {
            let mut context = 0_u64;
            cu!("cuCtxGetCurrent", &raw mut context)
        })
    }),
    probe("capture.push_and_pop", "`cuCtxPushCurrent` and `cuCtxPopCurrent`", INTACT, || {
        during(|_| {
            let mut context = sim::current();
            cu!("cuCtxPushCurrent_v2", context) + cu!("cuCtxPopCurrent_v2", &raw mut context)
        })
    }),
    probe("capture.pointer", "`cuPointerGetAttributes`", INTACT, || {
        during(|scene| {
            let mut kind = 0_u32;
            let (attribute, place) = (2_u32, &raw mut kind);
            cu!("cuPointerGetAttributes", 1, &raw const attribute, &raw const place, scene.memory)
        })
    }),
    probe("capture.event_create", "`cuEventCreate`", INTACT, || {
        during(|_| {
            let mut event = 0_u64;
            cu!("cuEventCreate", &raw mut event, 2)
        })
    }),
    probe("capture.event_destroy", "`cuEventDestroy` of an event of work outside", INTACT, || {
        during(|scene| cu!("cuEventDestroy_v2", scene.outside))
    }),
    probe("capture.event_query", "`cuEventQuery` of an event of work outside", BROKEN, || {
        during(|scene| cu!("cuEventQuery", scene.outside))
    }),
    probe("capture.event_synchronize", "`cuEventSynchronize` of an event of work outside", BROKEN, || {
        during(|scene| cu!("cuEventSynchronize", scene.outside))
    }),
    probe("capture.event_record_other", "`cuEventRecord` on another stream", INTACT, || {
        during(|scene| cu!("cuEventRecord", scene.outside, scene.other))
    }),
    probe(
        "capture.wait_outside",
        "`cuStreamWaitEvent` of the stream that captures, for work outside",
        "CUDA_ERROR_STREAM_CAPTURE_ISOLATION (905), the capture is invalidated",
        || during(|scene| cu!("cuStreamWaitEvent", scene.capturing, scene.outside, 0)),
    ),
    // cudarc waits for such events.
    probe("capture.wait_unrecorded", "the same for an event that was never recorded", INTACT, || {
        let event = sim::event();
        during(move |scene| cu!("cuStreamWaitEvent", scene.capturing, event, 0))
    }),
    probe(
        "capture.event_captured",
        "`cuEventQuery` of an event that was captured",
        "CUDA_ERROR_CAPTURED_EVENT (907), the capture is intact",
        || {
            during(|scene| {
                cu_ok!("cuEventRecord", scene.outside, scene.capturing);
                cu!("cuEventQuery", scene.outside)
            })
        },
    )
    .or(&["CUDA_ERROR_CAPTURED_EVENT (907), the capture is invalidated", BROKEN]),
    // Source, also for the next one: reports about PyTorch (907) and cudarc (1), of events that graphs had left behind.
    probe(
        "capture.event_queried_after",
        "`cuEventQuery` of an event of a capture that has ended",
        "CUDA_ERROR_CAPTURED_EVENT (907)",
        || said(cu!("cuEventQuery", left_behind())),
    ),
    probe(
        "capture.event_waited_after",
        "`cuStreamWaitEvent` for an event of a capture that has ended",
        INVALID_VALUE,
        || said(cu!("cuStreamWaitEvent", sim::stream(), left_behind(), 0)),
    ),
    probe(
        "capture.event_destroyed",
        "`cuEventDestroy` of an event whose captured wait joined another stream",
        INTACT,
        || {
            during(|scene| {
                cu_ok!("cuEventRecord", scene.outside, scene.capturing);
                cu_ok!("cuStreamWaitEvent", scene.other, scene.outside, 0);
                let code = cu!("cuEventDestroy_v2", scene.outside);
                let back = sim::event();
                cu_ok!("cuEventRecord", back, scene.other);
                cu_ok!("cuStreamWaitEvent", scene.capturing, back, 0);
                code
            })
        },
    ),
    probe(
        "capture.not_joined",
        "`cuStreamEndCapture` while another stream is still part of it",
        "CUDA_ERROR_STREAM_CAPTURE_UNJOINED (904)",
        || {
            let (stream, other, event) = (sim::stream(), sim::stream(), sim::event());
            sim::begin_capture(stream, GLOBAL);
            cu_ok!("cuEventRecord", event, stream);
            cu_ok!("cuStreamWaitEvent", other, event, 0);
            said(sim::end_capture(stream))
        },
    ),
    probe("capture.stream_create", "`cuStreamCreate`", INTACT, || {
        during(|_| {
            let mut stream = 0_u64;
            cu!("cuStreamCreate", &raw mut stream, 1)
        })
    })
    .or(&[BROKEN]),
    probe("capture.stream_destroy_other", "`cuStreamDestroy` of another stream", INTACT, || {
        during(|scene| cu!("cuStreamDestroy_v2", scene.other))
    })
    .or(&[BROKEN]),
    probe(
        "capture.relaxed_thread",
        "`cuMemAlloc` on a thread that `cuThreadExchangeStreamCaptureMode` made relaxed",
        INTACT,
        || {
            during(|_| {
                let mut mode = RELAXED;
                cu_ok!("cuThreadExchangeStreamCaptureMode", &raw mut mode);
                let code = alloc();
                cu_ok!("cuThreadExchangeStreamCaptureMode", &raw mut mode);
                code
            })
        },
    ),
    probe("capture.relaxed", "`cuMemAlloc` while a stream captures in relaxed mode", INTACT, || {
        during_mode(sim::stream(), RELAXED, |_| alloc())
    }),
    probe("capture.thread_local", "`cuMemAlloc` while a stream captures in thread-local mode", BROKEN, || {
        during_mode(sim::stream(), THREAD_LOCAL, |_| alloc())
    }),
    probe("capture.thread_local_other", "the same on another thread", INTACT, || {
        during_mode(sim::stream(), THREAD_LOCAL, |_| on_another_thread(alloc))
    }),
    probe(
        "capture.global_other",
        "`cuMemAlloc` on another thread while a stream captures in global mode",
        BROKEN,
        || during(|_| on_another_thread(alloc)),
    ),
    probe(
        "capture.legacy_begin",
        "`cuStreamBeginCapture` of the legacy default stream",
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)",
        || said(cu!("cuStreamBeginCapture_v2", LEGACY, RELAXED)),
    ),
    probe("capture.begin_twice", "`cuStreamBeginCapture` twice", INVALID_VALUE, || {
        let stream = sim::stream();
        sim::begin_capture(stream, GLOBAL);
        said(cu!("cuStreamBeginCapture_v2", stream, GLOBAL))
    })
    .or(&[ILLEGAL_STATE]),
    probe("capture.end_of_none", "`cuStreamEndCapture` of a stream that does not capture", INVALID_VALUE, || {
        said(sim::end_capture(sim::stream()))
    })
    .or(&[ILLEGAL_STATE]),
    probe(
        "capture.end_elsewhere",
        "`cuStreamEndCapture` on another thread, in global mode",
        "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD (908)",
        || {
            let stream = sim::stream();
            sim::begin_capture(stream, GLOBAL);
            said(on_another_thread(move || sim::end_capture(stream)))
        },
    ),
    probe(
        "capture.after_broken",
        "`cuMemsetD8Async` on the stream of a capture that was invalidated",
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901), the capture is invalidated",
        || {
            during(|scene| {
                cu!("cuStreamSynchronize", scene.capturing);
                cu!("cuMemsetD8Async", scene.memory, 1, N, scene.capturing)
            })
        },
    ),
    probe(
        "capture.legacy_fill",
        "`cuMemsetD8Async` on the legacy default stream, while a blocking stream captures",
        IMPLICIT_BROKEN,
        || blocking(|scene| cu!("cuMemsetD8Async", scene.memory, 1, N, LEGACY)),
    ),
    probe("capture.legacy_record", "`cuEventRecord` there", IMPLICIT_BROKEN, || {
        blocking(|scene| cu!("cuEventRecord", scene.outside, LEGACY))
    }),
    probe("capture.legacy_query", "`cuStreamQuery` of it", IMPLICIT_BROKEN, || {
        blocking(|_| cu!("cuStreamQuery", LEGACY))
    }),
    probe("capture.legacy_is_capturing", "`cuStreamIsCapturing` of it", IMPLICIT, || {
        blocking(|_| {
            let mut status = 0_u32;
            cu!("cuStreamIsCapturing", LEGACY, &raw mut status)
        })
    }),
    probe("capture.legacy_info", "`cuStreamGetCaptureInfo` of it", IMPLICIT, || blocking(|_| info(LEGACY))),
];

/// An event that was last recorded in a capture, whose graph is destroyed.
fn left_behind() -> u64 {
    let (stream, event) = (sim::stream(), sim::event());
    sim::begin_capture(stream, GLOBAL);
    cu_ok!("cuEventRecord", event, stream);
    sim::end_capture(stream);
    event
}

/// A capturing stream, and what the questions use besides it.
struct Scene {
    capturing: u64,
    other: u64,
    memory: u64,
    host: *const u8,
    /// An event that was recorded outside of the capture.
    outside: u64,
}

/// The result of a call while a non-blocking stream captures in global mode, and the state of the capture afterwards.
fn during(act: impl FnOnce(&Scene) -> u32) -> Answer {
    during_mode(sim::stream(), GLOBAL, act)
}

/// Like [`during`], but with a blocking stream, in relaxed mode, so that only the rules of the legacy default stream apply.
fn blocking(act: impl FnOnce(&Scene) -> u32) -> Answer {
    during_mode(blocking_stream(), RELAXED, act)
}

fn during_mode(capturing: u64, mode: u32, act: impl FnOnce(&Scene) -> u32) -> Answer {
    with_scene(capturing, mode, |scene| said(act(scene)))
}

fn with_scene(capturing: u64, mode: u32, act: impl FnOnce(&Scene) -> Answer) -> Answer {
    let (memory, host) = (sim::alloc(N), pageable(4096).as_ptr());
    let scene = Scene { capturing, other: sim::stream(), memory, host, outside: sim::event() };
    cu_ok!("cuEventRecord", scene.outside, scene.other);
    sim::synchronize(scene.other);
    sim::begin_capture(capturing, mode);
    let answer = act(&scene);
    let left = match sim::end_capture(capturing) {
        0 => "intact".to_owned(),
        901 => "invalidated".to_owned(),
        code => format!("ended with {}", said(code)),
    };
    format!("{answer}, the capture is {left}")
}

fn status(of: impl FnOnce(&Scene) -> u64) -> Answer {
    with_scene(sim::stream(), GLOBAL, |scene| {
        let mut status = 9_u32;
        match cu!("cuStreamIsCapturing", of(scene), &raw mut status) {
            0 => status.to_string(),
            code => said(code),
        }
    })
}

fn info(stream: u64) -> u32 {
    let (mut status, mut id) = (0_u32, 0_u64);
    cu!("cuStreamGetCaptureInfo_v2", stream, &raw mut status, &raw mut id, 0, 0, 0)
}

fn context_of(stream: u64) -> u32 {
    let mut context = 0_u64;
    cu!("cuStreamGetCtx", stream, &raw mut context)
}

fn alloc() -> u32 {
    let mut address = 0_u64;
    cu!("cuMemAlloc_v2", &raw mut address, N)
}

fn on_another_thread(act: impl FnOnce() -> u32 + Send + 'static) -> u32 {
    let act = move || {
        start();
        act()
    };
    std::thread::spawn(act).join().expect("it returns")
}
