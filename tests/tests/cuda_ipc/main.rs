//! Device memory shared between processes: allocations and pool memory, through the driver's handles, in the order of
//! an event, opened once, and closed after the importer's work. The other process is this program again, with its own
//! driver.
#![expect(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over memory that they own")]

mod copies;
mod ends;
mod hostile;
mod memory;

use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::types::{
    DEVX_COPY_REQUIRED, DEVX_DEVICE, DEVX_DRIVER, DEVX_OUT_OF_MEMORY, DEVX_UNSUPPORTED,
};
use devexchange_core::arrow::{ArrayBuilder, Batch};
use devexchange_core::convert::Plan;
use devexchange_core::dlpack::Copying;
use devexchange_core::manager::{Pool, PoolOptions};
use devexchange_core::runtime::cuda::info;
use devexchange_core::{DType, Device, DeviceType, Owner, Tensor, ipc};
use devexchange_tests::cu_ok;
use devexchange_tests::foreign::CUDA0;
use devexchange_tests::peer::{Importing, Peer, ask, commands, part, say, soon};
use devexchange_tests::sim::{self, Session};

const N: u64 = 4096;

fn address(of: &str, process: u32) -> String {
    format!("@devexchange-cuda-{of}-{process}")
}

fn own(of: &str) -> String {
    address(of, std::process::id())
}

fn theirs(of: &str) -> ipc::Client {
    ipc::connect(&address(of, std::os::unix::process::parent_id())).expect("connected")
}

fn start(test: &str, part: &str, variables: &[(&str, &str)]) -> Peer {
    let path = sim::cuda().path.to_str().expect("UTF-8").to_owned();
    let mut all = vec![("DEVX_SIM_PATH", path.as_str())];
    all.extend_from_slice(variables);
    Peer::start(test, part, &all)
}

/// The contents of a tensor, read on a separate stream after the data is ready there; the use is named.
fn read(tensor: &Tensor) -> Vec<u8> {
    let stream = sim::stream();
    tensor.wait(sim::on(stream)).expect("waits");
    let bytes = sim::download(tensor.data() as u64, tensor.layout().bytes as u64, stream);
    tensor.used_on(sim::on(stream)).expect("used");
    sim::destroy(stream);
    bytes
}

/// A tensor that is still being filled on a stream.
fn filled(tensor: Tensor, byte: u8, stream: u64) -> Tensor {
    tensor.wait(sim::on(stream)).expect("waits");
    sim::fill(tensor.data() as u64, byte, tensor.layout().bytes as u64, stream);
    let mut tensor = tensor;
    unsafe { tensor.produced_on(sim::on(stream)) }.expect("not shared yet");
    tensor
}

fn plain() -> Tensor {
    Tensor::allocate(CUDA0, DType::UINT8, &[N as i64], None).expect("allocated")
}

/// A batch with a column over the second half of an allocation, which is filled on a stream, and with lists of nothing.
fn batch(byte: u8, stream: u64) -> Batch {
    let tensor = filled(plain(), byte, stream);
    let half = (tensor.data() as u64 + N / 2) as *const std::ffi::c_void;
    let column = ArrayBuilder::new("x", "C", (N / 2) as i64).buffer(std::ptr::null()).buffer(half);
    let bare = |format, length, buffers: usize| {
        (0..buffers).fold(ArrayBuilder::new("e", format, length), |array, _| array.buffer(std::ptr::null()))
    };
    let lists = bare("+l", 0, 2).child(bare("u", 0, 3));
    let rows = bare("+w:0", (N / 2) as i64, 1).child(lists);
    let table = ArrayBuilder::batch((N / 2) as i64).child(column).child(rows).owner(Owner::new(tensor));
    let mut batch = unsafe { table.build(CUDA0) }.expect("built");
    unsafe { batch.produced_on(sim::on(stream)) }.expect("not shared yet");
    batch
}

#[test]
fn memory_and_its_order_go_to_another_process() {
    const NAME: &str = "memory_and_its_order_go_to_another_process";
    let session = Session::new();
    if part().is_some() {
        return importer(&session, "order");
    }
    session.each(6, || {
        let pool = Pool::shareable(PoolOptions::default()).expect("a manager");
        let server = ipc::Server::bind(&own("order")).expect("bound");
        let stream = sim::stream();
        let pooled =
            Tensor::allocate_with(&pool, CUDA0, DType::UINT8, &[N as i64], Some(sim::on(stream))).expect("a tensor");
        for (name, tensor) in [("plain", plain()), ("pooled", pooled)] {
            let tensor = filled(tensor, 7, stream);
            assert_eq!(ipc::plan_tensor(&tensor), Plan::View);
            server.offer_tensor(name, &tensor, Copying::Never).expect("offered");
        }
        server.offer_batch("batch", &batch(8, stream), Copying::Never).expect("offered");
        let mut peer = start(NAME, "importer", &[]);
        peer.expect("has all");
        // Nobody holds the memory any more, except the importer.
        ["plain", "pooled", "batch"].iter().for_each(|name| assert_eq!(server.withdraw(name), Ok(true)));
        assert_eq!(server.leases(), 3);
        peer.tell("read", "read");
        peer.tell("write", "written");
        peer.tell("release", "released");
        soon("all is released", || server.leases() == 0);
        peer.end();
        sim::synchronize(stream);
        sim::destroy(stream);
        drop((server, pool));
    });
}

fn importer(session: &Session, of: &str) {
    session.begin(sim::schedules(1)[0]);
    let client = theirs(of);
    let opens = || sim::calls("cuIpcOpenMemHandle_v2") + sim::calls("cuMemPoolImportPointer");
    let before = opens();
    let (plain, pooled) = (client.tensor("plain").expect("plain"), client.tensor("pooled").expect("pooled"));
    let again = client.tensor("plain").expect("again");
    assert_eq!(again.data(), plain.data());
    let batch = client.batch("batch").expect("a batch");
    assert!(sim::on_gpu() || opens() == before + 3, "each is opened once");
    assert_eq!((plain.device(), plain.shape()), (CUDA0, &[N as i64][..]));
    say("has all");
    commands(
        |command| match command {
            "read" => {
                for tensor in [&plain, &pooled, &again] {
                    assert_eq!(read(tensor), vec![7; N as usize]);
                }
                let stream = sim::stream();
                batch.wait(sim::on(stream)).expect("waits");
                let column = batch.column(0).expect("a column").buffers()[1] as u64;
                assert_eq!(sim::download(column, N / 2, stream), vec![8; N as usize / 2]);
                // Arrow requires one offset more than elements, and libcudf reads it on the device.
                let lists = batch.column(1).and_then(|rows| rows.child(0)).expect("lists");
                for empty in [lists, lists.child(0).expect("texts")] {
                    assert_eq!(sim::download(empty.buffers()[1] as u64, 4, stream), [0; 4]);
                }
                batch.used_on(sim::on(stream)).expect("used");
                sim::destroy(stream);
                "read"
            }
            "write" => {
                let stream = sim::stream();
                plain.wait(sim::on(stream)).expect("waits");
                sim::fill(plain.data() as u64, 9, N, stream);
                sim::synchronize(stream);
                sim::destroy(stream);
                assert_eq!(read(&again), vec![9; N as usize]);
                "written"
            }
            "release" => {
                // Work that is still queued when the last reference is dropped.
                let stream = sim::stream();
                let scratch = sim::alloc(N);
                for tensor in [&plain, &pooled] {
                    tensor.wait(sim::on(stream)).expect("waits");
                    sim::copy(scratch, tensor.data() as u64, N, stream);
                    tensor.used_on(sim::on(stream)).expect("used");
                }
                STREAM.with(|kept| kept.set((stream, scratch)));
                "released"
            }
            other => panic!("{other}"),
        },
        "release",
    );
    drop((plain, pooled, again, batch));
    sim::settle();
    let (stream, scratch) = STREAM.with(std::cell::Cell::get);
    sim::synchronize(stream);
    sim::destroy(stream);
    sim::free(scratch);
}

thread_local! {
    static STREAM: std::cell::Cell<(u64, u64)> = const { std::cell::Cell::new((0, 0)) };
}

/// The batch as a consumer of Arrow in the same process gets it: its order is known only as an event.
fn through_arrow(batch: Batch) -> Batch {
    let mut out = ArrowDeviceArray::RELEASED;
    let schema = batch.schema().clone();
    unsafe { batch.export_device(&raw mut out) }.expect("exported");
    assert!(!out.sync_event.is_null());
    unsafe { Batch::import_device(&raw mut out, &schema) }.expect("imported")
}

/// An exporter whose data is ready only after a foreign event records an event that processes can share; an importer hands
/// that event on.
#[test]
fn an_event_of_this_process_becomes_one_of_both() {
    const NAME: &str = "an_event_of_this_process_becomes_one_of_both";
    let session = Session::new();
    if part().is_some() {
        session.begin(sim::schedules(1)[0]);
        let imported = through_arrow(theirs("event").batch("batch").expect("imported"));
        let stream = sim::stream();
        imported.wait(sim::on(stream)).expect("waits");
        assert_eq!(
            sim::download(imported.column(0).expect("x").buffers()[1] as u64, N / 2, stream),
            vec![5; N as usize / 2]
        );
        imported.used_on(sim::on(stream)).expect("used");
        sim::destroy(stream);
        drop(imported);
        sim::settle();
        return say("done");
    }
    session.each(4, || {
        let server = ipc::Server::bind(&own("event")).expect("bound");
        let stream = sim::stream();
        server.offer_batch("batch", &through_arrow(batch(5, stream)), Copying::Never).expect("offered");
        let mut peer = start(NAME, "importer", &[]);
        peer.expect("done");
        peer.end();
        soon("it is released", || server.leases() == 0);
        server.withdraw("batch").expect("withdrawn");
        sim::synchronize(stream);
        sim::destroy(stream);
    });
}

/// Offers and imports call the driver in a way that leaves another stream's capture intact, also imports that fail.
#[test]
fn captures_of_others_stay_intact() {
    const NAME: &str = "captures_of_others_stay_intact";
    let session = Session::new();
    if part().is_some() {
        session.begin(sim::schedules(1)[0]);
        let (client, other) = (theirs("captures"), sim::stream());
        sim::begin_capture(other, 0);
        for name in ["plain", "pooled"] {
            if !sim::on_gpu() {
                sim::fail("cuIpcOpenEventHandle", 1, 801, false);
                client.tensor(name).expect_err("no event");
                sim::fail_clear();
            }
            drop(client.tensor(name).expect("imported"));
        }
        sim::settle();
        assert_eq!(sim::end_capture(other), 0, "the capture is intact");
        sim::destroy(other);
        return say("done");
    }
    session.each(5, || {
        let server = ipc::Server::bind(&own("captures")).expect("bound");
        let (stream, other) = (sim::stream(), sim::stream());
        let tensor = filled(plain(), 7, stream);
        server.offer_tensor("first", &tensor, Copying::Never).expect("offered");
        sim::begin_capture(other, 0);
        let pool = Pool::shareable(PoolOptions::default()).expect("a manager");
        let pooled =
            Tensor::allocate_with(&pool, CUDA0, DType::UINT8, &[N as i64], Some(sim::on(stream))).expect("a tensor");
        let pooled = filled(pooled, 8, stream);
        server.offer_tensor("plain", &tensor, Copying::Never).expect("offered");
        server.offer_tensor("pooled", &pooled, Copying::Never).expect("offered");
        let mut peer = start(NAME, "importer", &[]);
        peer.expect("done");
        peer.end();
        soon("it is released", || server.leases() == 0);
        drop((server, tensor, pooled, pool));
        sim::settle();
        assert_eq!(sim::end_capture(other), 0, "the capture is intact");
        sim::synchronize(stream);
        sim::destroy(stream);
        sim::destroy(other);
    });
}

#[test]
fn a_killed_importer_gives_device_memory_back() {
    const NAME: &str = "a_killed_importer_gives_device_memory_back";
    let session = Session::new();
    if part().is_some() {
        let client = theirs("killed");
        let _held = (client.tensor("t").expect("imported"), client.tensor("u").expect("imported"));
        say("holds");
        return ask("never asked");
    }
    session.each(1, || {
        let server = ipc::Server::bind(&own("killed")).expect("bound");
        let tensor = plain();
        ["t", "u"].iter().for_each(|name| server.offer_tensor(name, &tensor, Copying::Never).expect("offered"));
        drop(tensor);
        let mut peer = start(NAME, "importer", &[]);
        peer.expect("holds");
        assert_eq!((server.withdraw("t"), server.withdraw("u")), (Ok(true), Ok(true)));
        assert_eq!(server.leases(), 2);
        peer.kill();
        soon("it is released", || server.leases() == 0);
    });
}

#[test]
fn a_device_that_is_not_there_is_named() {
    const NAME: &str = "a_device_that_is_not_there_is_named";
    const ASKED: &str = "DEVX_DEVICE_ASKED_FOR";
    let uuid = |ordinal| {
        let uuid = info::device_info(ordinal).expect("a device").uuid;
        uuid.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    if part().is_some() {
        sim::cuda();
        let error = theirs("device").tensor("t").expect_err("refused");
        assert_eq!(error.status(), DEVX_DEVICE, "{error}");
        let asked = std::env::var(ASKED).expect("a UUID");
        let why = format!("uuid is {asked}: this process sees no such device, but {}", uuid(0));
        assert!(error.message().ends_with(&why), "{error}");
        return say("refused");
    }
    let _session = Session::new();
    if sim::skipped("the machine has one device, which both processes see") {
        return;
    }
    let server = ipc::Server::bind(&own("device")).expect("bound");
    let second = Device { kind: DeviceType::CUDA, id: 1 };
    let tensor = Tensor::allocate(second, DType::UINT8, &[64], None).expect("allocated");
    server.offer_tensor("t", &tensor, Copying::Never).expect("offered");
    let mut peer = start(NAME, "importer", &[("SIMCUDA_DEVICES", "1"), (ASKED, &uuid(1))]);
    peer.expect("refused");
    peer.end();
    soon("it is released", || server.leases() == 0);
}

#[test]
fn what_cannot_be_shared_says_why() {
    let _session = Session::new();
    let stream = sim::stream();
    let of = |kind| Tensor::allocate(Device { kind, id: 0 }, DType::UINT8, &[64], None).expect("allocated");
    let pooled = Tensor::allocate(CUDA0, DType::UINT8, &[64], Some(sim::on(stream))).expect("allocated");
    let cases = [
        (pooled, "of a pool that was not made to be shared"),
        (of(DeviceType::CUDA_HOST), "device is cuda_host:0: its memory cannot be shared"),
        (of(DeviceType::CUDA_MANAGED), "device is cuda_managed:0: its memory cannot be shared"),
    ];
    for (tensor, why) in cases {
        match ipc::plan_tensor(&tensor) {
            Plan::Copy { bytes: 64, reason } => assert!(reason.contains(why), "{reason}"),
            other => panic!("{other}"),
        }
        let error = ipc::export_tensor(&tensor, Copying::Never).expect_err("refused");
        assert!(error.status() == DEVX_COPY_REQUIRED && error.message().contains(why), "{error}");
        let says = ": a copy of 64 bytes is needed, which was not allowed";
        assert!(error.message().ends_with(says), "{error}");
        // What the driver said of the memory is still there.
        assert_eq!(error.driver_code() != 0, why.contains("pool"), "{error:?}");
        assert_eq!(error.message().contains("a manager's shareable pool is"), why.contains("pool"), "{error}");
    }
    // A process does not open its own memory. It does open its own pool, but not the event behind which the memory is
    // ready.
    let pool = Pool::shareable(PoolOptions::default()).expect("a pool");
    let of_pool = Tensor::allocate_with(&pool, CUDA0, DType::UINT8, &[64], Some(sim::on(stream))).expect("allocated");
    let own = [(plain(), "the memory is this process's own"), (of_pool, "the event is this process's own")];
    for (tensor, why) in own {
        let exported = ipc::export_tensor(&tensor, Copying::Never).expect("exported");
        let peer = ipc::Peer { id: 1, keep: Owner::none() };
        let fds = unsafe { exported.fds() }.map(|fd| fd.try_clone_to_owned().expect("another")).collect();
        let error = unsafe { ipc::import_tensor(exported.descriptor(), fds, peer) }.expect_err("its own");
        assert!(error.status() == DEVX_UNSUPPORTED && error.message().contains(why), "{error}");
    }
    cu_ok!("cuStreamSynchronize", stream);
    sim::settle();
    sim::destroy(stream);
}

/// A driver that fails says nothing about the memory, so a copy would be no remedy.
#[test]
fn a_failure_of_the_driver_is_not_taken_for_memory_that_cannot_be_shared() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    let _session = Session::new();
    let tensor = plain();
    for (code, status) in [(2, DEVX_OUT_OF_MEMORY), (700, DEVX_DRIVER), (7777, DEVX_DRIVER)] {
        for copying in [Copying::Never, Copying::IfNeeded] {
            sim::fail("cuIpcGetMemHandle", 1, code, false);
            let error = ipc::export_tensor(&tensor, copying).expect_err("a driver that fails");
            assert!(error.status() == status && error.driver_code() == code as i32, "{error}");
            assert!(error.message().contains("cuIpcGetMemHandle"), "{error}");
        }
    }
    sim::fail_clear();
    ipc::export_tensor(&tensor, Copying::Never).expect("the driver works again");
}

#[test]
fn run_by_threads() {
    sim::again_with_threads();
}
