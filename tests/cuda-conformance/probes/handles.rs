//! Streams and events: what their handles mean, and what happens when they are destroyed.

use devexchange_tests::{cu, cu_ok, sim};

use crate::answer::{Answer, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_READY, SUCCESS, said, skipped};
use crate::probe::{Probe, probe};
use crate::scene::{Gate, LEGACY, N, PER_THREAD, devices, held_by, passes, returns, second_context};

/// A real driver need not recognise an invalid handle.
const MISUSE: &[&str] = &["crash (SIGSEGV)", INVALID_CONTEXT, INVALID_VALUE, "CUDA_ERROR_CONTEXT_IS_DESTROYED (709)"];
/// A number that no driver uses as a handle: too small for an address, too large for a special handle.
const BOGUS: u64 = 0x1230;

pub(super) const PROBES: &[Probe] = &[
    probe("handle.stream_bogus", "`cuStreamSynchronize` of a number that is no stream", INVALID_HANDLE, || {
        said(cu!("cuStreamSynchronize", BOGUS))
    })
    .or(MISUSE),
    probe(
        "handle.stream_bogus_capturing",
        "`cuStreamIsCapturing` of a number that is no stream",
        INVALID_HANDLE,
        || {
            let mut status = 0_u32;
            said(cu!("cuStreamIsCapturing", BOGUS, &raw mut status))
        },
    )
    .or(MISUSE),
    probe("handle.stream_destroyed", "`cuStreamSynchronize` of a stream that was destroyed", INVALID_HANDLE, || {
        let stream = sim::stream();
        sim::destroy(stream);
        said(cu!("cuStreamSynchronize", stream))
    })
    .or(MISUSE),
    probe("handle.stream_destroyed_twice", "`cuStreamDestroy` twice", INVALID_HANDLE, || {
        let stream = sim::stream();
        sim::destroy(stream);
        said(cu!("cuStreamDestroy_v2", stream))
    })
    .or(MISUSE),
    probe("handle.event_bogus", "`cuEventQuery` of a number that is no event", INVALID_HANDLE, || {
        said(cu!("cuEventQuery", BOGUS))
    })
    .or(MISUSE),
    probe("handle.event_null", "`cuEventQuery` of NULL", INVALID_HANDLE, || said(cu!("cuEventQuery", 0))).or(MISUSE),
    probe("handle.event_destroyed", "`cuStreamWaitEvent` of an event that was destroyed", INVALID_HANDLE, || {
        let event = sim::event();
        cu_ok!("cuEventDestroy_v2", event);
        said(cu!("cuStreamWaitEvent", sim::stream(), event, 0))
    })
    .or(MISUSE),
    probe("handle.default_destroy", "`cuStreamDestroy` of the legacy default stream", INVALID_HANDLE, || {
        said(cu!("cuStreamDestroy_v2", LEGACY))
    })
    .or(MISUSE),
    probe("handle.stream_flags", "`cuStreamGetFlags` of streams made with 0 and 1", "0 and 1", || {
        let of = |stream: u64| {
            let mut flags = 9_u32;
            cu_ok!("cuStreamGetFlags", stream, &raw mut flags);
            flags
        };
        format!("{} and {}", of(crate::scene::blocking_stream()), of(sim::stream()))
    }),
    probe("handle.stream_unknown_flag", "`cuStreamCreate` with flag 0x100", INVALID_VALUE, || {
        let mut stream = 0_u64;
        said(cu!("cuStreamCreate", &raw mut stream, 0x100))
    }),
    probe("handle.event_unknown_flag", "`cuEventCreate` with flag 0x100", INVALID_VALUE, || {
        let mut event = 0_u64;
        said(cu!("cuEventCreate", &raw mut event, 0x100))
    }),
    probe("handle.default_context", "`cuStreamGetCtx` of both default streams", "the current one", || {
        let of = |stream: u64| {
            let mut context = 0_u64;
            cu_ok!("cuStreamGetCtx", stream, &raw mut context);
            context
        };
        let same = of(LEGACY) == sim::current() && of(PER_THREAD) == sim::current() && of(0) == sim::current();
        if same { "the current one" } else { "another one" }.into()
    }),
    probe("handle.stream_context", "`cuStreamGetCtx` of a stream of another context", "its own", || {
        let (stream, own, mut context) = (sim::stream(), sim::current(), 0_u64);
        second_context();
        cu_ok!("cuStreamGetCtx", stream, &raw mut context);
        if context == own { "its own" } else { "another one" }.into()
    }),
    probe("handle.stream_pending", "`cuStreamQuery` of a stream that is busy", NOT_READY, || {
        let stream = sim::stream();
        let _gate = Gate::on(stream);
        said(cu!("cuStreamQuery", stream))
    }),
    probe(
        "handle.stream_other_context",
        "`cuMemsetD8Async` on a stream of a context that is not current",
        SUCCESS,
        || {
            let (stream, address) = (sim::stream(), sim::alloc(N));
            second_context();
            let code = cu!("cuMemsetD8Async", address, 1, N, stream);
            sim::synchronize(stream);
            said(code)
        },
    ),
    probe("handle.event_unrecorded", "`cuEventQuery` before the first record", SUCCESS, || {
        said(cu!("cuEventQuery", sim::event()))
    }),
    probe("handle.event_unrecorded_sync", "`cuEventSynchronize` before the first record", SUCCESS, || {
        said(cu!("cuEventSynchronize", sim::event()))
    }),
    probe("handle.event_unrecorded_wait", "`cuStreamWaitEvent` before the first record", SUCCESS, || {
        said(cu!("cuStreamWaitEvent", sim::stream(), sim::event(), 0))
    }),
    probe("handle.event_unrecorded_time", "`cuEventElapsedTime` before the first record", INVALID_HANDLE, || {
        let (mut a, mut b, mut time) = (0_u64, 0_u64, 0_f32);
        cu_ok!("cuEventCreate", &raw mut a, 0);
        cu_ok!("cuEventCreate", &raw mut b, 0);
        said(cu!("cuEventElapsedTime", &raw mut time, a, b))
    }),
    probe("handle.event_no_time", "`cuEventElapsedTime` of events without timing", INVALID_HANDLE, || {
        let (a, b, mut time) = (sim::event(), sim::event(), 0_f32);
        for event in [a, b] {
            cu_ok!("cuEventRecord", event, LEGACY);
            cu_ok!("cuEventSynchronize", event);
        }
        said(cu!("cuEventElapsedTime", &raw mut time, a, b))
    }),
    probe("handle.event_pending", "`cuEventQuery` of a record behind work that is not over", NOT_READY, || {
        let (stream, event) = (sim::stream(), sim::event());
        let _gate = Gate::on(stream);
        cu_ok!("cuEventRecord", event, stream);
        said(cu!("cuEventQuery", event))
    }),
    probe(
        "handle.event_other_context",
        "`cuEventRecord` on a stream of another context of the device",
        INVALID_HANDLE,
        || {
            let event = sim::event();
            second_context();
            said(cu!("cuEventRecord", event, sim::stream()))
        },
    )
    .or(&[INVALID_CONTEXT, INVALID_VALUE]),
    probe("handle.event_other_device", "`cuEventRecord` on a stream of another device", INVALID_HANDLE, || {
        if devices() < 2 {
            return skipped("one device only");
        }
        let event = sim::event();
        sim::set_current(sim::primary(1));
        said(cu!("cuEventRecord", event, sim::stream()))
    })
    .or(&[INVALID_CONTEXT, INVALID_VALUE]),
    probe(
        "handle.wait_other_context",
        "`cuStreamWaitEvent` of an event of another context of the device",
        "waits",
        || {
            let event = recorded_behind_a_gate();
            second_context();
            event.held()
        },
    ),
    probe("handle.wait_other_device", "`cuStreamWaitEvent` of an event of another device", "waits", || {
        if devices() < 2 {
            return skipped("one device only");
        }
        let event = recorded_behind_a_gate();
        sim::set_current(sim::primary(1));
        event.held()
    }),
    probe("handle.wait_event_destroyed", "the wait of a stream, when the event is destroyed", "waits", || {
        let event = recorded_behind_a_gate();
        let stream = sim::stream();
        cu_ok!("cuStreamWaitEvent", stream, event.event, 0);
        cu_ok!("cuEventDestroy_v2", event.event);
        held_by(&event.gate, stream).into()
    }),
    probe(
        "handle.wait_event_rerecorded",
        "the wait of a stream, when the event is recorded again elsewhere",
        "waits",
        || {
            let event = recorded_behind_a_gate();
            let stream = sim::stream();
            cu_ok!("cuStreamWaitEvent", stream, event.event, 0);
            cu_ok!("cuEventRecord", event.event, sim::stream());
            held_by(&event.gate, stream).into()
        },
    ),
    probe(
        "handle.wait_event_recorded_later",
        "the wait of a stream for an event that is recorded afterwards",
        "does not wait",
        || {
            let (stream, busy, event) = (sim::stream(), sim::stream(), sim::event());
            cu_ok!("cuStreamWaitEvent", stream, event, 0);
            let gate = Gate::on(busy);
            cu_ok!("cuEventRecord", event, busy);
            let answer = passes(stream);
            gate.open();
            answer.into()
        },
    ),
    probe("handle.destroy_busy", "`cuStreamDestroy` of a stream that is busy", "returns at once", || {
        let stream = sim::stream();
        let gate = Gate::on(stream);
        returns(&gate, move || cu!("cuStreamDestroy_v2", stream))
    }),
    probe("handle.destroy_busy_work", "work of a stream that is destroyed meanwhile", "still runs", || {
        let (stream, event, address) = (sim::stream(), sim::event(), sim::alloc(N));
        sim::fill(address, 1, N, LEGACY);
        cu_ok!("cuStreamSynchronize", LEGACY);
        let gate = Gate::on(stream);
        sim::fill(address, 7, N, stream);
        cu_ok!("cuEventRecord", event, stream);
        sim::destroy(stream);
        gate.open();
        cu_ok!("cuEventSynchronize", event);
        if crate::scene::all(&sim::download(address, N, LEGACY), 7) { "still runs" } else { "is lost" }.into()
    }),
    probe(
        "handle.destroy_event_busy",
        "`cuEventDestroy` of an event behind work that is not over",
        "returns at once",
        || {
            let RecordedBehindAGate { gate, event } = recorded_behind_a_gate();
            returns(&gate, move || cu!("cuEventDestroy_v2", event))
        },
    ),
];

/// An event, recorded on a stream behind unfinished work.
struct RecordedBehindAGate {
    gate: Gate,
    event: u64,
}

fn recorded_behind_a_gate() -> RecordedBehindAGate {
    let (stream, event) = (sim::stream(), sim::event());
    let gate = Gate::on(stream);
    cu_ok!("cuEventRecord", event, stream);
    RecordedBehindAGate { gate, event }
}

impl RecordedBehindAGate {
    /// Whether a stream of the current context waits for the event.
    fn held(&self) -> Answer {
        let stream = sim::stream();
        match cu!("cuStreamWaitEvent", stream, self.event, 0) {
            0 => held_by(&self.gate, stream).into(),
            code => said(code),
        }
    }
}
