//! Which streams wait for which other streams.

use std::sync::mpsc::channel;

use devexchange_tests::{cu_ok, sim};

use crate::answer::Answer;
use crate::probe::{Probe, probe};
use crate::scene::{Gate, LEGACY, N, PER_THREAD, blocking_stream, held_by, passes, start};

pub(super) const PROBES: &[Probe] = &[
    probe(
        "order.legacy_after_blocking",
        "work on the legacy default stream, while a blocking stream is busy",
        "waits",
        || between(blocking_stream(), LEGACY),
    ),
    probe(
        "order.blocking_after_legacy",
        "work on a blocking stream, while the legacy default stream is busy",
        "waits",
        || between(LEGACY, blocking_stream()),
    ),
    probe(
        "order.legacy_after_non_blocking",
        "work on the legacy default stream, while a non-blocking stream is busy",
        "does not wait",
        || apart(sim::stream(), LEGACY),
    ),
    probe(
        "order.non_blocking_after_legacy",
        "work on a non-blocking stream, while the legacy default stream is busy",
        "does not wait",
        || apart(LEGACY, sim::stream()),
    ),
    probe(
        "order.per_thread_after_legacy",
        "work on the per-thread default stream, while the legacy one is busy",
        "waits",
        || between(LEGACY, PER_THREAD),
    ),
    probe(
        "order.legacy_after_per_thread",
        "work on the legacy default stream, while the per-thread one is busy",
        "waits",
        || between(PER_THREAD, LEGACY),
    ),
    probe(
        "order.blocking_after_blocking",
        "work on a blocking stream, while another one is busy",
        "does not wait",
        || apart(blocking_stream(), blocking_stream()),
    ),
    probe(
        "order.per_thread_of_two_threads",
        "work on the per-thread default stream, while that of another thread is busy",
        "does not wait",
        || {
            let (send, receive) = channel();
            std::thread::spawn(move || {
                start();
                let _ = send.send(Gate::on(PER_THREAD));
            });
            let gate = receive.recv().expect("a gate");
            sim::fill(sim::alloc(N), 1, N, PER_THREAD);
            let answer = passes(PER_THREAD);
            gate.open();
            answer.into()
        },
    ),
    probe(
        "order.other_context",
        "work on the legacy default stream, while that of another context is busy",
        "does not wait",
        || {
            let gate = Gate::on(LEGACY);
            crate::scene::second_context();
            sim::fill(sim::alloc(N), 1, N, LEGACY);
            let answer = passes(LEGACY);
            gate.open();
            answer.into()
        },
    ),
    probe(
        "order.legacy_query",
        "`cuStreamQuery` of the legacy default stream without work, while a blocking stream is busy",
        "waits",
        || {
            let gate = Gate::on(blocking_stream());
            held_by(&gate, LEGACY).into()
        },
    )
    .simulated("does not wait", "the wait is documented for work on the legacy stream, not for a query")
    .or(&["does not wait"]),
    probe("order.event", "work on a stream after `cuStreamWaitEvent`", "waits", || {
        let (busy, stream, event) = (sim::stream(), sim::stream(), sim::event());
        let gate = Gate::on(busy);
        cu_ok!("cuEventRecord", event, busy);
        cu_ok!("cuStreamWaitEvent", stream, event, 0);
        sim::fill(sim::alloc(N), 1, N, stream);
        held_by(&gate, stream).into()
    }),
    probe(
        "order.event_of_legacy",
        "work on a non-blocking stream after an event of the legacy default stream, behind a blocking one",
        "waits",
        || {
            let (stream, event) = (sim::stream(), sim::event());
            let gate = Gate::on(blocking_stream());
            cu_ok!("cuEventRecord", event, LEGACY);
            cu_ok!("cuStreamWaitEvent", stream, event, 0);
            held_by(&gate, stream).into()
        },
    ),
];

/// Whether work on one stream waits for another; for questions where it should.
fn between(busy: u64, stream: u64) -> Answer {
    let address = sim::alloc(N);
    let gate = Gate::on(busy);
    sim::fill(address, 1, N, stream);
    held_by(&gate, stream).into()
}

/// Like [`between`], for questions where it should not.
fn apart(busy: u64, stream: u64) -> Answer {
    let address = sim::alloc(N);
    let gate = Gate::on(busy);
    sim::fill(address, 1, N, stream);
    let answer = passes(stream);
    gate.open();
    answer.into()
}
