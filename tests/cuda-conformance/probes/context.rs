//! Contexts: which one is current, and what still works after a context was released or reset.

use devexchange_tests::{cu, cu_ok, sim};

use crate::answer::{
    Answer, CONTEXT_IS_DESTROYED, DEINITIALIZED, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE,
    SUCCESS, said, skipped,
};
use crate::probe::{Probe, probe};
use crate::scene::{N, devices, second_context};

const CRASH: &str = "crash (SIGSEGV)";
/// Answers that a real driver may give to a call with an object of a destroyed context.
const GONE: &[&str] = &[CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, DEINITIALIZED, CRASH];

pub(super) const PROBES: &[Probe] = &[
    probe("context.retained_twice", "`cuDevicePrimaryCtxRetain` twice", "the same", || {
        let mut again = 0_u64;
        cu_ok!("cuDevicePrimaryCtxRetain", &raw mut again, 0);
        if again == sim::primary(0) { "the same" } else { "not the same" }.into()
    }),
    probe(
        "context.state",
        "active by `cuDevicePrimaryCtxGetState` before, while and after it is retained",
        "0, 1, 0",
        || {
            cu_ok!("cuInit", 0);
            let before = state().1;
            let mut context = 0_u64;
            cu_ok!("cuDevicePrimaryCtxRetain", &raw mut context, 0);
            let while_retained = state().1;
            cu_ok!("cuDevicePrimaryCtxRelease_v2", 0);
            format!("{before}, {while_retained}, {}", state().1)
        },
    )
    .bare(),
    probe(
        "context.primary_flags",
        "`cuDevicePrimaryCtxSetFlags(BLOCKING_SYNC)` before it is retained",
        "success, flags kept",
        || {
            cu_ok!("cuInit", 0);
            let code = cu!("cuDevicePrimaryCtxSetFlags_v2", 0, 4);
            let kept = state().0 & 4 == 4;
            format!("{}, flags {}", said(code), if kept { "kept" } else { "lost" })
        },
    )
    .bare(),
    probe("context.flags", "`cuCtxGetFlags` of a context made with `BLOCKING_SYNC`", "success, flags kept", || {
        let (mut context, mut flags) = (0_u64, 0_u32);
        cu_ok!("cuCtxCreate_v2", &raw mut context, 4, 0);
        let code = cu!("cuCtxGetFlags", &raw mut flags);
        format!("{}, flags {}", said(code), if flags & 4 == 4 { "kept" } else { "lost" })
    }),
    probe("context.current_at_first", "`cuCtxGetCurrent` on a thread that set none", "none", || {
        let context = std::thread::spawn(sim::current).join().expect("it returns");
        if context == 0 { "none" } else { "one" }.into()
    }),
    probe("context.pop_too_many", "`cuCtxPopCurrent` where none is current", INVALID_CONTEXT, || {
        cu_ok!("cuInit", 0);
        let mut context = 0_u64;
        said(cu!("cuCtxPopCurrent_v2", &raw mut context))
    })
    .bare(),
    probe("context.set_none", "`cuCtxSetCurrent(NULL)` on top of another context", "the other one is current", || {
        let below = sim::current();
        cu_ok!("cuCtxPushCurrent_v2", second_context());
        sim::set_current(0);
        match sim::current() {
            0 => "none is current".into(),
            context if context == below => "the first one is current".into(),
            _ => "the other one is current".into(),
        }
    }),
    probe("context.destroy_primary", "`cuCtxDestroy` of a primary context", INVALID_CONTEXT, || {
        said(cu!("cuCtxDestroy_v2", sim::current()))
    })
    .or(&[INVALID_VALUE]),
    probe("context.bogus", "`cuCtxSetCurrent` of a number that is no context", INVALID_CONTEXT, || {
        said(cu!("cuCtxSetCurrent", 0x10))
    })
    .or(&[CRASH]),
    probe("context.peer_itself", "`cuCtxEnablePeerAccess` of the context itself", INVALID_DEVICE, || {
        said(cu!("cuCtxEnablePeerAccess", sim::current(), 0))
    })
    .or(&[INVALID_CONTEXT]),
    probe(
        "context.peer_twice",
        "`cuCtxEnablePeerAccess` twice",
        "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED (704)",
        || {
            if devices() < 2 {
                return skipped("one device only");
            }
            let other = sim::primary(1);
            sim::set_current(sim::primary(0));
            match cu!("cuCtxEnablePeerAccess", other, 0) {
                0 => said(cu!("cuCtxEnablePeerAccess", other, 0)),
                217 => skipped("the devices are no peers"),
                code => said(code),
            }
        },
    ),
    probe("context.none_alloc", "`cuMemAlloc` where none is current", INVALID_CONTEXT, || {
        without(|_, _| {
            let mut address = 0_u64;
            cu!("cuMemAlloc_v2", &raw mut address, N)
        })
    }),
    probe(
        "context.none_legacy",
        "`cuStreamSynchronize` of the legacy default stream where none is current",
        INVALID_CONTEXT,
        || without(|_, _| cu!("cuStreamSynchronize", 1)),
    ),
    probe("context.none_stream", "`cuStreamSynchronize` of a stream where none is current", SUCCESS, || {
        without(|stream, _| cu!("cuStreamSynchronize", stream))
    }),
    probe("context.none_stream_context", "`cuStreamGetCtx` of a stream where none is current", SUCCESS, || {
        without(|stream, _| {
            let mut context = 0_u64;
            cu!("cuStreamGetCtx", stream, &raw mut context)
        })
    }),
    probe("context.none_capturing", "`cuStreamIsCapturing` of a stream where none is current", SUCCESS, || {
        without(|stream, _| {
            let mut status = 0_u32;
            cu!("cuStreamIsCapturing", stream, &raw mut status)
        })
    }),
    probe("context.none_record", "`cuEventRecord` where none is current", SUCCESS, || {
        let event = sim::event();
        without(move |stream, _| cu!("cuEventRecord", event, stream))
    }),
    probe("context.none_event", "`cuEventQuery` where none is current", SUCCESS, || {
        let event = sim::event();
        without(move |_, _| cu!("cuEventQuery", event))
    }),
    probe("context.none_event_destroy", "`cuEventDestroy` where none is current", SUCCESS, || {
        let event = sim::event();
        without(move |_, _| cu!("cuEventDestroy_v2", event))
    }),
    probe("context.none_pointer", "`cuPointerGetAttributes` where none is current", SUCCESS, || {
        without(|_, address| {
            let (mut kind, mut range) = (0_u32, 0_u64);
            let (attributes, places) = ([2_u32, 12], [(&raw mut kind).cast::<u8>(), (&raw mut range).cast()]);
            cu!("cuPointerGetAttributes", 2, attributes.as_ptr(), places.as_ptr(), address)
        })
    }),
    probe("context.none_free", "`cuMemFree` where none is current", SUCCESS, || {
        without(|_, address| cu!("cuMemFree_v2", address))
    }),
    probe("context.none_free_async", "`cuMemFreeAsync` where none is current", SUCCESS, || {
        let own = sim::stream();
        let address = crate::scene::alloc_async(own);
        without(move |_, _| cu!("cuMemFreeAsync", address, own))
    }),
    probe("context.none_destroy", "`cuStreamDestroy` where none is current", SUCCESS, || {
        without(|stream, _| cu!("cuStreamDestroy_v2", stream))
    }),
    probe("context.memory_of_another", "`cuMemFree` of memory of another context of the device", SUCCESS, || {
        let address = sim::alloc(N);
        second_context();
        said(cu!("cuMemFree_v2", address))
    }),
    probe("context.released_retained_anew", "`cuDevicePrimaryCtxRetain` after the last release", SUCCESS, || {
        gone(|_| {
            let mut context = 0_u64;
            cu!("cuDevicePrimaryCtxRetain", &raw mut context, 0)
        })
    }),
    probe(
        "context.released_alloc",
        "`cuMemAlloc` in a primary context that was released",
        CONTEXT_IS_DESTROYED,
        || {
            gone(|_| {
                let mut address = 0_u64;
                cu!("cuMemAlloc_v2", &raw mut address, N)
            })
        },
    )
    .or(GONE),
    probe(
        "context.released_free",
        "`cuMemFree` of memory of a primary context that was released",
        INVALID_VALUE,
        || gone(|left| cu!("cuMemFree_v2", left.memory)),
    )
    .or(GONE),
    probe(
        "context.released_free_host",
        "`cuMemFreeHost` of memory of a primary context that was released",
        INVALID_VALUE,
        || gone(|left| cu!("cuMemFreeHost", left.pinned)),
    )
    .or(GONE),
    probe("context.released_free_none", "the same `cuMemFree` where no context is current", INVALID_VALUE, || {
        gone(|left| {
            sim::set_current(0);
            cu!("cuMemFree_v2", left.memory)
        })
    })
    .or(GONE),
    probe(
        "context.released_free_anew",
        "the same `cuMemFree` in the primary context retained anew",
        INVALID_VALUE,
        || {
            gone(|left| {
                let mut context = 0_u64;
                cu_ok!("cuDevicePrimaryCtxRetain", &raw mut context, 0);
                sim::set_current(context);
                cu!("cuMemFree_v2", left.memory)
            })
        },
    )
    .or(GONE),
    probe(
        "context.released_stream",
        "`cuStreamSynchronize` of a stream of a primary context that was released",
        INVALID_HANDLE,
        || gone(|left| cu!("cuStreamSynchronize", left.stream)),
    )
    .or(GONE),
    probe(
        "context.released_event",
        "`cuEventQuery` of an event of a primary context that was released",
        INVALID_HANDLE,
        || gone(|left| cu!("cuEventQuery", left.event)),
    )
    .or(GONE),
    // Source, also for the next two: driver 590.48, as reported in github.com/lupinemachines/lupine.
    probe("context.reset_current", "`cuCtxGetCurrent` after `cuDevicePrimaryCtxReset`", "the same", || {
        let before = sim::current();
        cu_ok!("cuDevicePrimaryCtxReset_v2", 0);
        if sim::current() == before { "the same" } else { "not the same" }.into()
    }),
    probe("context.reset_state", "active by `cuDevicePrimaryCtxGetState` after `cuDevicePrimaryCtxReset`", "0", || {
        cu_ok!("cuDevicePrimaryCtxReset_v2", 0);
        state().1.to_string()
    }),
    probe("context.reset_alloc", "`cuMemAlloc` after `cuDevicePrimaryCtxReset`", CONTEXT_IS_DESTROYED, || {
        cu_ok!("cuDevicePrimaryCtxReset_v2", 0);
        let mut address = 0_u64;
        said(cu!("cuMemAlloc_v2", &raw mut address, N))
    }),
    probe("context.reset_device", "`cuCtxGetDevice` after `cuDevicePrimaryCtxReset`", SUCCESS, || {
        cu_ok!("cuDevicePrimaryCtxReset_v2", 0);
        let mut device = -1_i32;
        said(cu!("cuCtxGetDevice", &raw mut device))
    }),
    probe("context.reset_retained_anew", "`cuMemAlloc` after it is retained anew", SUCCESS, || {
        cu_ok!("cuDevicePrimaryCtxReset_v2", 0);
        let (mut context, mut address) = (0_u64, 0_u64);
        cu_ok!("cuDevicePrimaryCtxRetain", &raw mut context, 0);
        said(cu!("cuMemAlloc_v2", &raw mut address, N))
    }),
    probe("context.released_too_often", "`cuDevicePrimaryCtxRelease` of what is not retained", INVALID_CONTEXT, || {
        cu_ok!("cuInit", 0);
        said(cu!("cuDevicePrimaryCtxRelease_v2", 0))
    })
    .bare(),
];

/// Flags of the primary context, and whether it is active.
fn state() -> (u32, i32) {
    let (mut flags, mut active) = (0_u32, -1_i32);
    cu_ok!("cuDevicePrimaryCtxGetState", 0, &raw mut flags, &raw mut active);
    (flags, active)
}

/// The result of a call with a stream and memory, on a thread without a current context.
fn without(act: impl FnOnce(u64, u64) -> u32 + Send + 'static) -> Answer {
    let (stream, address) = (sim::stream(), sim::alloc(N));
    said(std::thread::spawn(move || act(stream, address)).join().expect("it returns"))
}

/// Objects of a primary context.
struct Left {
    memory: u64,
    pinned: u64,
    stream: u64,
    event: u64,
}

/// The result of a call after the last release of the primary context, which is still current.
fn gone(act: impl FnOnce(Left) -> u32) -> Answer {
    let left = Left { memory: sim::alloc(N), pinned: sim::alloc_host(N), stream: sim::stream(), event: sim::event() };
    cu_ok!("cuDevicePrimaryCtxRelease_v2", 0);
    said(act(left))
}
