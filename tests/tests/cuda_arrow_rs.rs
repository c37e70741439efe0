//! CUDA memory that the host can read goes to arrow-rs at its address, once it is ready; other memory is refused.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use arrow_array::{Array, RecordBatchReader};
use devexchange_core::abi::types::{DEVX_DEVICE, DEVX_NOT_READY};
use devexchange_core::{Batch, BatchStream, Device, DeviceType, Stream};
use devexchange_tests::foreign::{self, CUDA0, bytes_schema};
use devexchange_tests::sim::{self, Session};
use devexchange_tests::{cu, cu_ok};

const N: u64 = 64;
const PINNED: Device = Device { kind: DeviceType::CUDA_HOST, id: 0 };

/// Pinned memory of a foreign producer, after `event`; 0 means that it is ready.
fn pinned(event: u64) -> Batch {
    let data = sim::alloc_host(N);
    let mut array = foreign::arrow(data, N, PINNED, event, move || {
        cu!("cuMemFreeHost", data);
    });
    // SAFETY: a valid array of bytes, owned here.
    unsafe { Batch::import_device(&mut array, &bytes_schema()) }.expect("imported")
}

/// A record batch of one column.
fn rows(column: &Batch) -> Batch {
    let stream = Stream::legacy(0);
    Batch::of_columns(&[("bytes", column)], Some(stream)).expect("a batch")
}

#[test]
fn pinned_memory_that_is_ready_is_shared() {
    let _session = Session::new();
    let batch = pinned(0);
    let address = batch.root().buffers()[1];
    let theirs = batch.to_arrow_rs().expect("handed over");
    drop(batch);
    let data = theirs.to_data();
    assert_eq!((theirs.len() as u64, data.buffers()[0].as_ptr().cast()), (N, address));
}

#[test]
fn what_is_queued_or_on_a_device_is_refused() {
    let _session = Session::new();
    sim::set_schedule(sim::schedules(1)[0]);
    let (stream, event, data) = (sim::stream(), sim::event(), sim::alloc(N));
    sim::fill(data, 1, N, stream);
    cu_ok!("cuEventRecord", event, stream);
    match pinned(event).to_arrow_rs() {
        Err(error) => assert_eq!(error.status(), DEVX_NOT_READY, "{error}"),
        Ok(_) => assert!(sim::goes_on(), "nothing is done here before it is waited for"),
    }
    cu_ok!("cuStreamSynchronize", stream);
    let error = foreign::batch(data, N, CUDA0, move || sim::free(data)).to_arrow_rs().expect_err("not host memory");
    assert_eq!(error.status(), DEVX_DEVICE, "{error}");
    cu_ok!("cuEventDestroy_v2", event);
    sim::destroy(stream);
}

/// Nothing is queued for arrow-rs, after which data on the same stream would not be ready.
#[test]
fn a_reader_passes_batches_of_a_stream_whose_work_is_done() {
    let _session = Session::new();
    sim::set_schedule(sim::schedules(1)[0]);
    let stream = sim::stream();
    let produced = || {
        let mut batch = rows(&pinned(0));
        // SAFETY: all work on the memory is done.
        unsafe { batch.produced_on(sim::on(stream)) }.expect("not shared");
        batch
    };
    let batches = [produced(), produced()];
    let schema = batches[0].schema().clone();
    let reader = BatchStream::of(&schema, PINNED.kind, batches.map(Ok)).expect("a stream").to_arrow_rs();
    let lengths: Vec<u64> = reader.expect("a reader").map(|batch| batch.expect("ready").num_rows() as u64).collect();
    assert_eq!(lengths, [N, N]);
    sim::destroy(stream);
}

#[test]
fn a_reader_ends_at_what_is_not_ready() {
    let _session = Session::new();
    if sim::skipped("a GPU may be done with it at once") {
        return;
    }
    sim::set_schedule(sim::schedules(1)[0]);
    let (stream, event, scratch) = (sim::stream(), sim::event(), sim::alloc(N));
    sim::fill(scratch, 1, N, stream);
    cu_ok!("cuEventRecord", event, stream);
    let batches = [rows(&pinned(0)), rows(&pinned(event)), rows(&pinned(0))];
    let schema = batches[0].schema().clone();
    let mut reader =
        BatchStream::of(&schema, PINNED.kind, batches.map(Ok)).expect("a stream").to_arrow_rs().expect("a reader");
    assert_eq!(reader.schema().field(0).name(), "bytes");
    assert_eq!(reader.next().map(|batch| batch.expect("ready").num_rows() as u64), Some(N));
    let error = reader.next().expect("an error").expect_err("not ready").to_string();
    assert!(error.contains("queued on stream 0x"), "{error}");
    assert!(reader.next().is_none());
    drop(reader);

    let on_device = BatchStream::of(&schema, DeviceType::CUDA, std::iter::empty()).expect("a stream");
    let error = on_device.to_arrow_rs().map(drop).expect_err("not host memory");
    assert_eq!((error.status(), error.message()), (DEVX_DEVICE, "device_type is cuda (2): arrow-rs reads host memory"));
    cu_ok!("cuStreamSynchronize", stream);
    sim::free(scratch);
    cu_ok!("cuEventDestroy_v2", event);
    sim::destroy(stream);
}
