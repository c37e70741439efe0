//! Sharing with other processes: exporter and importer are in one process, and each runs out of memory and continues
//! afterwards.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use devexchange_core::abi::types::DEVX_OUT_OF_MEMORY;
use devexchange_core::dlpack::Copying;
use devexchange_core::ipc::{self, Client, Server};
use devexchange_core::{Batch, DType, Result, Tensor, ledger};

use super::failing::{arm, disarm, watched};
use super::{Run, batch, tensor};

/// The imports of what is offered here.
trait Importing {
    fn tensor(&self, name: &str) -> Result<Tensor>;
    fn batch(&self, name: &str) -> Result<Batch>;
}

impl Importing for Client {
    fn tensor(&self, name: &str) -> Result<Tensor> {
        // SAFETY: nobody writes the tensor.
        unsafe { self.import_tensor(name) }
    }

    fn batch(&self, name: &str) -> Result<Batch> {
        // SAFETY: a valid batch, which nobody writes.
        unsafe { self.import_batch(name) }
    }
}

/// The same as in `failing`, for the thread of a server.
static SERVER_LEFT: AtomicI64 = AtomicI64::new(-1);
static SERVER_FROM_THEN_ON: AtomicBool = AtomicBool::new(false);
static SERVER_FAILED: AtomicI64 = AtomicI64::new(0);

/// Whether an allocation of this thread fails, if it is a server's. Allocates nothing.
pub(super) fn server_fails() -> bool {
    let left = SERVER_LEFT.load(SeqCst);
    if left < 0 || !is_server() {
        return false;
    }
    if left > 0 || !SERVER_FROM_THEN_ON.load(SeqCst) {
        SERVER_LEFT.store(left - 1, SeqCst);
    }
    SERVER_FAILED.fetch_add(i64::from(left == 0), SeqCst);
    left == 0
}

fn is_server() -> bool {
    let mut name = [0_u8; 16];
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name == *b"devexchange-ipc\0"
}

fn address() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("@devexchange-memory-{}-{}", std::process::id(), COUNT.fetch_add(1, SeqCst))
}

fn soon(what: &str, is: impl Fn() -> bool) {
    for _ in 0..240_000 {
        if is() {
            return;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    panic!("not in time: {what}");
}

/// Offers what there is memory for: a tensor as it is and as a copy, and a batch.
fn offers(run: &Run, server: &Server) -> [bool; 3] {
    let shared = run.attempt(|| ipc::allocate_tensor(DType::FLOAT64, &[2, 3]));
    let offer =
        |name: &str, tensor: &Tensor| run.attempt(|| server.offer_tensor(name, tensor, Copying::IfNeeded)).is_some();
    [
        shared.is_some_and(|tensor| offer("shared", &tensor)),
        tensor(run).is_some_and(|tensor| offer("copied", &tensor)),
        batch(run)
            .is_some_and(|batch| run.attempt(|| server.offer_batch("batch", &batch, Copying::IfNeeded)).is_some()),
    ]
}

/// Everything except the creation of the thread, which std does.
pub(super) fn processes(run: &Run) {
    let address = address();
    let server = Server::bind(&address).expect("bound");
    let [shared, copied, of_batch] = offers(run, &server);
    if let Some(client) = run.attempt(|| ipc::connect(&address)) {
        let names = [(shared, "shared"), (shared, "shared"), (copied, "copied")];
        let names = names.into_iter().filter_map(|(offered, name)| offered.then_some(name));
        let tensors: Vec<_> = names.filter_map(|name| run.attempt(|| client.tensor(name))).collect();
        let batch = if of_batch { run.attempt(|| client.batch("batch")) } else { None };
        watched(|| drop((tensors, batch)));
        // What could not be imported is not kept, and can be imported now.
        soon("all is released", || server.leases() == 0);
        if shared {
            let numbers = client.tensor("shared").expect("the connection is as it was");
            assert_eq!(numbers.as_slice::<f64>(), Ok(&[0.; 6][..]));
        }
        watched(|| drop(client));
    }
    run.attempt(|| server.withdraw("copied"));
    soon("all is released", || server.leases() == 0);
    watched(|| drop(server));
}

/// What a server allocates before it has a thread, part of which it can do without.
pub(super) fn servers() -> u64 {
    const MADE: i64 = 7;
    let mut refused = 0;
    for (nth, from_then_on) in (0..MADE).flat_map(|nth| [(nth, false), (nth, true)]) {
        let (run, address) = (Run::default(), address());
        arm(nth, from_then_on);
        let server = run.attempt(|| Server::bind(&address));
        assert!(disarm() > 0, "allocation {nth} is not the server's");
        match server {
            Some(server) => require_service(&server, &ipc::connect(&address).expect("connected")),
            None => refused += 1,
        }
        drop(Server::bind(&address).expect("the address is free"));
        assert_eq!(ledger::outstanding(), 0);
    }
    refused
}

fn require_service(server: &Server, client: &Client) {
    let tensor = ipc::allocate_tensor(DType::INT32, &[3]).expect("memory");
    server.offer_tensor("again", &tensor, Copying::Never).expect("offered");
    for _ in 0..2 {
        assert_eq!(client.tensor("again").expect("imported").as_slice::<i32>(), Ok(&[0; 3][..]));
    }
    soon("all is released", || server.leases() == 0);
}

/// Lets each allocation of a server's thread fail. Returns the number that failed.
pub(super) fn the_server() -> u64 {
    let mut all = 0;
    for from_then_on in [false, true] {
        for nth in 0.. {
            let failed = serve_without(nth, from_then_on);
            assert_eq!(ledger::outstanding(), 0, "allocation {nth} of the server: {:?}", ledger::read());
            all += failed;
            if failed == 0 {
                break;
            }
        }
    }
    all
}

fn serve_without(nth: i64, from_then_on: bool) -> u64 {
    let (address, run) = (address(), Run::default());
    let server = Server::bind(&address).expect("bound");
    assert_eq!(offers(&run, &server), [true; 3]);
    // The thread makes what it keeps for itself with its first exchange; and an importer that holds something keeps it.
    let good = ipc::connect(&address).expect("connected");
    let held = good.tensor("shared").expect("imported");
    SERVER_FROM_THEN_ON.store(from_then_on, SeqCst);
    SERVER_LEFT.store(nth, SeqCst);
    // Several importers, each of which needs room.
    let others: Vec<_> =
        (0..5).filter_map(|_| refused_for_memory(Client::connect(&address, Some(Duration::from_secs(60))))).collect();
    let imported: Vec<_> = others
        .iter()
        .chain([&good])
        .map(|client| (refused_for_memory(client.tensor("copied")), refused_for_memory(client.batch("batch"))))
        .collect();
    SERVER_LEFT.store(-1, SeqCst);
    let failed = SERVER_FAILED.swap(0, SeqCst);
    let given = imported.iter().map(|(tensor, batch)| i64::from(tensor.is_some()) + i64::from(batch.is_some()));
    assert_eq!(server.leases(), 1 + given.sum::<i64>());
    drop(imported);
    soon("all else is released", || server.leases() == 1);
    others.iter().chain([&good]).for_each(|client| {
        client.batch("batch").expect("the server goes on");
    });
    drop(held);
    require_service(&server, &good);
    failed as u64
}

/// Whatever was missing, the importer gets an error.
fn refused_for_memory<T>(result: Result<T>) -> Option<T> {
    let refused = |error: devexchange_core::Error| {
        assert_eq!(error.status(), DEVX_OUT_OF_MEMORY, "{error}");
        assert!(error.message().starts_with("the exporter refused: "), "{error}");
    };
    result.map_err(refused).ok()
}
