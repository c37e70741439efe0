//! Bad input on CUDA: a clear error with the driver's code and the name of the call, and nothing lost.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

use std::ffi::c_void;
use std::ptr::null;

use devexchange_core::abi::types::{
    DEVX_DEVICE, DEVX_DRIVER, DEVX_INVALID_STREAM, DEVX_NULL_ARGUMENT, DEVX_OUT_OF_MEMORY, DevxStatus,
};
use devexchange_core::arrow::Schema;
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::dlpack;
use devexchange_core::{Batch, DType, Device, DeviceType, Error, Owner, RawStream, Result, Stream, Tensor};
use devexchange_tests::cu_ok;
use devexchange_tests::foreign::{self, CUDA0, bytes_schema};
use devexchange_tests::sim::{self, Session};

const N: u64 = 256;

#[track_caller]
fn check(error: &Error, status: DevxStatus, code: i32, texts: &[&str]) {
    assert_eq!((error.status(), error.driver_code()), (status, code), "{error}");
    texts.iter().for_each(|text| assert!(error.message().contains(text), "{text:?} is not in: {error}"));
}

/// `is` asks the driver about a number of bytes at an address of a kind of memory; the text of its refusals begins with
/// `prefix`.
fn refuses_what_is_somewhere_else(is: impl Fn(u64, u64, DeviceType) -> Result<()>, prefix: &str) {
    let _session = Session::new();
    let (device, pinned, host) = (sim::alloc(N), sim::alloc_host(N), [0_u8; N as usize]);
    is(device, N, DeviceType::CUDA).expect("it is");
    is(device + 16, N - 16, DeviceType::CUDA).expect("it is");
    is(pinned, N, DeviceType::CUDA_HOST).expect("it is");
    is(host.as_ptr() as u64, N, DeviceType::CPU).expect("nobody else knows");
    is(host.as_ptr() as u64, 0, DeviceType::CUDA).expect("nothing of it is used");
    let refused = [
        (is(device, N, DeviceType::CUDA_HOST), "cuda:0, but declared as cuda_host:0"),
        (is(device, N, DeviceType::CUDA_MANAGED), "declared as cuda_managed:0"),
        (is(pinned, N, DeviceType::CUDA), "cuda_host:0, but declared as cuda:0"),
        (is(host.as_ptr() as u64, N, DeviceType::CUDA), "is not CUDA memory"),
        (is(device + 16, N, DeviceType::CUDA), "ends after 240"),
    ];
    for (refused, text) in refused {
        check(&refused.expect_err("not there"), DEVX_DEVICE, 0, &[text, prefix]);
    }
    sim::free(device);
    check(&is(device, N, DeviceType::CUDA).expect_err("freed"), DEVX_DEVICE, 0, &["any more"]);
    cu_ok!("cuMemFreeHost", pinned);
}

#[test]
fn pointers_that_are_somewhere_else() {
    let is = |address, bytes, kind| foreign::tensor(address, bytes, Device { kind, id: 0 }, || ()).check_pointers();
    refuses_what_is_somewhere_else(is, "data 0x");
}

#[test]
fn buffers_that_are_somewhere_else() {
    let is = |address, bytes, kind| foreign::batch(address, bytes, Device { kind, id: 0 }, || ()).check_pointers();
    refuses_what_is_somewhere_else(is, "array \"bytes\": buffers[1]: data 0x");
}

/// Checks the buffers of each array whose sizes follow from its length, below the root too; sizes that depend on the
/// data are not checked.
#[test]
fn buffers_of_every_kind_that_are_somewhere_else() {
    let _session = Session::new();
    const ROWS: i64 = 60;
    // For 64 rows, including the four before the offset: bits, and one offset more.
    let (bits, offsets, host) = (sim::alloc(8), sim::alloc(4 * 65), 0x5000_u64);
    let schema =
        Schema::new(&[FieldDesc { n_children: 1, ..FieldDesc::new(c"", c"+s") }, FieldDesc::new(c"text", c"u")])
            .expect("a schema");
    let is = |bits: u64, offsets: u64, offset: i64| {
        let at = |address: u64| address as *const c_void;
        let (none, text) = ([null()], [at(bits), at(offsets), at(host)]);
        let nodes = [
            NodeDesc { length: ROWS, null_count: 0, offset: 0, buffers: &none },
            NodeDesc { length: ROWS, null_count: -1, offset, buffers: &text },
        ];
        unsafe { Batch::from_raw_parts(&schema, CUDA0, &nodes, Owner::none()) }.expect("a batch").check_pointers()
    };
    is(bits, offsets, 4).expect("it is");
    is(0, offsets, 4).expect("no nulls");
    let refused = [
        (is(bits, offsets, 5), "buffers[0]: "),
        (is(0, offsets, 5), "buffers[1]: "),
        (is(host, offsets, 4), "buffers[0]: "),
        (is(bits, host, 4), "buffers[1]: "),
    ];
    for (refused, text) in refused {
        check(&refused.expect_err("not there"), DEVX_DEVICE, 0, &[text, "array \"text\": "]);
    }
    sim::free(bits);
    sim::free(offsets);
}

#[test]
fn streams_that_are_none_or_of_another_device() {
    let _session = Session::new();
    for value in [0, -1, -2, i64::MIN] {
        let refused = Stream::new(0, sim::raw(value)).expect_err("no stream");
        check(&refused, DEVX_INVALID_STREAM, 0, &[&value.to_string()]);
    }
    if sim::skipped("this part needs two devices") {
        return;
    }
    sim::set_current(sim::primary(1));
    let other = sim::stream();
    sim::set_current(sim::primary(0));
    let refused = Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(sim::on(other))).expect_err("of another device");
    check(&refused, DEVX_INVALID_STREAM, 0, &["of cuda:1, not of cuda:0"]);
    // For a copy the stream can belong to neither memory.
    let host = Tensor::from_vec(vec![3_u8; 16], &[16]).expect("a tensor");
    let copy = host.copy_to(CUDA0, sim::on(other)).expect("copied");
    let mut bytes = [0; 16];
    copy.read(&mut bytes, Some(sim::on(other))).expect("read");
    assert_eq!(bytes, [3; 16]);
    drop(copy);
    sim::settle();
    sim::destroy(other);
}

#[test]
fn streams_that_are_destroyed() {
    let _session = Session::new();
    if sim::skipped("a real driver may not survive a stream that is destroyed") {
        return;
    }
    let (data, gone) = (sim::alloc(N), sim::stream());
    sim::destroy(gone);
    let tensor = foreign::tensor(data, N, CUDA0, || ());
    for refused in
        [tensor.wait(sim::on(gone)), tensor.used_on(sim::on(gone)), tensor.copy_to(CUDA0, sim::on(gone)).map(drop)]
    {
        check(&refused.expect_err("destroyed"), DEVX_DRIVER, 400, &["cuStream", "CUDA_ERROR_INVALID_HANDLE", "400"]);
    }
    drop(tensor);
    assert!(sim::take_findings().iter().all(|finding| finding.starts_with("StaleHandle: Stream")));
    sim::free(data);
}

#[test]
fn events_that_are_none_or_destroyed() {
    let _session = Session::new();
    let (data, mut null) = (sim::alloc(N), 0_u64);
    let mut array = foreign::arrow(data, N, CUDA0, 1, || ());
    array.sync_event = (&raw mut null).cast();
    let refused = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect_err("no event");
    check(&refused, DEVX_NULL_ARGUMENT, 0, &["*sync_event is NULL"]);
    assert!(array.array.release.is_some(), "it is still the caller's");
    unsafe { devexchange_core::arrow::release_array(&raw mut array.array) };
    if !sim::skipped("a real driver may not survive an event that is destroyed") {
        let event = sim::event();
        cu_ok!("cuEventDestroy_v2", event);
        let mut array = foreign::arrow(data, N, CUDA0, event, || ());
        let batch = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported");
        check(&batch.wait(sim::on(1)).expect_err("destroyed"), DEVX_DRIVER, 400, &["cuStreamWaitEvent", "400"]);
        drop(batch);
        assert!(sim::take_findings().iter().all(|finding| finding.starts_with("StaleHandle: Event")));
    }
    sim::free(data);
}

#[test]
fn an_event_of_another_context_is_waited_for() {
    let session = Session::new();
    session.each(20, || {
        let mut own = 0_u64;
        cu_ok!("cuCtxCreate_v2", &raw mut own, 0, 0);
        let (data, stream, event) = (sim::alloc(N), sim::stream(), sim::event());
        sim::fill(data, 9, N, stream);
        cu_ok!("cuEventRecord", event, stream);
        let mut popped = 0_u64;
        cu_ok!("cuCtxPopCurrent_v2", &raw mut popped);
        let mut array = foreign::arrow(data, N, CUDA0, event, || ());
        let batch = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported");
        let consumer = sim::stream();
        batch.wait(sim::on(consumer)).expect("waits");
        assert_eq!(sim::download(data, N, consumer), [9; N as usize]);
        drop(batch);
        sim::destroy(consumer);
        cu_ok!("cuEventDestroy_v2", event);
        sim::destroy(stream);
        sim::free(data);
        cu_ok!("cuCtxDestroy_v2", own);
    });
}

#[test]
fn too_much_memory() {
    let _session = Session::new();
    let shape = [1_i64 << 45];
    for (kind, stream, call) in [
        (DeviceType::CUDA, None, "35184372088832 bytes on cuda:0 could not be allocated: cuMemAlloc:"),
        (DeviceType::CUDA, Some(sim::on(1)), "cuMemAllocAsync:"),
        (DeviceType::CUDA_HOST, None, "cuMemHostAlloc:"),
        (DeviceType::CUDA_MANAGED, None, "cuMemAllocManaged:"),
    ] {
        let refused = Tensor::allocate(Device { kind, id: 0 }, DType::UINT8, &shape, stream).expect_err("too much");
        check(&refused, DEVX_OUT_OF_MEMORY, 2, &[call, "CUDA_ERROR_OUT_OF_MEMORY"]);
    }
}

#[test]
fn out_of_memory_in_the_middle() {
    let _session = Session::new();
    if sim::skipped("the failure is injected") {
        return;
    }
    let (data, stream) = (sim::alloc(N), sim::stream());
    let tensor = foreign::tensor_behind(stream, data, N, CUDA0, || ());
    // The export needs an event that the driver cannot record; the tensor comes back.
    sim::fail("cuEventRecord", 1, 2, false);
    let request = dlpack::Request { stream: RawStream::LEGACY, ..dlpack::Request::default() };
    let refused = dlpack::export::<devexchange_core::abi::dlpack::DLManagedTensorVersioned>(tensor, &request);
    let refused = refused.expect_err("out of memory");
    check(&refused.error, DEVX_OUT_OF_MEMORY, 2, &["cuEventRecord: CUDA_ERROR_OUT_OF_MEMORY (2)"]);
    let tensor = refused.returned;
    sim::fail("cuMemcpyAsync", 1, 2, false);
    check(
        &tensor.copy_to(CUDA0, sim::on(stream)).expect_err("out of memory"),
        DEVX_OUT_OF_MEMORY,
        2,
        &["cuMemcpyAsync:"],
    );
    sim::fail("cuMemcpyAsync", 1, 7777, false);
    let unknown = tensor.copy_to(CUDA0, sim::on(stream)).expect_err("unknown");
    check(&unknown, DEVX_DRIVER, 7777, &["cuMemcpyAsync: driver code 7777"]);
    drop(tensor.copy_to(Device::CPU, sim::on(stream)).expect("and now it works"));
    drop(tensor);
    sim::settle();
    sim::synchronize(stream);
    sim::free(data);
    sim::destroy(stream);
}

#[test]
fn devices_that_are_none() {
    let _session = Session::new();
    for id in [-1, 64, 65, i64::from(i32::MAX), i64::MAX, i64::MIN] {
        let refused = Device::new(DeviceType::CUDA, id).expect_err("no such device");
        check(&refused, DEVX_DEVICE, 0, &[&id.to_string()]);
    }
    let device = Device { kind: DeviceType::CUDA, id: 99 };
    let refused = Tensor::allocate(device, DType::UINT8, &[16], None).expect_err("no such device");
    check(&refused, DEVX_DEVICE, 0, &["device_id is 99"]);
    let managed = foreign::dlpack(0x1000, N, device, || ());
    let refused = unsafe { dlpack::import(managed.as_ptr()) }.expect_err("no such device");
    check(&refused, DEVX_DEVICE, 0, &["device_id is 99"]);
    drop(unsafe { dlpack::Owned::from_raw(managed) });
}
