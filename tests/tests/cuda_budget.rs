//! The exact cost of an exchange in driver calls: counts do not jitter.
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

use std::collections::BTreeMap;
use std::mem::MaybeUninit;

use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::arrow::release_array;
use devexchange_core::dlpack::{self, Copying, Request};
use devexchange_core::runtime::cuda::Event;
use devexchange_core::{Batch, DType, RawStream, Tensor, convert};
use devexchange_tests::cu_ok;
use devexchange_tests::foreign::{self, CUDA0, bytes_schema};
use devexchange_tests::sim::{self, Session};

const N: u64 = 256;

/// The functions that the core calls, except the two that find and restore the context.
const FUNCTIONS: [&str; 18] = [
    "cuStreamIsCapturing",
    "cuStreamGetCtx",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventDestroy_v2",
    "cuStreamWaitEvent",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuPointerGetAttributes",
    "cuMemAlloc_v2",
    "cuMemAllocAsync",
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemcpyAsync",
    "cuMemcpyPeerAsync",
    "cuCtxGetDevice",
    "cuThreadExchangeStreamCaptureMode",
];
const CONTEXT: [&str; 3] = ["cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"];

/// The driver calls in `act`: the listed functions that occur, and `*` for the number of all calls, including the
/// contexts'.
fn cost<T>(act: impl FnOnce() -> T) -> (BTreeMap<&'static str, u64>, T) {
    let count = || FUNCTIONS.iter().chain(&CONTEXT).chain(&["*"]).map(|name| (*name, sim::calls(name)));
    let before: BTreeMap<_, _> = count().collect();
    let result = act();
    let mut cost: BTreeMap<_, _> = count().map(|(name, now)| (name, now - before[name])).collect();
    let (all, context) = (cost["*"], CONTEXT.iter().filter_map(|name| cost.remove(name)).sum::<u64>());
    cost.retain(|_, count| *count > 0);
    let listed: u64 = FUNCTIONS.iter().filter_map(|name| cost.get(name)).sum();
    assert_eq!(all, listed + context, "a call that is not listed: {cost:?}");
    cost.remove("*");
    (cost, result)
}

macro_rules! budget {
    ($what:expr; $($name:literal: $count:literal),*) => {{
        let (cost, result) = cost(|| $what);
        assert_eq!(cost, BTreeMap::from([$(($name, $count)),*]), "{}", stringify!($what));
        result
    }};
}

fn export(tensor: &Tensor, stream: u64) -> dlpack::Owned<DLManagedTensorVersioned> {
    let request = Request { stream: sim::raw(stream as i64), ..Request::default() };
    dlpack::export(tensor.clone(), &request).expect("exported")
}

fn export_arrow(batch: &Batch) -> devexchange_core::abi::arrow_device::ArrowDeviceArray {
    let mut out = MaybeUninit::uninit();
    unsafe { batch.clone().export_device(out.as_mut_ptr()) }.expect("exported");
    unsafe { out.assume_init() }
}

fn release(mut array: devexchange_core::abi::arrow_device::ArrowDeviceArray) {
    unsafe { release_array(&raw mut array.array) }
}

#[test]
fn calls_for_each_operation() {
    let session = Session::new();
    if sim::skipped("the calls are counted by the simulated driver") {
        return;
    }
    session.begin(sim::schedules(1)[0]);
    let (data, stream, other) = (sim::alloc(N), sim::stream(), sim::stream());
    // Warm-up: afterwards the contexts are retained, and two events are in the pool.
    let warm = foreign::tensor(data, N, CUDA0, || ());
    let events = [(); 4].map(|()| convert::column(&warm, "x", Copying::Never).expect("a view"));
    let exports = events.each_ref().map(export_arrow);
    exports.into_iter().for_each(release);
    drop((events, warm));

    // DLPack.
    let managed = foreign::dlpack(data, N, CUDA0, || ());
    let tensor =
        budget!(unsafe { dlpack::import_on(managed.as_ptr(), Some(sim::raw(stream as i64))) }.expect("imported"););
    budget!(tensor.wait(sim::on(stream)).expect("the same stream"););
    let same = budget!(export(&tensor, stream););
    budget!(drop(same););
    let unsynchronised = budget!(export(&tensor, -1_i64 as u64););
    budget!(drop(unsynchronised););
    let exported = budget!(export(&tensor, other);
        "cuStreamIsCapturing": 2, "cuStreamGetCtx": 2, "cuEventRecord": 1, "cuStreamWaitEvent": 1);
    budget!(drop(exported););
    let legacy = budget!(
        dlpack::export::<DLManagedTensor>(tensor.clone(), &Request { stream: RawStream::LEGACY, ..Request::default() });
        "cuStreamIsCapturing": 2, "cuStreamGetCtx": 1, "cuEventRecord": 1, "cuStreamWaitEvent": 1);
    drop(legacy.expect("exported"));
    budget!(tensor.used_on(sim::on(other)).expect("used");
        "cuStreamIsCapturing": 1, "cuStreamGetCtx": 1, "cuEventRecord": 1);
    // However often a stream is named, its last use stands for all of them.
    for _ in 0..3 {
        budget!(tensor.used_on(sim::on(other)).expect("used");
            "cuStreamIsCapturing": 1, "cuStreamGetCtx": 2, "cuEventRecord": 1, "cuStreamWaitEvent": 1);
    }

    // Conversions, and Arrow.
    let column = budget!(convert::column(&tensor, "x", Copying::Never).expect("a view"););
    let again = budget!(convert::tensor(column.root(), Copying::Never).expect("a view"););
    budget!(drop(again););
    let mut array = budget!(export_arrow(&column); "cuStreamIsCapturing": 1, "cuStreamGetCtx": 1, "cuEventRecord": 1);
    let batch = budget!(unsafe { Batch::import_device(&raw mut array, column.schema()) }.expect("imported"););
    budget!(batch.wait(sim::on(other)).expect("waits");
        "cuStreamIsCapturing": 1, "cuStreamGetCtx": 1, "cuStreamWaitEvent": 1);
    let reexported = budget!(export_arrow(&batch););
    budget!(release(reexported););
    budget!(drop(batch););
    let event = sim::event();
    cu_ok!("cuEventRecord", event, stream);
    let mut array = foreign::arrow(data, N, CUDA0, event, || ());
    let batch = budget!(unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported"););
    budget!(batch.wait(sim::on(other)).expect("waits");
        "cuStreamIsCapturing": 1, "cuStreamGetCtx": 1, "cuStreamWaitEvent": 1);
    budget!(drop(batch););
    let ready = {
        let mut array = foreign::arrow(data, N, CUDA0, 0, || ());
        unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported")
    };
    budget!(ready.wait(sim::on(other)).expect("ready"););
    budget!(drop(ready););
    drop((column, tensor));
    sim::settle();

    // Memory.
    let pool = budget!(Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(sim::on(stream))).expect("allocated");
        "cuStreamGetCtx": 1, "cuCtxGetDevice": 1, "cuStreamIsCapturing": 1, "cuMemAllocAsync": 1,
        "cuThreadExchangeStreamCaptureMode": 2);
    budget!(drop(pool); "cuStreamIsCapturing": 1, "cuMemFreeAsync": 1);
    let device = budget!(Tensor::allocate(CUDA0, DType::UINT8, &[16], None).expect("allocated");
        "cuMemAlloc_v2": 1, "cuThreadExchangeStreamCaptureMode": 2);
    budget!({ drop(device); sim::settle() }; "cuMemFree_v2": 1);

    sim::synchronize(stream);
    sim::synchronize(other);
    cu_ok!("cuEventDestroy_v2", event);
    sim::free(data);
    sim::destroy(stream);
    sim::destroy(other);
}

/// With few streams the driver is not asked. If more streams have used something, it is asked, once for all of them.
#[test]
fn calls_for_uses_on_many_streams() {
    let session = Session::new();
    if sim::skipped("the calls are counted by the simulated driver") {
        return;
    }
    session.begin(sim::schedules(1)[0]);
    let (data, streams) = (sim::alloc(N), [(); 40].map(|()| sim::stream()));
    // Warm-up: the pool then has events for all that are in use at once.
    drop(streams.map(|stream| Event::record(sim::on(stream)).expect("recorded")));
    let tensor = foreign::tensor(data, N, CUDA0, || ());
    for (used, stream) in streams.into_iter().enumerate() {
        if used > 0 && used % 16 == 0 {
            budget!(tensor.used_on(sim::on(stream)).expect("used");
                "cuStreamIsCapturing": 1, "cuStreamGetCtx": 1, "cuEventRecord": 1,
                "cuEventQuery": 16, "cuThreadExchangeStreamCaptureMode": 2);
        } else {
            budget!(tensor.used_on(sim::on(stream)).expect("used");
                "cuStreamIsCapturing": 1, "cuStreamGetCtx": 1, "cuEventRecord": 1);
        }
        sim::synchronize(stream);
    }
    drop(tensor);
    sim::settle();
    streams.into_iter().for_each(sim::destroy);
    sim::free(data);
}

#[test]
fn events_are_made_once() {
    let session = Session::new();
    if sim::skipped("the calls are counted by the simulated driver") {
        return;
    }
    let (data, stream) = (sim::alloc(N), sim::stream());
    let batch = foreign::batch_behind(stream, data, N, CUDA0, || ());
    release(export_arrow(&batch));
    let before = sim::calls("cuEventCreate");
    for schedule in sim::schedules(100) {
        session.begin(schedule);
        release(export_arrow(&batch));
        batch.wait(sim::on(1)).expect("waits");
    }
    assert_eq!(sim::calls("cuEventCreate"), before);
    drop(batch);
    cu_ok!("cuCtxSynchronize");
    sim::free(data);
    sim::destroy(stream);
}

/// Events are kept for reuse if the context stays. The library finds out which context that is without making it: in a
/// program with its own context, no other context is retained.
#[test]
fn events_are_kept_of_primary_contexts_that_are_in_use() {
    // A device is used for the first time only once in a process.
    let test = "events_are_kept_of_primary_contexts_that_are_in_use";
    if sim::skipped("the calls are counted by the simulated driver") || !sim::is_apart(test, &[]) {
        return;
    }
    let made_by = |stream: u64| {
        let before = sim::calls("cuEventCreate");
        for _ in 0..3 {
            drop(Event::record(sim::on(stream)).expect("recorded"));
        }
        sim::calls("cuEventCreate") - before
    };
    cu_ok!("cuInit", 0);
    let mut own = 0_u64;
    cu_ok!("cuCtxCreate_v2", &raw mut own, 0, 0);
    let of_own = sim::stream();
    assert_eq!((made_by(of_own), sim::stat("live_contexts"), sim::stat("live_events")), (3, 1, 0));
    sim::set_current(sim::primary(0));
    let of_primary = sim::stream();
    // It counts as two: the program and the library retain it.
    assert_eq!((made_by(of_primary), sim::stat("live_contexts"), sim::stat("live_events")), (1, 3, 1));
    // Now that it is known, the driver is no longer asked, whoever owns the stream.
    let asked = sim::calls("cuDevicePrimaryCtxGetState");
    assert_eq!((made_by(of_primary), made_by(of_own)), (0, 3));
    assert_eq!(sim::calls("cuDevicePrimaryCtxGetState"), asked);
    sim::finish([of_own, of_primary]);
}
