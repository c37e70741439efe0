//! A program's own manager, which asks another manager or the driver: in the order of streams, like the library's
//! managers.

use core::ffi::c_void;

use devexchange_core::abi::types::*;
use devexchange_core::dlpack::Copying;
use devexchange_core::manager::{Allocated, Deferred, Driver, Limited, Request, Shared};
use devexchange_core::order::Ready;
use devexchange_core::stream::PER_THREAD;
use devexchange_core::{DType, Device, DeviceType, Tensor, convert};
use devexchange_tests::cu_ok;
use devexchange_tests::filled::fill_and_drop;
use devexchange_tests::foreign::CUDA0;
use devexchange_tests::sim::{self, Session};

use super::{N, SEEDS, shared};

/// A program's own manager, which asks another one.
fn table_of(inner: Shared) -> Shared {
    unsafe extern "C" fn allocate(
        context: *mut c_void,
        request: *const DevxMemoryRequest,
        out: *mut DevxMemory,
        error: *mut DevxError,
    ) -> DevxStatus {
        let (inner, request) = (unsafe { Shared::borrow_raw(context) }, unsafe { &*request });
        match unsafe { Request::from_raw(request) }.and_then(|request| inner.allocate_ready(&request)) {
            Ok(Allocated { address, device, owner, .. }) => {
                let (device_type, device_id, owner) = (device.kind.0, device.id, owner.into_raw());
                unsafe { out.write(DevxMemory { address, device_type, device_id, owner }) };
                DEVX_OK
            }
            Err(said) => {
                unsafe { *error = said.to_raw() };
                said.status()
            }
        }
    }
    unsafe extern "C" fn release(context: *mut c_void) {
        drop(unsafe { Shared::from_raw(context) });
    }
    let mut table: DevxManagerTable = unsafe { std::mem::zeroed() };
    (table.version, table.context) = (DEVX_MANAGER_VERSION, inner.into_raw());
    table.allocate = Some(allocate);
    table.release = Some(release);
    unsafe { Shared::of_table(&table) }.expect("a manager")
}

/// The same goes for memory of a program's own manager in the order of a stream: it needs that stream.
#[test]
fn memory_of_a_stream_of_a_programs_own_is_not_deferred() {
    let session = Session::new();
    let manager = table_of(shared(Driver::new()));
    session.each(5, || {
        let stream = sim::stream();
        let deferred = Deferred::new(&*manager);
        drop(manager.allocate(&Request::on(sim::on(stream), N)).expect("allocated"));
        sim::synchronize(stream);
        sim::destroy(stream);
        drop(deferred);
    });
}

/// Only device memory is in the order of a stream: the host can read other memory at once, whatever manages it.
#[test]
fn memory_of_no_device_is_ready_at_once_whatever_the_stream() {
    let session = Session::new();
    let driver = shared(Driver::new());
    let table = table_of(driver.clone());
    let limited = shared(Limited::new(table.clone(), usize::MAX));
    session.each(5, || {
        let stream = sim::stream();
        for manager in [&driver, &table, &limited] {
            for kind in [DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED] {
                let device = Device { kind, id: 0 };
                let on = Some(sim::on(stream));
                let tensor =
                    Tensor::allocate_with(&**manager, device, DType::UINT8, &[N as i64], on).expect("allocated");
                assert!(matches!(tensor.ready(), Ready::Now), "{kind}: {:?}", tensor.ready());
            }
        }
        sim::destroy(stream);
    });
}

/// A program's own manager takes memory back in the order of the stream that was named in the request.
#[test]
fn memory_of_a_programs_own_is_given_back_after_the_work_that_fills_it() {
    let session = Session::new();
    let table = table_of(shared(Driver::new()));
    let limited = shared(Limited::new(table.clone(), usize::MAX));
    for manager in [table, limited] {
        fill_and_drop(&session, SEEDS, |own| {
            let tensor =
                Tensor::allocate_with(&*manager, CUDA0, DType::UINT8, &[N as i64], Some(own)).expect("allocated");
            convert::column(&tensor, "c", Copying::Never).expect("a view")
        });
    }
}

/// A program's own manager gives memory back on the stream that was named in the request, on whatever thread that
/// happens. So the default stream of a thread, which has no number on another thread, is never requested from it.
#[test]
fn the_default_stream_of_a_thread_is_not_asked_of_a_programs_own() {
    struct Block {
        address: u64,
        stream: i64,
    }
    unsafe extern "C" fn free(block: *mut c_void) {
        let block = unsafe { Box::from_raw(block.cast::<Block>()) };
        let (context, mut popped) = (sim::primary(0), 0_u64);
        cu_ok!("cuCtxPushCurrent_v2", context);
        cu_ok!("cuMemFreeAsync", block.address, block.stream);
        cu_ok!("cuCtxPopCurrent_v2", &raw mut popped);
    }
    unsafe extern "C" fn allocate(
        _: *mut c_void,
        request: *const DevxMemoryRequest,
        out: *mut DevxMemory,
        _: *mut DevxError,
    ) -> DevxStatus {
        let DevxMemoryRequest { device_type, device_id, bytes, stream, .. } = unsafe { *request };
        let mut block = Box::new(Block { address: 0, stream });
        cu_ok!("cuMemAllocAsync", &raw mut block.address, bytes as u64, stream);
        let address = block.address as *mut c_void;
        let owner = DevxOwner { context: Box::into_raw(block).cast(), release: Some(free) };
        unsafe { out.write(DevxMemory { address, device_type, device_id, owner }) };
        DEVX_OK
    }
    let session = Session::new();
    let mut table: DevxManagerTable = unsafe { std::mem::zeroed() };
    table.version = DEVX_MANAGER_VERSION;
    table.allocate = Some(allocate);
    let manager = unsafe { Shared::of_table(&table) }.expect("a manager");
    session.each(SEEDS, || {
        let own = sim::on(PER_THREAD as u64);
        let tensor = Tensor::allocate_with(&*manager, CUDA0, DType::UINT8, &[N as i64], Some(own)).expect("allocated");
        sim::fill(tensor.data().expose_provenance() as u64, 1, N as u64, PER_THREAD as u64);
        std::thread::spawn(move || drop(tensor)).join().expect("released");
        sim::synchronize(PER_THREAD as u64);
        sim::synchronize(1);
    });
}
