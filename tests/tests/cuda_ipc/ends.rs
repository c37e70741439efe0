//! The ends of things that another process uses: releases come after the importer's work, and nobody waits for dead
//! processes.

use devexchange_core::abi::types::DEVX_CLOSED;
use devexchange_core::dlpack::Copying;
use devexchange_core::{Tensor, ipc};
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::peer::{Importing, Peer, ask, part, say, soon};
use devexchange_tests::sim::{self, Session};

use super::{N, address, filled, own, plain, read, start, theirs};

/// The exporter writes its memory again as soon as it is released: a copy that the importer has queued and named must
/// see the previous contents.
#[test]
fn memory_is_used_again_only_after_the_importers_work() {
    const NAME: &str = "ends::memory_is_used_again_only_after_the_importers_work";
    let session = Session::new();
    if part().is_some() {
        session.begin(sim::schedules(1)[0]);
        let tensor = theirs("again").tensor("t").expect("imported");
        let (stream, scratch) = (sim::stream(), sim::alloc(N));
        tensor.wait(sim::on(stream)).expect("waits");
        sim::copy(scratch, tensor.data() as u64, N, stream);
        tensor.used_on(sim::on(stream)).expect("used");
        drop(tensor);
        say("queued");
        ask("written again");
        assert_eq!(sim::download(scratch, N, stream), vec![7; N as usize]);
        sim::free(scratch);
        sim::destroy(stream);
        return sim::settle();
    }
    until_it_is_released(&session, NAME, "again");
}

/// A tensor whose memory is written and freed as soon as it is released.
fn written_again(memory: u64, stream: u64) -> Tensor {
    foreign::tensor(memory, N, CUDA0, move || {
        sim::set_current(sim::primary(0));
        sim::fill(memory, 0xee, N, stream);
        sim::synchronize(stream);
        sim::free(memory);
    })
}

/// The exporter's part: its memory is written again as soon as the importer has released it; the importer must see none
/// of that.
fn until_it_is_released(session: &Session, name: &str, address: &str) {
    session.each(4, || {
        let server = ipc::Server::bind(&own(address)).expect("bound");
        let (memory, stream) = (sim::alloc(N), sim::stream());
        let tensor = filled(written_again(memory, stream), 7, stream);
        server.offer_tensor("t", &tensor, Copying::Never).expect("offered");
        drop(tensor);
        let mut peer = start(name, "importer", &[]);
        peer.expect("queued");
        server.withdraw("t").expect("withdrawn");
        soon("it is released", || server.leases() == 0);
        sim::settle();
        peer.send("written again");
        peer.end();
        drop(server);
        sim::destroy(stream);
    });
}

/// Exported data waits for its producer's work, too; this does not cancel the uses that were named before.
#[test]
fn uses_that_were_named_before_an_export_count() {
    let session = Session::new();
    session.each(6, || {
        let (memory, producer, reader) = (sim::alloc(N), sim::stream(), sim::stream());
        let scratch = sim::alloc(N);
        let tensor = filled(written_again(memory, producer), 7, producer);
        tensor.wait(sim::on(reader)).expect("waits");
        sim::copy(scratch, memory, N, reader);
        tensor.used_on(sim::on(reader)).expect("used");
        drop(ipc::export_tensor(&tensor, Copying::Never).expect("exported"));
        drop(tensor);
        sim::settle();
        assert_eq!(sim::download(scratch, N, reader), vec![7; N as usize]);
        sim::free(scratch);
        [producer, reader].into_iter().for_each(sim::destroy);
    });
}

/// Each import waits for the exporter's work, although the memory and its event are open already, and each release
/// comes after the work of its own import; the exporter has its memory back after all of them.
#[test]
fn imports_that_share_a_lease_have_an_order_of_their_own() {
    const NAME: &str = "ends::imports_that_share_a_lease_have_an_order_of_their_own";
    let session = Session::new();
    if part().is_some() {
        session.begin(sim::schedules(1)[0]);
        let client = theirs("share");
        let opened = || sim::calls("cuIpcOpenMemHandle_v2") + sim::calls("cuIpcOpenEventHandle");
        let before = opened();
        let mut copies = Vec::new();
        let mut held = client.tensor("t").expect("imported");
        for _ in 0..3 {
            let next = client.tensor("t").expect("imported");
            assert_eq!(next.data(), held.data());
            let (stream, scratch) = (sim::stream(), sim::alloc(N));
            held.wait(sim::on(stream)).expect("waits");
            sim::copy(scratch, held.data() as u64, N, stream);
            held.used_on(sim::on(stream)).expect("used");
            copies.push((stream, scratch));
            // Released with its work still queued, while the next import is held.
            held = next;
        }
        assert!(sim::on_gpu() || opened() == before + 2, "memory and event are opened once");
        drop(held);
        say("queued");
        ask("written again");
        for (stream, scratch) in copies {
            assert_eq!(sim::download(scratch, N, stream), vec![7; N as usize]);
            sim::free(scratch);
            sim::destroy(stream);
        }
        return sim::settle();
    }
    until_it_is_released(&session, NAME, "share");
}

#[test]
fn a_killed_exporter_leaves_nobody_waiting() {
    const NAME: &str = "ends::a_killed_exporter_leaves_nobody_waiting";
    let session = Session::new();
    if part().is_some() {
        session.begin(sim::schedules(1)[0]);
        let server = ipc::Server::bind(&own("dead")).expect("bound");
        let stream = sim::stream();
        let tensor = filled(plain(), 4, stream);
        server.offer_tensor("t", &tensor, Copying::Never).expect("offered");
        // The queued work of a killed process may never run.
        sim::synchronize(stream);
        say("offers");
        return ask("never asked");
    }
    if sim::skipped("what is in the memory of a process that is gone is the driver's affair") {
        return;
    }
    session.each(2, || {
        let mut peer: Peer = start(NAME, "exporter", &[]);
        peer.expect("offers");
        let client = ipc::connect(&address("dead", peer.id())).expect("connected");
        let tensor = client.tensor("t").expect("imported");
        peer.kill();
        assert_eq!(read(&tensor), vec![4; N as usize]);
        let error = client.tensor("t").expect_err("nobody is there");
        assert_eq!(error.status(), DEVX_CLOSED, "{error}");
        let error = ipc::connect(&address("dead", std::process::id())).expect_err("nobody listens");
        assert!(error.message().contains("connect: "), "{error}");
    });
}
