//! Sharing with other processes: exports of memory that can be shared and of memory that is copied; imports from
//! another process, which has a driver without faults.

use std::io::Read;
use std::ptr::null;
use std::sync::{Mutex, PoisonError};

use devexchange_core::arrow::{ArrayBuilder, Batch};
use devexchange_core::dlpack::Copying;
use devexchange_core::manager::{Pool, PoolOptions};
use devexchange_core::{DType, Device, DeviceType, Tensor, convert, ipc};
use devexchange_tests::cu;
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::peer::{Importing, Peer, part, say};
use devexchange_tests::sim;

use super::N;
use super::scene::{Scene, unused};

fn allocated(device: Device, stream: Option<u64>) -> devexchange_core::Result<Tensor> {
    Tensor::allocate(device, DType::UINT8, &[N as i64], stream.map(sim::on))
}

/// Exports memory that can be shared, and that is behind a stream or an event.
pub(super) fn export_views(scene: &Scene) {
    drop(scene.note(ipc::export_tensor(&scene.tensor(), Copying::Never)));
    drop(scene.note(ipc::export_batch(&scene.batch(), Copying::Never)));
    let pool = Pool::shareable(PoolOptions::default()).expect("a manager");
    let pooled = Tensor::allocate_with(&pool, CUDA0, DType::UINT8, &[N as i64], Some(scene.on()));
    if let Some(pooled) = scene.note(pooled) {
        drop(scene.note(ipc::export_tensor(&pooled, Copying::Never)));
    }
    // Behind an event: a stream of the library waits for it.
    let mut array = scene.foreign_array(0, scene.event);
    match scene.note(unsafe { Batch::import_device(&raw mut array, &foreign::bytes_schema()) }) {
        Some(batch) => drop(scene.note(ipc::export_batch(&batch, Copying::Never))),
        None => unsafe { devexchange_core::arrow::release_array(&raw mut array.array) },
    }
    unused(scene, &[1]);
}

/// Exports memory that cannot be shared, and is copied.
pub(super) fn export_copies(scene: &Scene) {
    let pinned = Device { kind: DeviceType::CUDA_HOST, id: 0 };
    if let Some(pooled) = scene.note(allocated(CUDA0, Some(scene.producer))) {
        drop(scene.note(ipc::export_tensor(&pooled, Copying::IfNeeded)));
    }
    let column = scene.note(allocated(pinned, None)).map(|tensor| convert::column(&tensor, "x", Copying::Never));
    if let Some(batch) = column.and_then(|column| scene.note(column)) {
        drop(scene.note(ipc::export_batch(&batch, Copying::IfNeeded)));
    }
    unused(scene, &[0, 1]);
}

/// The exporter, which lives as long as this process.
static EXPORTER: Mutex<Option<Peer>> = Mutex::new(None);

fn address(process: u32) -> String {
    format!("@devexchange-faults-{process}")
}

fn exporter() -> String {
    let mut exporter = EXPORTER.lock().unwrap_or_else(PoisonError::into_inner);
    let peer = exporter.get_or_insert_with(|| {
        let path = sim::cuda().path.to_str().expect("UTF-8").to_owned();
        let mut peer = Peer::start("processes::exporter_of_the_sweep", "exporter", &[("DEVX_SIM_PATH", &path)]);
        peer.expect("offers");
        peer
    });
    address(peer.id())
}

/// Ends the exporter; its own test checks for findings.
pub(super) fn end() {
    if let Some(peer) = EXPORTER.lock().unwrap_or_else(PoisonError::into_inner).take() {
        peer.end();
    }
}

#[test]
fn exporter_of_the_sweep() {
    if part().is_none() {
        // By itself there is nobody to import from.
        return;
    }
    let _session = sim::Session::new();
    let server = ipc::Server::bind(&address(std::process::id())).expect("bound");
    let stream = sim::stream();
    let pool = Pool::shareable(PoolOptions::default()).expect("a manager");
    let pooled =
        Tensor::allocate_with(&pool, CUDA0, DType::UINT8, &[N as i64], Some(sim::on(stream))).expect("allocated");
    for (name, tensor) in [("plain", allocated(CUDA0, None).expect("allocated")), ("pooled", pooled)] {
        tensor.wait(sim::on(stream)).expect("waits");
        sim::fill(tensor.data() as u64, 7, N, stream);
        let mut tensor = tensor;
        unsafe { tensor.produced_on(sim::on(stream)) }.expect("not shared yet");
        server.offer_tensor(name, &tensor, Copying::Never).expect("offered");
        let batch = convert::column(&tensor, "x", Copying::Never).expect("a view");
        server.offer_batch(&format!("{name} batch"), &batch, Copying::Never).expect("offered");
    }
    let lists = ArrayBuilder::new("l", "+l", 0).buffer(null()).buffer(null());
    let lists = lists.child(ArrayBuilder::new("", "C", 0).buffer(null()).buffer(null()));
    let lists = unsafe { lists.build(CUDA0) }.expect("a batch");
    server.offer_batch("lists", &lists, Copying::Never).expect("offered");
    sim::synchronize(stream);
    say("offers");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    assert_eq!(sim::take_findings(), Vec::<String>::new());
    // The importer holds what it has lost until its end, so its memory is held here, too.
    std::process::exit(0);
}

pub(super) fn imports(scene: &Scene) {
    let client = ipc::connect(&exporter()).expect("connected");
    for name in ["plain", "pooled"] {
        let tensor = scene.note(client.tensor(name));
        let batch = scene.note(client.batch(&format!("{name} batch")));
        if let (Some(tensor), Some(batch)) = (&tensor, &batch) {
            let column = batch.root().buffers()[1];
            assert_eq!(tensor.data().cast_const(), column, "one allocation, opened once");
        }
        if let Some(tensor) = tensor {
            scene.note(tensor.wait(scene.on()));
            let stream = scene.stream() as u64;
            if cu!("cuMemcpyDtoDAsync_v2", scene.scratch, tensor.data() as u64, 0, stream) == 0
                && scene.note(tensor.used_on(scene.on())).is_none()
            {
                scene.note(scene.on().synchronize());
            }
        }
        if let Some(batch) = batch {
            scene.note(batch.wait(sim::on(scene.producer)));
            scene.note(batch.used_on(sim::on(scene.producer)));
        }
    }
    if let Some(lists) = scene.note(client.batch("lists")) {
        assert!(!lists.root().buffers()[1].is_null());
    }
    unused(scene, &[0, 1]);
}
