//! Two devices in one exchange: copies between them, a consumer whose stream is on the other one, release after work
//! there.
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

use core::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::abi::types::{DEVX_DEVICE, DEVX_IMPOSSIBLE, DEVX_INVALID_STREAM, DEVX_NOT_READY};
use devexchange_core::arrow::ArrayBuilder;
use devexchange_core::dlpack::{self, Copying, Owned, Request};
use devexchange_core::manager::{Pool, PoolOptions};
use devexchange_core::runtime::releases_lost;
use devexchange_core::{Batch, DType, Device, DeviceType, Owner, Stream, Tensor, convert};
use devexchange_tests::cu_ok;
use devexchange_tests::devices::{CUDA1, Streams, numbers, require_numbers, two_devices};
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::sim;

const N: u64 = 256;
const SEEDS: u64 = 100;

#[test]
fn tensors_are_copied_both_ways_on_streams_of_either() {
    let Some(session) = two_devices() else { return };
    for (there, back) in [(CUDA0, CUDA0), (CUDA0, CUDA1), (CUDA1, CUDA0), (CUDA1, CUDA1)] {
        session.each(SEEDS, || {
            let streams = Streams::new();
            let at_zero = numbers().copy_to(CUDA0, streams.of(CUDA0)).expect("copied up");
            let at_one = at_zero.copy_to(CUDA1, streams.of(there)).expect("copied over");
            assert_eq!(at_one.device(), CUDA1);
            at_one.check_pointers().expect("it is where it says");
            drop(at_zero);
            let again = at_one.copy_to(CUDA0, streams.of(back)).expect("copied back");
            drop(at_one);
            again.check_pointers().expect("it is where it says");
            require_numbers(&again, streams.of(CUDA0));
            drop(again);
            streams.end();
        });
    }
}

#[test]
fn batches_are_copied_between_devices() {
    let Some(session) = two_devices() else { return };
    session.each(SEEDS, || {
        let streams = Streams::new();
        let data = sim::alloc(N);
        sim::fill(data, 0x5a, N, streams.zero);
        let mut batch = foreign::batch(data, N, CUDA0, move || sim::free(data));
        unsafe { batch.produced_on(streams.of(CUDA0)) }.expect("not shared");
        let over = batch.copy_to(CUDA1, streams.of(CUDA1)).expect("copied over");
        drop(batch);
        let back = over.copy_to(Device::CPU, streams.of(CUDA1)).expect("copied down");
        drop(over);
        assert!(back.root().values::<u8>().expect("bytes").iter().all(|byte| *byte == 0x5a));
        streams.end();
    });
}

/// The consumer works on device 1 with memory of device 0: the producer's queued work comes before.
#[test]
fn a_stream_of_the_other_device_waits() {
    let Some(session) = two_devices() else { return };
    session.each(SEEDS, || {
        let streams = Streams::new();
        let (data, scratch) = (sim::alloc(N), sim::alloc(N));
        sim::fill(data, 0x5a, N, streams.zero);
        let mut batch = foreign::batch(data, N, CUDA0, move || sim::free(data));
        unsafe { batch.produced_on(streams.of(CUDA0)) }.expect("not shared");
        let mut exported = MaybeUninit::<ArrowDeviceArray>::uninit();
        unsafe { batch.export_device(exported.as_mut_ptr()) }.map_err(|refused| refused.error).expect("exported");
        let mut exported = unsafe { exported.assume_init() };
        let schema = foreign::bytes_schema();
        let imported = unsafe { Batch::import_device(&raw mut exported, &schema) }.expect("imported");
        imported.wait(streams.of(CUDA1)).expect("waits");
        sim::copy(scratch, data, N, streams.one);
        imported.used_on(streams.of(CUDA1)).expect("noted");
        drop(imported);
        assert!(sim::download(scratch, N, streams.one).iter().all(|byte| *byte == 0x5a));
        sim::free(scratch);
        streams.end();
    });
}

#[test]
fn a_wait_that_is_left_out_is_found() {
    let Some(session) = two_devices() else { return };
    session.races(20, || {
        let streams = Streams::new();
        let (data, scratch) = (sim::alloc(N), sim::alloc(N));
        sim::fill(data, 0x5a, N, streams.zero);
        sim::copy(scratch, data, N, streams.one);
        sim::synchronize(streams.one);
        sim::synchronize(streams.zero);
        sim::free(data);
        sim::free(scratch);
        streams.end();
    });
}

/// A copy on a stream of the other device runs aside. If neither that stream nor the host can wait for it, nobody knows
/// when it has finished reading and writing its memory.
#[test]
fn copies_aside_that_cannot_be_waited_for_keep_what_they_use() {
    let Some(session) = two_devices() else { return };
    session.begin(sim::schedules(1)[0]);
    type Act = fn(&Batch, &Tensor, Stream) -> devexchange_core::Result<()>;
    // With the number of things lost: the memory, and what is made for the copy.
    let acts: [(&str, i64, Act); 6] = [
        ("copy", 2, |_, tensor, stream| tensor.copy_to(CUDA0, stream).map(drop)),
        ("copy of a batch", 2, |batch, _, stream| batch.copy_to(CUDA0, stream).map(drop)),
        ("matrix", 2, |batch, _, stream| convert::matrix(batch, Copying::Always, Some(stream)).map(drop)),
        ("nulls", 2, |batch, _, stream| batch.root().child(0).expect("a column").null_count_on(stream).map(drop)),
        ("read", 1, |_, tensor, stream| tensor.read(&mut [0; N as usize], Some(stream))),
        ("write", 1, |_, tensor, stream| unsafe { tensor.write(&[0; N as usize], Some(stream)) }),
    ];
    for (name, expected, act) in acts {
        let (streams, data) = (Streams::new(), sim::alloc(N));
        sim::fill(data, 1, N, streams.zero);
        sim::synchronize(streams.zero);
        let released = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&released);
        let address = std::ptr::with_exposed_provenance(data as usize);
        let mut tensor = foreign::tensor(data, N, CUDA0, move || seen.store(true, SeqCst));
        unsafe { tensor.produced_on(streams.of(CUDA1)) }.expect("not shared");
        let owner = Owner::new(tensor.clone());
        let column = ArrayBuilder::new("x", "C", N as i64).buffer(address).buffer(address);
        let column = if name == "matrix" { column.null_count(0) } else { column };
        let table = ArrayBuilder::batch(N as i64).child(column).owner(owner);
        let mut batch = unsafe { table.build(CUDA0) }.map_err(|refused| refused.error).expect("well-formed");
        unsafe { batch.produced_on(streams.of(CUDA1)) }.expect("not shared");
        let lost = releases_lost();
        // The first event is that of the work that the copy comes after.
        sim::fail("cuEventRecord", 2, 719, false);
        sim::fail("cuStreamSynchronize", 1, 719, false);
        act(&batch, &tensor, streams.of(CUDA1)).expect_err("the copy cannot be waited for");
        sim::fail_clear();
        drop((batch, tensor));
        sim::settle();
        assert_eq!((released.load(SeqCst), releases_lost() - lost), (false, expected), "{name}");
        cu_ok!("cuCtxSynchronize");
        assert!(sim::take_findings().is_empty(), "{name}");
        sim::free(data);
        streams.end();
    }
    session.accept();
}

/// Memory of device 0 and of its pool, used on a stream of device 1: it is given back after that work, from a thread on
/// which neither device's context is current.
#[test]
fn release_waits_for_work_on_the_other_device() {
    let Some(session) = two_devices() else { return };
    session.each(SEEDS, || {
        let streams = Streams::new();
        let released = Arc::new(AtomicBool::new(false));
        let (data, scratch) = (sim::alloc(N), sim::alloc(N));
        let seen = Arc::clone(&released);
        sim::fill(data, 1, N, streams.zero);
        let mut foreign = foreign::tensor(data, N, CUDA0, move || {
            sim::free(data);
            seen.store(true, SeqCst);
        });
        unsafe { foreign.produced_on(streams.of(CUDA0)) }.expect("not shared");
        sim::let_at_pool(0, 1, true);
        let pool = Tensor::allocate(CUDA0, DType::UINT8, &[N as i64], Some(streams.of(CUDA0))).expect("allocated");
        let exported: Owned<DLManagedTensorVersioned> =
            dlpack::export(foreign, &Request { stream: sim::raw(streams.one as i64), ..Request::default() })
                .expect("exported");
        let imported =
            unsafe { dlpack::import_on(exported.into_raw(), Some(sim::raw(streams.one as i64))) }.expect("imported");
        pool.wait(streams.of(CUDA1)).expect("waits");
        sim::copy(pool.data().expose_provenance() as u64, data, N, streams.one);
        sim::copy(scratch, pool.data().expose_provenance() as u64, N, streams.one);
        imported.used_on(streams.of(CUDA1)).expect("noted");
        pool.used_on(streams.of(CUDA1)).expect("noted");
        let releaser = std::thread::spawn(move || {
            sim::set_current(0);
            drop((imported, pool));
            assert_eq!(sim::current(), 0);
        });
        releaser.join().expect("released");
        assert!(sim::download(scratch, N, streams.one).iter().all(|byte| *byte == 1));
        sim::settle();
        assert!(released.load(SeqCst));
        sim::free(scratch);
        sim::let_at_pool(0, 1, false);
        streams.end();
    });
}

/// Pinned memory belongs to no device: the stream that it was used on decides whose events to wait for.
#[test]
fn pinned_memory_follows_the_stream_that_is_named() {
    let Some(session) = two_devices() else { return };
    session.each(SEEDS, || {
        let streams = Streams::new();
        let pinned = Device { kind: DeviceType::CUDA_HOST, id: 0 };
        let at_one = numbers().copy_to(CUDA1, streams.of(CUDA1)).expect("copied up");
        let host = at_one.copy_to(pinned, streams.of(CUDA1)).expect("copied down");
        drop(at_one);
        assert_eq!(host.as_slice::<i32>().expect_err("nobody waited").status(), DEVX_NOT_READY);
        host.wait(streams.of(CUDA0)).expect("waits");
        let at_zero = host.copy_to(CUDA0, streams.of(CUDA0)).expect("copied up again");
        host.used_on(streams.of(CUDA0)).expect("noted");
        drop(host);
        require_numbers(&at_zero, streams.of(CUDA0));
        drop(at_zero);
        streams.end();
    });
}

/// A manager has a pool on each device that it is asked for.
#[test]
fn memory_of_a_pool_is_on_the_device_that_is_named() {
    let Some(session) = two_devices() else { return };
    session.each(1, || {
        let streams = Streams::new();
        let pool = Pool::new(PoolOptions::default()).expect("a manager");
        for device in [CUDA0, CUDA1] {
            let on = streams.of(device);
            let made = Tensor::allocate_with(&pool, device, DType::UINT8, &[3], Some(on)).expect("allocated");
            assert_eq!(made.device(), device);
            made.check_pointers().expect("it is where it says");
        }
        let of_other = Some(streams.of(CUDA1));
        let refused = Tensor::allocate_with(&pool, CUDA0, DType::UINT8, &[3], of_other).expect_err("another device");
        assert_eq!(refused.status(), DEVX_INVALID_STREAM);
        drop(pool);
        streams.end();
    });
}

/// It has the number that Arrow or DLPack gives it, or that of the device that it is made for.
#[test]
fn memory_of_no_device_is_allocated_under_any_number() {
    let Some(session) = two_devices() else { return };
    session.each(1, || {
        for kind in [DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED] {
            for (id, length) in [(-1, 0), (-1, 3), (0, 3), (1, 3)] {
                let made = Tensor::allocate(Device { kind, id }, DType::UINT8, &[length], None).expect("allocated");
                assert_eq!(made.device(), Device { kind, id: 0 });
            }
            let refused = Tensor::allocate(Device { kind, id: 2 }, DType::UINT8, &[3], None).expect_err("no device");
            assert_eq!(refused.status(), DEVX_DEVICE);
        }
        sim::settle();
    });
}

/// The same for a matrix of a batch's columns as for a copy of the batch.
#[test]
fn a_matrix_is_gathered_on_a_stream_of_the_other_device() {
    let Some(session) = two_devices() else { return };
    session.each(20, || {
        let streams = Streams::new();
        let (values, others) = (vec![1_i32, 2, 3], vec![4_i32, 5, 6]);
        let column = |name, values: &[i32]| {
            ArrayBuilder::new(name, "i", 3).buffer(std::ptr::null()).buffer(values.as_ptr().cast())
        };
        let table = ArrayBuilder::batch(3).child(column("a", &values)).child(column("b", &others));
        let host = unsafe { table.owner(Owner::new((values, others))).build(Device::CPU) }.expect("built");
        let batch = host.copy_to(CUDA0, streams.of(CUDA0)).expect("copied");
        let matrix = convert::matrix(&batch, Copying::Always, Some(streams.of(CUDA1))).expect("gathered");
        drop(batch);
        assert_eq!((matrix.device(), matrix.shape()), (CUDA0, &[3, 2][..]));
        matrix.check_pointers().expect("it is where it says");
        drop(matrix);
        streams.end();
    });
}

/// Arrow gives memory that belongs to no particular device the number -1, which is not the number of a device.
#[test]
fn devices_have_the_numbers_of_their_standards() {
    let Some(_session) = two_devices() else { return };
    for (kind, ids) in [
        (DeviceType::CUDA, &[(0, 0), (1, 1)][..]),
        (DeviceType::CUDA_HOST, &[(-1, 0), (0, 0), (1, 0)]),
        (DeviceType::CUDA_MANAGED, &[(-1, 0), (0, 0), (1, 0)]),
    ] {
        for (id, ours) in ids {
            assert_eq!(Device::new(kind, *id), Ok(Device { kind, id: *ours }));
        }
    }
    for (kind, id) in [(DeviceType::CUDA, -1), (DeviceType::CUDA, 2), (DeviceType::CUDA_HOST, -2)] {
        let error = Device::new(kind, id).expect_err("there are two");
        assert_eq!(error.status(), DEVX_DEVICE, "{error}");
        assert!(error.message().contains(&format!("device_id is {id}")), "{error}");
    }
    assert_eq!((CUDA1.arrow_id(), Device::CPU.arrow_id()), (1, -1));
    assert_eq!(Device::count(DeviceType::CUDA), Ok(2));
}

#[test]
fn the_host_reads_no_memory_of_a_device() {
    let Some(_session) = two_devices() else { return };
    let tensor = Tensor::allocate(CUDA1, DType::UINT8, &[4], None).expect("allocated");
    let refused = tensor.as_slice::<u8>().expect_err("not the host's");
    assert_eq!((refused.status(), refused.message()), (DEVX_DEVICE, "device is cuda:1, not host memory"));
    drop(tensor);
    sim::settle();
}

/// Arrays without elements need no offsets, but their copies have one, which the host writes.
#[test]
fn texts_without_rows_are_copied_between_devices() {
    let Some(session) = two_devices() else { return };
    session.each(20, || {
        let streams = Streams::new();
        let data = sim::alloc(N);
        sim::fill(data, 0, N, streams.zero);
        let at = std::ptr::with_exposed_provenance::<c_void>(data as usize);
        let texts = |length| ArrayBuilder::new("t", "u", length).buffer(std::ptr::null()).buffer(at).buffer(at);
        let lists = ArrayBuilder::new("l", "+l", 3).buffer(std::ptr::null()).buffer(at).child(texts(0));
        for (rows, column) in [(0, texts(0)), (3, lists)] {
            let mut batch = unsafe { ArrayBuilder::batch(rows).child(column).build(CUDA0) }.expect("a batch");
            unsafe { batch.produced_on(streams.of(CUDA0)) }.expect("not shared");
            let over = batch.copy_to(CUDA1, streams.of(CUDA0)).expect("copied over");
            let back = over.copy_to(Device::CPU, streams.of(CUDA1)).expect("copied down");
            let column = back.column(0).expect("a column");
            assert_eq!(column.length(), rows);
            for row in (0..rows).filter(|_| column.child(0).is_some()) {
                assert_eq!(column.list(row).map(|list| list.length()), Ok(0));
            }
        }
        sim::settle();
        sim::free(data);
        streams.end();
    });
}

/// A matrix of Arrow columns is column-major, and a part of its rows has gaps: both stay that way on a device, and the
/// host collects the elements.
#[test]
fn elements_in_another_order_are_copied() {
    let Some(session) = two_devices() else { return };
    session.each(20, || {
        let streams = Streams::new();
        let whole = Tensor::from_vec((0..24).collect::<Vec<i32>>(), &[4, 6]).expect("a tensor");
        let at_zero = whole.copy_to(CUDA0, streams.of(CUDA0)).expect("copied up");
        let part = at_zero.slice(1, 1, 3).expect("there are so many");
        let elements = [1, 2, 3, 7, 8, 9, 13, 14, 15, 19, 20, 21];
        let down = part.copy_to(Device::CPU, streams.of(CUDA0)).expect("copied down");
        assert_eq!(down.as_slice::<i32>(), Ok(&elements[..]));
        let over = part.copy_to(CUDA1, streams.of(CUDA1)).expect("copied over");
        over.check_pointers().expect("it is where it says");
        assert_eq!(over.strides(), [6, 1]);
        let down = over.copy_to(Device::CPU, streams.of(CUDA1)).expect("copied down");
        assert_eq!(down.as_slice::<i32>(), Ok(&elements[..]));
        let up = whole.slice(1, 1, 3).expect("so many").copy_to(CUDA0, streams.of(CUDA0)).expect("copied up");
        assert_eq!(up.strides(), [3, 1]);
        let column = |name| ArrayBuilder::new(name, "i", 2).buffer(std::ptr::null());
        let [first, second] = [[1, 2], [3, 4]].map(|values: [i32; 2]| Arc::new(values));
        let columns = [("a", &first), ("b", &second)]
            .map(|(name, values)| column(name).buffer(values.as_ptr().cast()).owner(Owner::new(Arc::clone(values))));
        let batch = columns.into_iter().fold(ArrayBuilder::batch(2), ArrayBuilder::child);
        let batch = unsafe { batch.build(Device::CPU) }.expect("a batch");
        let batch = batch.copy_to(CUDA0, streams.of(CUDA0)).expect("copied up");
        let matrix = convert::matrix(&batch, Copying::IfNeeded, Some(streams.of(CUDA0))).expect("a matrix");
        let down = matrix.copy_to(Device::CPU, streams.of(CUDA0)).expect("copied down");
        assert_eq!(down.as_slice::<i32>(), Ok(&[1, 3, 2, 4][..]));
        drop((at_zero, part, over, up, batch, matrix));
        streams.end();
    });
}

/// If a conversion needs a copy, the host makes it: a plan does not promise a copy of memory that the host cannot read.
#[test]
fn plans_for_a_device_promise_no_copy_that_the_host_would_make() {
    let Some(session) = two_devices() else { return };
    let streams = Streams::new();
    let whole = Tensor::from_vec((0..24).collect::<Vec<i32>>(), &[4, 6]).expect("a tensor");
    let bools = Tensor::allocate(Device::CPU, DType::BOOL, &[8], None).expect("a tensor");
    let bits = convert::column(&bools, "x", Copying::IfNeeded).expect("a column");
    let up = |tensor: &Tensor| tensor.copy_to(CUDA0, streams.of(CUDA0)).expect("copied up");
    let (part, bools) = (up(&whole).slice(1, 1, 3).expect("there are so many"), up(&bools));
    let bits = bits.copy_to(CUDA0, streams.of(CUDA0)).expect("copied up");
    let plans = [
        convert::plan_column(&part),
        convert::plan_column(&bools),
        convert::plan_fixed_shape_column(&part),
        convert::plan_batch(&part),
        convert::plan_tensor(bits.root()).expect("a plan"),
    ];
    for plan in plans {
        let reason = format!("{plan}");
        assert!(
            reason.starts_with("impossible: ") && reason.ends_with("cannot read cuda:0: copy_to first"),
            "{reason}"
        );
    }
    let refused = convert::column(&part, "x", Copying::IfNeeded).expect_err("a copy");
    assert_eq!(refused.status(), DEVX_IMPOSSIBLE);
    drop((part, bools, bits));
    sim::settle();
    streams.end();
    session.accept();
}

#[test]
fn a_stream_of_the_wrong_device_is_named() {
    let Some(session) = two_devices() else { return };
    let streams = Streams::new();
    let mistaken = sim::on_device(1, streams.zero);
    match Tensor::allocate(CUDA1, DType::UINT8, &[4], Some(mistaken)) {
        Err(error) => assert!(error.message().contains("stream"), "{error}"),
        Ok(tensor) => tensor.check_pointers().expect("then it is where it says"),
    }
    cu_ok!("cuCtxSetCurrent", sim::primary(0));
    sim::settle();
    streams.end();
    session.accept();
}
