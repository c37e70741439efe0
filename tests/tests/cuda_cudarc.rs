//! Slices of cudarc are exported as tensors, and tensors imported as slices: without a copy, in order, and given up
//! once. cudarc runs on the driver that the library uses.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::mpsc::channel;

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DriverError};
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::abi::types::{
    DEVX_COPY_REQUIRED, DEVX_DEVICE, DEVX_DRIVER, DEVX_INVALID_SHAPE, DEVX_MISMATCH, DEVX_OUT_OF_MEMORY, DEVX_PANIC,
    DEVX_READ_ONLY, DEVX_UNSUPPORTED,
};
use devexchange_core::dlpack::{self, Copying, Owned, Request};
use devexchange_core::runtime::releases_waiting;
use devexchange_core::{Batch, Element, Error, Flags, Stream, Tensor, convert};
use devexchange_tests::cu_ok;
use devexchange_tests::devices::two_devices;
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::freeing::{Consumer, Foreign, N};
use devexchange_tests::peer::soon;
use devexchange_tests::sim::{self, Session};
use half::{bf16, f16};

const SEEDS: u64 = 50;

fn context() -> Arc<CudaContext> {
    CudaContext::new(0).expect("a context")
}

fn streams<const K: usize>(context: &Arc<CudaContext>) -> [Arc<CudaStream>; K] {
    [(); K].map(|()| context.new_stream().expect("a stream"))
}

/// [`N`] bytes of cudarc, which are written later on its stream.
fn written(stream: &Arc<CudaStream>) -> CudaSlice<u8> {
    stream.alloc_zeros::<u8>(N as usize).expect("allocated")
}

fn address<T>(slice: &CudaSlice<T>) -> u64 {
    slice.device_ptr(slice.stream()).0
}

fn taken<T: Element>(slice: CudaSlice<T>, shape: &[i64]) -> Tensor {
    Tensor::from_cuda_slice(slice, shape).map_err(|refused| refused.error).expect("taken")
}

#[test]
fn a_slice_is_ready_behind_its_work_and_given_up_behind_that_of_others() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (cudarc, consumer) = (context(), Consumer::begin());
        let [stream, other] = streams(&cudarc);
        let mut slice = written(&stream);
        // Written once more on another stream, as cudarc knows.
        other.memset_zeros(&mut slice).expect("queued");
        let data = address(&slice);
        let tensor = taken(slice, &[2, N as i64 / 2]);
        assert_eq!((tensor.data() as u64, tensor.shape()), (data, &[2, N as i64 / 2][..]));
        // The tensor keeps whatever it needs from cudarc.
        drop((stream, other, cudarc));
        tensor.wait(consumer.on()).expect("ordered");
        consumer.read(data);
        tensor.used_on(consumer.on()).expect("used");
        drop(tensor);
        consumer.end();
    });
}

/// The program reads on, and writes when it is the only holder again: whatever the stream, that comes after all reads.
#[test]
fn a_shared_slice_is_read_by_all_and_written_after_that() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (cudarc, consumer) = (context(), Consumer::begin());
        let [stream, other] = streams(&cudarc);
        let mut slice = written(&stream);
        other.memset_zeros(&mut slice).expect("queued");
        let mut slice = Arc::new(slice);
        let data = address(&slice);
        let tensors =
            [(); 2].map(|()| Tensor::from_shared_cuda_slice(Arc::clone(&slice), &[N as i64]).expect("shared"));
        for tensor in tensors {
            assert_eq!((tensor.data() as u64, tensor.flags()), (data, Flags::READ_ONLY));
            tensor.wait(consumer.on()).expect("ordered");
            consumer.read(data);
            tensor.used_on(consumer.on()).expect("used");
            // The program reads, too.
            assert_eq!(other.clone_dtoh(&*slice).expect("read"), [0; N as usize]);
        }
        soon("only the program has it", || Arc::get_mut(&mut slice).is_some());
        other.memset_zeros(Arc::get_mut(&mut slice).expect("alone")).expect("queued");

        // The tensor may be the last holder.
        let tensor = Tensor::from_shared_cuda_slice(Arc::clone(&slice), &[N as i64]).expect("shared");
        drop((slice, stream, other, cudarc));
        tensor.wait(consumer.on()).expect("ordered");
        consumer.read(data);
        tensor.used_on(consumer.on()).expect("used");
        drop(tensor);
        sim::settle();
        consumer.end();
    });
    let slice = Arc::new(written(&streams::<1>(&context())[0]));
    let refused = Tensor::from_shared_cuda_slice(Arc::clone(&slice), &[3]).expect_err("another number");
    assert_eq!(refused.error.status(), DEVX_INVALID_SHAPE);
    assert!(Arc::ptr_eq(&refused.returned, &slice));
}

/// The same for streams that need a current context, on threads that have none, and for those that are different
/// streams there.
#[test]
fn a_slice_of_a_default_stream_is_given_up_on_any_thread() {
    let session = Session::new();
    session.each(SEEDS, || {
        for (of_thread, is_used) in [(false, false), (false, true), (true, false), (true, true)] {
            let (cudarc, consumer) = (context(), Consumer::begin());
            let stream = if of_thread { cudarc.per_thread_stream() } else { cudarc.default_stream() };
            let tensor = taken(written(&stream), &[N as i64]);
            drop((stream, cudarc));
            if is_used {
                tensor.wait(consumer.on()).expect("ordered");
                consumer.read(tensor.data() as u64);
                tensor.used_on(consumer.on()).expect("used");
            }
            std::thread::spawn(move || drop(tensor)).join().expect("no panic");
            sim::settle();
            consumer.end();
        }
    });
}

/// During a capture the free would become part of the graph, and so would cudarc's waits for work outside of it.
#[test]
fn a_slice_is_given_up_after_a_capture_of_its_stream() {
    let session = Session::new();
    session.each(SEEDS, || {
        let cudarc = context();
        let [stream, _other] = streams(&cudarc);
        let tensor = taken(written(&stream), &[N as i64]);
        let captured = stream.cu_stream() as u64;
        sim::begin_capture(captured, 1);
        drop(tensor);
        assert_eq!(releases_waiting(), 1);
        assert_eq!(sim::end_capture(captured), 0, "the capture is intact");
        sim::settle();
    });
}

/// cudarc would make the captured stream wait for work outside of the capture, and record an event of the capture.
#[test]
fn a_slice_is_refused_untouched_while_its_stream_is_captured() {
    let session = Session::new();
    session.each(SEEDS, || {
        let cudarc = context();
        let [stream, other] = streams(&cudarc);
        let mut slice = written(&stream);
        other.memset_zeros(&mut slice).expect("queued");
        let captured = stream.cu_stream() as u64;
        sim::begin_capture(captured, 1);
        let refused = Tensor::from_cuda_slice(slice, &[N as i64]).expect_err("refused");
        assert_eq!(refused.error.status(), DEVX_UNSUPPORTED);
        assert_eq!(sim::end_capture(captured), 0, "the capture is intact");
        other.clone_dtoh(&refused.returned).expect("its events are of no capture");
        drop(refused);
        // Without events of cudarc, nothing waits.
        // SAFETY: one stream does all the work from here on.
        unsafe { cudarc.disable_event_tracking() };
        let slice = written(&stream);
        sim::begin_capture(captured, 1);
        let tensor = taken(slice, &[N as i64]);
        assert_eq!(sim::end_capture(captured), 0, "the capture is intact");
        drop(tensor);
        cudarc.check_err().expect("nothing failed");
    });
}

/// cudarc keeps a failure that it could not report for its next call, and until then makes no stream wait.
#[test]
fn an_earlier_failure_of_cudarc_is_reported_and_changes_no_order() {
    let session = Session::new();
    session.each(SEEDS, || {
        let cudarc = context();
        let failed = || cudarc.record_err::<()>(Err(DriverError(CUresult::CUDA_ERROR_UNKNOWN)));
        let [stream, other] = streams(&cudarc);
        let memory = Foreign::allocate();
        let tensor = foreign::tensor(memory.address, N, CUDA0, memory.on_release());
        failed();
        let error = tensor.as_cuda_slice::<u8>(&stream).expect_err("reported");
        assert_eq!((error.status(), error.driver_code()), (DEVX_DRIVER, CUresult::CUDA_ERROR_UNKNOWN as i32));
        let slice = tensor.as_cuda_slice::<u8>(&stream).expect("borrowed");
        let copy = other.clone_dtod(&*slice).expect("queued");
        failed();
        drop((slice, tensor));
        assert_eq!(cudarc.check_err(), Err(DriverError(CUresult::CUDA_ERROR_UNKNOWN)), "still to be reported");
        memory.end();
        drop(copy);
    });
}

/// A driver does not let a stream wait for an event of a capture that has ended.
#[test]
fn a_slice_that_was_borrowed_for_a_capture_is_given_up_after_it() {
    let session = Session::new();
    session.each(SEEDS, || {
        for is_dropped_within in [true, false] {
            let memory = Foreign::allocate();
            let cudarc = context();
            let [stream] = streams(&cudarc);
            let captured = stream.cu_stream() as u64;
            let mut tensor = foreign::tensor(memory.address, N, CUDA0, memory.on_release());
            // SAFETY: the memory is ready.
            unsafe { tensor.produced_on(sim::on(captured)) }.expect("not shared");
            sim::begin_capture(captured, 1);
            let slice = tensor.as_cuda_slice::<u8>(&stream).expect("borrowed");
            drop(slice.device_ptr(&stream));
            let kept = (!is_dropped_within).then_some(slice);
            assert_eq!(sim::end_capture(captured), 0, "the capture is intact");
            drop((kept, tensor));
            sim::settle();
            cudarc.check_err().expect("nothing failed");
            memory.end();
        }
    });
}

/// The work is noted after the capture, on a thread that may be late.
#[test]
fn a_borrowed_slice_keeps_its_stream_until_its_work_is_noted() {
    let session = Session::new();
    session.each(SEEDS, || {
        for is_borrowed_before in [true, false] {
            let (memory, busy, consumer) = (Foreign::allocate(), Foreign::allocate(), Consumer::begin());
            let [stream] = streams(&context());
            let captured = stream.cu_stream() as u64;
            let mut tensor = foreign::tensor(memory.address, N, CUDA0, memory.on_release());
            // SAFETY: the memory is ready.
            unsafe { tensor.produced_on(sim::on(captured)) }.expect("not shared");
            let borrow = || tensor.as_cuda_slice::<u8>(&stream).expect("borrowed");
            let before = is_borrowed_before.then(borrow);
            sim::begin_capture(captured, 1);
            drop(before.unwrap_or_else(borrow));
            drop(tensor);
            // The reaper is in another release while the capture ends, and then the program's stream.
            let (began, begun) = channel();
            let (end, ended) = channel();
            let on_release = busy.on_release();
            let other = foreign::tensor(busy.address, N, CUDA0, move || {
                began.send(()).expect("heard");
                ended.recv().expect("told");
                on_release();
            });
            other.used_on(consumer.on()).expect("used");
            drop(other);
            begun.recv().expect("told");
            assert_eq!(sim::end_capture(captured), 0, "the capture is intact");
            drop(stream);
            end.send(()).expect("heard");
            memory.end();
            busy.end();
            consumer.end();
        }
    });
}

#[test]
fn the_current_context_stays() {
    let session = Session::new();
    session.each(1, || {
        let cudarc = context();
        let [stream] = streams(&cudarc);
        let (slice, before) = (written(&stream), sim::current());
        sim::set_current(0);
        let tensor = taken(slice, &[N as i64]);
        let slice = tensor.as_cuda_slice::<u8>(&stream).expect("borrowed");
        drop((stream, cudarc));
        assert_eq!(sim::current(), 0);
        drop(slice);
        assert_eq!(sim::current(), 0);
        drop(tensor);
        assert_eq!(sim::current(), 0);
        sim::settle();
        sim::set_current(before);
    });
}

#[test]
fn a_tensor_is_a_slice_behind_its_producer_and_used_until_the_work_is_done() {
    let session = Session::new();
    session.each(SEEDS, || {
        let cudarc = context();
        let [stream, other] = streams(&cudarc);
        let (memory, producer) = (Foreign::allocate(), sim::stream());
        let mut tensor = foreign::tensor(memory.address, N, CUDA0, memory.on_release());
        sim::fill(memory.address, 7, N, producer);
        // SAFETY: the work that fills it is queued there.
        unsafe { tensor.produced_on(sim::on(producer)) }.expect("not shared");
        let slice = tensor.as_cuda_slice::<u8>(&stream).expect("borrowed");
        assert_eq!((address(&*slice), slice.len()), (memory.address, N as usize));
        // A copy on the stream, and one on a stream that cudarc orders itself.
        let copies = [stream.clone_dtod(&*slice), other.clone_dtod(&*slice)].map(|copy| copy.expect("queued"));
        drop(slice);
        drop(tensor);
        for copy in copies {
            assert_eq!(other.clone_dtoh(&copy).expect("copied"), [7; N as usize]);
        }
        memory.end();
        sim::finish([producer]);
    });
}

/// What cudarc writes into a tensor is visible to later work on the stream.
#[test]
fn a_tensor_is_written_by_cudarc() {
    let session = Session::new();
    session.each(SEEDS, || {
        let [stream] = streams(&context());
        let memory = Foreign::allocate();
        let tensor = memory.tensor();
        let mut slice = tensor.as_cuda_slice::<u8>(&stream).expect("borrowed");
        // SAFETY: nobody else has the memory.
        let mut view = unsafe { slice.as_view_mut() }.expect("writable");
        stream.memcpy_htod(&[9_u8; N as usize], &mut view).expect("queued");
        assert_eq!(stream.clone_dtoh(&*slice).expect("copied"), [9; N as usize]);
        assert_eq!(slice.tensor().data() as u64, memory.address);
        drop((slice, tensor));
        memory.end();
    });
}

/// Slices of 16-bit floats, as models use them.
#[test]
fn halves_are_elements() {
    fn there_and_back<T: Element>(dtype: &str, bits: [u16; 2]) {
        let [stream] = streams(&context());
        let numbers = stream.clone_htod(&bits).expect("queued");
        // SAFETY: the memory holds the same number of elements of the same width.
        let halves = unsafe { stream.upgrade_device_ptr::<T>(numbers.leak(), bits.len()) };
        let tensor = taken(halves, &[2, 1]);
        assert_eq!(tensor.dtype().to_string(), dtype);
        let slice = tensor.as_cuda_slice::<T>(&stream).expect("borrowed");
        // SAFETY: as above.
        let numbers = unsafe { slice.transmute::<u16>(bits.len()) }.expect("as many");
        assert_eq!(stream.clone_dtoh(&numbers).expect("copied"), bits);
    }
    let session = Session::new();
    session.each(1, || {
        there_and_back::<f16>("float16", [1.5, -2.0].map(|value| f16::from_f32(value).to_bits()));
        there_and_back::<bf16>("bfloat16", [1.5, -2.0].map(|value| bf16::from_f32(value).to_bits()));
    });
}

/// Exported through DLPack, imported as a tensor, put in a batch with another slice, and each column made a slice
/// again.
#[test]
fn slices_go_through_the_protocols() {
    let session = Session::new();
    session.each(SEEDS, || {
        let cudarc = context();
        let [stream, other] = streams(&cudarc);
        let numbers = stream.clone_htod(&[1.5_f32, 2.5, 3.5]).expect("queued");
        let exported: Owned<DLManagedTensorVersioned> = dlpack::export(taken(numbers, &[3]), &Request::default())
            .map_err(|refused| refused.error)
            .expect("exported");
        let numbers = exported.import().map_err(|refused| refused.error).expect("imported");
        let keys = taken(other.clone_htod(&[1_i64, 2, 3]).expect("queued"), &[3]);
        let column = |tensor, name| convert::column(tensor, name, Copying::Never).expect("a view");
        let (numbers, keys) = (column(&numbers, "numbers"), column(&keys, "keys"));
        // SAFETY: the stream lives as long as the batch.
        let on = unsafe { Stream::from_cudarc(&stream) }.expect("a stream");
        let batch = Batch::of_columns(&[("numbers", &numbers), ("keys", &keys)], Some(on)).expect("a batch");
        drop((numbers, keys));
        let tensor = |name| convert::tensor(batch.column_named(name).expect("there"), Copying::Never).expect("a view");
        let (numbers, keys) = (tensor("numbers"), tensor("keys"));
        let read = numbers.as_cuda_slice::<f32>(&stream).expect("borrowed");
        assert_eq!(stream.clone_dtoh(&*read).expect("copied"), [1.5, 2.5, 3.5]);
        let mut read = keys.as_cuda_slice::<i64>(&other).expect("borrowed");
        assert_eq!(other.clone_dtoh(&read.slice(1..)).expect("copied"), [2, 3]);
        // Arrow data must not be changed.
        // SAFETY: nothing is written.
        let error = unsafe { read.as_view_mut() }.expect_err("read-only");
        assert_eq!(error.status(), DEVX_READ_ONLY);
    });
}

#[test]
fn what_does_not_fit_is_refused_and_given_back() {
    let session = Session::new();
    session.each(1, || {
        let cudarc = context();
        let [stream] = streams(&cudarc);
        let mut slice = written(&stream);
        for shape in [&[N as i64 + 1][..], &[], &[i64::MAX, 4]] {
            let refused = Tensor::from_cuda_slice(slice, shape).expect_err("another number of elements");
            assert_eq!(refused.error.status(), DEVX_INVALID_SHAPE, "{}", refused.error);
            assert!(refused.error.message().ends_with("the slice has 256 elements"), "{}", refused.error);
            slice = refused.returned;
        }
        let tensor = taken(slice, &[2, N as i64 / 2]);
        let refused =
            |tensor: &Tensor, stream: &Arc<CudaStream>| tensor.as_cuda_slice::<u8>(stream).expect_err("refused");
        let error = tensor.as_cuda_slice::<i8>(&stream).expect_err("another type");
        assert_eq!((error.status(), error.message()), (DEVX_MISMATCH, "dtype is uint8, not int8"));
        assert_eq!(refused(&tensor.slice(1, 0, 2).expect("a part"), &stream).status(), DEVX_COPY_REQUIRED);
        let host = Tensor::from_vec(vec![1_u8], &[1]).expect("a tensor");
        let error = refused(&host, &stream);
        assert_eq!(error.status(), DEVX_DEVICE);
        assert_eq!(error.message(), "the tensor is on cpu:0: a slice is of the GPU of its stream, which is cuda:0");
    });
}

#[test]
fn a_slice_is_of_the_gpu_of_its_stream() {
    let Some(session) = two_devices() else { return };
    session.each(1, || {
        let elsewhere = CudaContext::new(1).expect("a second device");
        let tensor = taken(written(&context().default_stream()), &[N as i64]);
        for stream in [elsewhere.new_stream().expect("a stream"), elsewhere.default_stream()] {
            let error = tensor.as_cuda_slice::<u8>(&stream).expect_err("of another device");
            assert_eq!(error.status(), DEVX_DEVICE);
            assert_eq!(
                error.message(),
                "the tensor is on cuda:0: a slice is of the GPU of its stream, which is cuda:1"
            );
        }
        drop(elsewhere);
        sim::set_current(sim::primary(0));
    });
}

#[test]
fn a_context_of_ones_own_is_refused() {
    let session = Session::new();
    session.each(1, || {
        let (tensor, before) = (taken(written(&context().default_stream()), &[N as i64]), sim::current());
        let (mut made, mut device) = (0_u64, 0_i32);
        cu_ok!("cuDeviceGet", &raw mut device, 0);
        cu_ok!("cuCtxCreate_v2", &raw mut made, 0, device);
        // SAFETY: made for this `CudaContext`, which destroys it in the end.
        let own = unsafe { CudaContext::from_raw_context(0, device, made as *mut _) }.expect("a context");
        let streams = [own.default_stream(), own.new_stream().expect("a stream")];
        for stream in &streams {
            let error = tensor.as_cuda_slice::<u8>(stream).expect_err("refused");
            assert_eq!(error.status(), DEVX_UNSUPPORTED, "{error}");
            let refused = Tensor::from_cuda_slice(written(stream), &[N as i64]).expect_err("refused");
            assert_eq!(refused.error, error);
        }
        drop((streams, own));
        sim::set_current(before);
    });
}

#[test]
fn errors_of_cudarc_become_ours() {
    let session = Session::new();
    session.each(1, || {
        let [stream] = streams(&context());
        // More than any device has.
        let allocated = || -> Result<CudaSlice<u8>, Error> { Ok(stream.alloc_zeros(1 << 52)?) };
        let error = allocated().expect_err("too much");
        assert_eq!((error.status(), error.driver_code()), (DEVX_OUT_OF_MEMORY, 2));
        assert!(error.message().starts_with("cudarc: CUDA_ERROR_OUT_OF_MEMORY (2)"), "{error}");
        let error = Error::from(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!((error.status(), error.driver_code()), (DEVX_DRIVER, 1));
    });
}

#[test]
fn what_the_driver_refuses_is_an_error() {
    let session = Session::new();
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    session.begin(sim::schedules(1)[0]);
    let [stream] = streams(&context());
    let memory = Foreign::allocate();
    let tensor = memory.tensor();
    // cudarc makes an event for reads and one for writes.
    for nth in [1, 2] {
        sim::fail("cuEventCreate", nth, 2, false);
        let error = tensor.as_cuda_slice::<u8>(&stream).expect_err("no event");
        assert_eq!(error.status(), DEVX_PANIC, "{error}");
        sim::fail_clear();
    }
    assert_eq!(memory.released(), 0);
    drop(tensor);
    memory.end();
    drop(stream);
    session.check();
}
