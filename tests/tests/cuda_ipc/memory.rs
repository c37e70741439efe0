//! Missing host memory: each allocation fails in an importer, in making a pool and exporting from it, in using and
//! releasing memory that queued work uses, and in the reset of a manager. The result is an error, and nothing stays open
//! or is kept by the exporter.

#[path = "../../../core/tests/failing/mod.rs"]
mod failing;

use std::ptr::NonNull;

use devexchange_core::abi::types::DEVX_OUT_OF_MEMORY;
use devexchange_core::arrow::{Batch, release_array};
use devexchange_core::dlpack::Copying;
use devexchange_core::manager::{Driver, Manager, Pool, PoolOptions, Request};
use devexchange_core::runtime::cuda::kept_events;
use devexchange_core::{DType, Result, Tensor, dlpack, ipc, ledger};
use devexchange_tests::foreign::{self, CUDA0, bytes_schema};
use devexchange_tests::peer::{Importing, part, say, soon};
use devexchange_tests::sim::{self, Session};

use failing::{Failing, LEFT, arm, disarm, watched};

use super::{N, address, batch, filled, own, plain, start};

/// The driver has an allocator of its own.
#[global_allocator]
static ALLOCATOR: Failing = Failing { elsewhere: || false };

/// Does something while an allocation may fail; a failed result is `None`.
fn attempt<T>(act: impl FnOnce() -> Result<T>) -> Option<T> {
    let refused = |error: devexchange_core::Error| assert_eq!(error.status(), DEVX_OUT_OF_MEMORY, "{error}");
    watched(act).map_err(refused).ok()
}

fn imports() {
    let exporter = address("memory", std::os::unix::process::parent_id());
    let Some(client) = attempt(|| ipc::connect(&exporter)) else { return };
    let tensors = ["plain", "plain", "pooled"].map(|name| attempt(|| client.tensor(name)));
    let batch = attempt(|| client.batch("batch"));
    let stream = sim::stream();
    for tensor in tensors.iter().flatten() {
        attempt(|| tensor.wait(sim::on(stream)));
        if attempt(|| tensor.used_on(sim::on(stream))).is_none() {
            sim::synchronize(stream);
        }
    }
    watched(|| drop((tensors, batch)));
    // What could not be imported before can be imported now.
    client.tensor("pooled").expect("the connection is as it was");
    watched(|| drop(client));
    sim::destroy(stream);
}

fn exports() {
    let stream = sim::stream();
    let Some(pool) = attempt(|| Pool::shareable(PoolOptions::default())) else {
        return sim::destroy(stream);
    };
    attempt(|| pool.initialize(0));
    let pooled = attempt(|| Tensor::allocate_with(&pool, CUDA0, DType::UINT8, &[N as i64], Some(sim::on(stream))));
    let exported = pooled.and_then(|tensor| attempt(|| ipc::export_tensor(&tensor, Copying::Never)));
    let copied = attempt(|| Tensor::allocate(CUDA0, DType::UINT8, &[N as i64], Some(sim::on(stream))))
        .inspect(|tensor| sim::fill(tensor.data() as u64, 1, N, stream))
        .and_then(|tensor| attempt(|| ipc::export_tensor(&tensor, Copying::IfNeeded)));
    watched(|| drop((exported, copied)));
    attempt(|| pool.memory_info(0));
    attempt(|| pool.trim(0, 0));
    watched(|| drop(pool));
    sim::synchronize(stream);
    sim::destroy(stream);
}

/// Releases memory of foreign producers while queued work uses it.
fn releases() {
    let (stream, memory) = (sim::stream(), [sim::alloc(N), sim::alloc(N)]);
    let managed = foreign::dlpack(memory[0], N, CUDA0, || ()).as_ptr();
    let (mut array, schema) = (foreign::arrow(memory[1], N, CUDA0, 0, || ()), bytes_schema());
    let tensor = attempt(|| unsafe { dlpack::import(managed) });
    if tensor.is_none() {
        drop(unsafe { dlpack::Owned::from_raw(NonNull::new(managed).expect("a tensor")) });
    }
    let batch = attempt(|| unsafe { Batch::import_device(&raw mut array, &schema) });
    unsafe { release_array(&raw mut array.array) };
    sim::fill(memory[1], 1, N, stream);
    sim::copy(memory[0], memory[1], N, stream);
    let used = [
        tensor.as_ref().and_then(|tensor| attempt(|| tensor.used_on(sim::on(stream)))),
        batch.as_ref().and_then(|batch| attempt(|| batch.used_on(sim::on(stream)))),
    ];
    if used.contains(&None) {
        sim::synchronize(stream);
    }
    watched(|| drop((tensor, batch)));
    sim::settle();
    sim::destroy(stream);
    memory.into_iter().for_each(sim::free);
}

/// Uses on many streams, most of which are still running. Where some are over, another use needs memory only for its
/// event.
fn uses() {
    const ALL: usize = 17;
    const OVER: usize = 4;
    let (data, streams) = (sim::alloc(N), [(); ALL].map(|()| (sim::stream(), sim::alloc(N))));
    sim::fill(data, 1, N, 1);
    sim::synchronize(1);
    let tensor = unsafe { dlpack::import(foreign::dlpack(data, N, CUDA0, || ()).as_ptr()) }.expect("imported");
    let without_event = LEFT.get() == 0;
    for (i, (stream, scratch)) in streams.into_iter().enumerate() {
        // So much work that querying the stream does not bring it to its end.
        (0..ALL).for_each(|_| sim::copy(scratch, data, N, stream));
        let used = match i + 1 {
            ALL => attempt(|| tensor.used_on(sim::on(stream))),
            _ => tensor.used_on(sim::on(stream)).ok(),
        };
        assert!(used.is_some() || without_event, "a use was over: there was room");
        if i < OVER || used.is_none() {
            sim::synchronize(stream);
        }
    }
    drop(tensor);
    sim::settle();
    for (stream, scratch) in streams {
        sim::destroy(stream);
        sim::free(scratch);
    }
    sim::free(data);
}

/// Resets a manager while its memory is in use and events are kept for the device.
fn resets() {
    let manager = Driver::new().expect("a manager");
    let tensor = plain();
    tensor.used_on(sim::on(1)).expect("noted");
    drop(tensor);
    sim::settle();
    let held = attempt(|| manager.allocate(&Request::device(0, N as usize)));
    assert_ne!(kept_events(), 0);
    watched(|| unsafe { manager.reset(0) }).expect("reset");
    assert_eq!(kept_events(), 0);
    watched(|| drop(held));
}

/// Lets each allocation of a scene fail. Returns the number that failed.
fn sweep(session: &Session, scene: fn()) -> u64 {
    let mut all = 0;
    // First makes what is made only once.
    scene();
    for from_then_on in [false, true] {
        for nth in 0.. {
            arm(nth, from_then_on);
            scene();
            let failed = disarm();
            session.check();
            assert_eq!(ledger::outstanding(), 0, "without allocation {nth}: {:?}", ledger::read());
            all += failed;
            if failed == 0 {
                break;
            }
        }
    }
    all
}

/// The first release that waits starts the thread that looks after such releases. It must not end the process.
#[test]
fn the_first_release_that_waits_needs_no_memory() {
    // The thread is started only once in a process.
    if !sim::is_apart("memory::the_first_release_that_waits_needs_no_memory", &[]) {
        return;
    }
    let session = Session::new();
    session.begin(sim::schedules(1)[0]);
    let (stream, data, scratch) = (sim::stream(), sim::alloc(N), sim::alloc(N));
    let tensor = foreign::tensor(data, N, CUDA0, move || sim::free(data));
    sim::fill(data, 1, N, stream);
    sim::copy(scratch, data, N, stream);
    tensor.used_on(sim::on(stream)).expect("noted");
    arm(0, true);
    watched(|| drop(tensor));
    disarm();
    sim::settle();
    sim::synchronize(stream);
    sim::destroy(stream);
    sim::free(scratch);
}

#[test]
fn what_is_missing_is_told_and_nothing_stays_open() {
    const NAME: &str = "memory::what_is_missing_is_told_and_nothing_stays_open";
    let session = Session::new();
    if part().is_some() {
        session.begin(sim::schedules(1)[0]);
        for (name, scene, least) in [
            ("imports", imports as fn(), 50),
            ("exports", exports, 50),
            ("releases", releases, 5),
            ("uses", uses, 1),
            ("resets", resets, 5),
        ] {
            let failed = sweep(&session, scene);
            eprintln!("{name}: {failed} allocations failed");
            assert!(failed > least, "{name}: {failed}");
        }
        return say("done");
    }
    session.begin(sim::schedules(1)[0]);
    let server = ipc::Server::bind(&own("memory")).expect("bound");
    let stream = sim::stream();
    let pool = Pool::shareable(PoolOptions::default()).expect("a manager");
    let pooled =
        Tensor::allocate_with(&pool, CUDA0, DType::UINT8, &[N as i64], Some(sim::on(stream))).expect("a tensor");
    for (name, tensor) in [("plain", plain()), ("pooled", pooled)] {
        server.offer_tensor(name, &filled(tensor, 7, stream), Copying::Never).expect("offered");
    }
    server.offer_batch("batch", &batch(8, stream), Copying::Never).expect("offered");
    // Otherwise blocks that were given back would not be allocated again.
    let mut peer = start(NAME, "importer", &[("DEVEXCHANGE_KEEP_BLOCKS", "0")]);
    peer.expect("done");
    soon("all is released", || server.leases() == 0);
    peer.end();
    drop(server);
    sim::synchronize(stream);
    sim::destroy(stream);
}
