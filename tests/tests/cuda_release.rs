//! Release on CUDA: the foreign release is called once, after the named work, whoever names it and whenever the last
//! handle is dropped; and the host never waits for that.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

use std::ffi::c_void;
use std::time::{Duration, Instant};

use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::arrow::ArrayBuilder;
use devexchange_core::dlpack::{self, Copying, Request};
use devexchange_core::runtime::cuda::Event;
use devexchange_core::runtime::{releases_lost, releases_waiting};
use devexchange_core::{Batch, DType, Device, DeviceType, Owner, RawStream, Tensor, convert};
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::freeing::{Consumer, Foreign, N};
use devexchange_tests::sim::{self, Live, Session};
use devexchange_tests::{cu, cu_ok, patient};

const SEEDS: u64 = 100;

#[test]
fn release_comes_after_the_named_work() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (memory, other, consumer) = (Foreign::allocate(), Foreign::allocate(), Consumer::begin());
        let (tensor, batch) = (memory.tensor(), other.batch());
        consumer.read(memory.address);
        tensor.used_on(consumer.on()).expect("used");
        consumer.read(other.address);
        batch.used_on(consumer.on()).expect("used");
        drop((tensor, batch));
        memory.end();
        other.end();
        consumer.end();
    });
}

/// This holds even if the work cannot be noted: then the host waits.
#[test]
fn a_reference_is_given_up_after_the_work_on_a_stream() {
    let session = Session::new();
    for fails in [false, true] {
        if fails && sim::skipped("faults are injected into the simulated driver only") {
            return;
        }
        session.each(SEEDS, || {
            let (memory, consumer) = (Foreign::allocate(), Consumer::begin());
            let tensor = memory.tensor();
            consumer.read(memory.address);
            if fails {
                sim::fail("cuEventRecord", 1, 2, false);
            }
            tensor.clone().release_after(consumer.on());
            tensor.release_after(consumer.on());
            sim::fail_clear();
            memory.end();
            consumer.end();
        });
    }
}

#[test]
fn a_stream_does_not_stand_for_an_earlier_one_of_its_handle() {
    let session = Session::new();
    if sim::skipped("which handle a new stream gets is the driver's own affair") {
        return;
    }
    sim::reuse_streams(true);
    // Also if the new stream cannot be made to wait for the earlier one's work.
    for waits in [true, false] {
        session.each(SEEDS, || {
            let (memory, consumer) = (Foreign::allocate(), Consumer::begin());
            let tensor = memory.tensor();
            consumer.read(memory.address);
            tensor.used_on(consumer.on()).expect("used");
            let Consumer { stream, scratch } = consumer;
            sim::destroy(stream);
            assert_eq!(sim::stream(), stream, "the driver gives the handle again");
            let consumer = Consumer { stream, scratch };
            if !waits {
                sim::fail("cuStreamWaitEvent", 1, 719, false);
            }
            tensor.used_on(consumer.on()).expect("used");
            sim::fail_clear();
            drop(tensor);
            memory.end();
            consumer.end();
        });
    }
    sim::reuse_streams(false);
}

#[test]
fn release_without_the_name_of_the_work_is_seen() {
    let session = Session::new();
    if sim::skipped("a release that is too early shows only with the detector") {
        return;
    }
    for schedule in sim::schedules(20) {
        session.begin(schedule);
        let (memory, consumer) = (Foreign::allocate(), Consumer::begin());
        let tensor = memory.tensor();
        consumer.read(memory.address);
        drop(tensor);
        let findings = sim::take_findings();
        assert!(findings.iter().any(|text| text.starts_with("FreeRace: ")), "{schedule:?}: {findings:?}");
        memory.end();
        consumer.end();
    }
}

#[test]
fn the_last_of_several_uses_counts() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (memory, first, second) = (Foreign::allocate(), Consumer::begin(), Consumer::begin());
        let tensor = memory.tensor();
        for consumer in [&first, &second, &first] {
            consumer.read(memory.address);
            tensor.used_on(consumer.on()).expect("used");
        }
        let stream = sim::on(2);
        sim::copy(first.scratch + N, memory.address, 8, 2);
        tensor.used_on(stream).expect("used");
        drop(tensor);
        memory.end();
        cu_ok!("cuStreamSynchronize", 2);
        first.end();
        second.end();
    });
}

#[test]
fn many_threads_use_and_drop() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (memory, consumers) = (Foreign::allocate(), [Consumer::begin(), Consumer::begin(), Consumer::begin()]);
        let tensor = memory.tensor();
        std::thread::scope(|scope| {
            for consumer in &consumers {
                let (tensor, address) = (tensor.clone(), memory.address);
                scope.spawn(move || {
                    sim::set_current(sim::primary(0));
                    for per_thread in [false, true] {
                        if per_thread {
                            let scratch = sim::alloc(N);
                            sim::copy(scratch, address, N, 2);
                            tensor.used_on(sim::on(2)).expect("used");
                            cu_ok!("cuMemFreeAsync", scratch, 2);
                        } else {
                            consumer.read(address);
                            tensor.used_on(consumer.on()).expect("used");
                        }
                    }
                });
            }
        });
        drop(tensor);
        memory.end();
        consumers.into_iter().for_each(Consumer::end);
        cu_ok!("cuCtxSynchronize");
    });
}

/// A long-lived handle can be used on any number of short-lived streams: only those with unfinished work count.
#[test]
fn uses_that_are_over_are_not_kept() {
    if sim::skipped("what is live is seen in the simulated driver only") {
        return;
    }
    const AT_WORK: i64 = 20;
    let session = Session::new();
    let (memory, before) = (Foreign::allocate(), Live::now().events);
    let tensor = memory.tensor();
    let working = (0..AT_WORK).map(|_| Consumer::begin()).collect::<Vec<_>>();
    for consumer in &working {
        consumer.read(memory.address);
        tensor.used_on(consumer.on()).expect("used");
    }
    for _ in 0..500 {
        let stream = sim::stream();
        tensor.used_on(sim::on(stream)).expect("used");
        sim::synchronize(stream);
        sim::destroy(stream);
    }
    let kept = Live::now().events - before;
    assert!(kept <= 4 * AT_WORK, "{kept} events");
    drop(tensor);
    memory.end();
    working.into_iter().for_each(Consumer::end);
    session.check();
}

/// If nobody can say when a copy is done, neither its source nor its target is given up before it is.
#[test]
fn copies_that_cannot_be_noted_keep_source_and_target() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    let session = Session::new();
    session.begin(sim::schedules(1)[0]);
    let pinned = Device { kind: DeviceType::CUDA_HOST, id: 0 };
    for of_batch in [false, true] {
        let (memory, consumer) = (Foreign::allocate(), Consumer::begin());
        let fail = || ["cuEventRecord", "cuStreamSynchronize"].iter().for_each(|call| sim::fail(call, 1, 719, true));
        let copied = if of_batch {
            let batch = memory.batch();
            fail();
            batch.copy_to(pinned, consumer.on()).map(drop)
        } else {
            let mut tensor = foreign::tensor(memory.address, N, CUDA0, memory.on_release());
            unsafe { tensor.produced_on(consumer.on()) }.expect("not shared");
            fail();
            tensor.copy_to(pinned, consumer.on()).map(drop)
        };
        copied.expect_err("the use cannot be noted");
        sim::fail_clear();
        sim::settle();
        assert_eq!(memory.released(), 0, "the source is never given up");
        sim::synchronize(consumer.stream);
        assert!(sim::take_findings().is_empty());
        sim::free(memory.address);
        consumer.end();
    }
    session.accept();
}

/// The library's own reads of a batch are such copies, too.
#[test]
fn reads_that_cannot_be_waited_for_keep_source_and_target() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    let session = Session::new();
    session.begin(sim::schedules(1)[0]);
    // The validity, the last offset, and the sizes of view data: each is in the first buffers of its format.
    for (format, buffers) in [("C", 2), ("u", 3), ("vu", 4)] {
        let (memory, consumer) = (Foreign::allocate(), Consumer::begin());
        let address = std::ptr::with_exposed_provenance(memory.address as usize);
        let column = ArrayBuilder::new("x", format, 8).owner(Owner::on_release(memory.on_release()));
        let column = (0..buffers).fold(column, |column, _| column.buffer(address));
        let mut batch = unsafe { column.build(CUDA0) }.map_err(|refused| refused.error).expect("well-formed");
        unsafe { batch.produced_on(consumer.on()) }.expect("not shared");
        let lost = releases_lost();
        sim::fail("cuStreamSynchronize", 1, 719, true);
        match format {
            "C" => batch.root().null_count_on(consumer.on()).map(drop),
            _ => batch.copy_to(CUDA0, consumer.on()).map(drop),
        }
        .expect_err("the copy cannot be waited for");
        drop(batch);
        sim::fail_clear();
        sim::settle();
        assert_eq!(memory.released(), 0, "{format}: the source is never given up");
        assert_eq!(releases_lost() - lost, 2, "{format}: nor is what it was read into");
        sim::free(memory.address);
        consumer.end();
    }
    session.accept();
}

/// Work that several threads queue on one stream is waited for, in whatever order the threads name it.
#[test]
fn threads_that_name_one_stream_are_all_waited_for() {
    let session = Session::new();
    session.each(2 * SEEDS, || {
        let (memory, consumer) = (Foreign::allocate(), Consumer::begin());
        let tensor = memory.tensor();
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for is_slow in [false, true] {
                let (tensor, start, consumer, memory) = (&tensor, &start, &consumer, &memory);
                scope.spawn(move || {
                    sim::set_current(sim::primary(0));
                    start.wait();
                    for _ in 0..4 {
                        sim::set_current(sim::primary(0));
                        consumer.read(memory.address);
                        // Without a context, naming the stream takes a few more calls.
                        sim::set_current(if is_slow { 0 } else { sim::primary(0) });
                        tensor.used_on(consumer.on()).expect("used");
                    }
                });
            }
        });
        drop(tensor);
        memory.end();
        consumer.end();
    });
}

#[test]
fn memory_of_ours_is_freed_after_its_uses() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (consumer, other) = (Consumer::begin(), Consumer::begin());
        for kind in [DeviceType::CUDA, DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED] {
            for stream in [None, Some(consumer.on())] {
                let device = Device { kind, id: 0 };
                let tensor = Tensor::allocate(device, DType::UINT8, &[N as i64], stream).expect("allocated");
                tensor.wait(other.on()).expect("waits");
                sim::fill(tensor.data() as u64, 3, N, other.stream);
                tensor.used_on(other.on()).expect("used");
                let column = convert::column(&tensor, "x", Copying::Never).expect("a view");
                drop(tensor);
                sim::copy(consumer.scratch, column.root().buffers()[1] as u64, 0, consumer.stream);
                column.used_on(consumer.on()).expect("used");
            }
        }
        // The streams can be destroyed as soon as the handles are gone.
        consumer.end();
        other.end();
        sim::settle();
    });
}

/// The driver takes no calls there, so memory that goes back in the order of a stream does so later.
#[test]
fn a_release_in_a_host_function_is_not_lost() {
    extern "C" fn drop_boxed(data: *mut c_void) {
        drop(unsafe { Box::from_raw(data.cast::<Box<dyn Send>>()) });
    }
    let session = Session::new();
    if sim::skipped("which calls a real driver takes from a host function is its own affair") {
        return;
    }
    session.each(20, || {
        let (consumer, before) = (Consumer::begin(), releases_lost());
        let allocate = || Tensor::allocate(CUDA0, DType::UINT8, &[N as i64], Some(consumer.on())).expect("allocated");
        let (plain, viewed) = (allocate(), allocate());
        // A view with a filler of its own ends behind that filler's work.
        let filler = Consumer::begin();
        let mut view = viewed.slice(0, 0, 1).expect("a view");
        unsafe { view.produced_on(filler.on()) }.expect("filled");
        drop(viewed);
        let held: Box<Box<dyn Send>> = Box::new(Box::new((plain, view)));
        let function: extern "C" fn(*mut c_void) = drop_boxed;
        cu_ok!("cuLaunchHostFunc", consumer.stream, function as usize, Box::into_raw(held));
        sim::synchronize(consumer.stream);
        sim::settle();
        assert_eq!(releases_lost() - before, 0);
        // No memory is left: the session sees that. The calls that the driver refused were harmless.
        let findings = sim::take_findings();
        assert!(findings.iter().all(|finding| finding.contains("CallInCallback")), "{findings:?}");
        consumer.end();
        filler.end();
    });
}

/// A release may do anything that a user of the library may do.
#[test]
fn a_release_may_use_the_library() {
    let session = Session::new();
    session.each(SEEDS, || {
        let (consumer, inner) = (Consumer::begin(), Foreign::allocate());
        let inside = inner.tensor();
        let (stream, address) = (consumer.on(), sim::alloc(N));
        let context = sim::primary(0);
        let outer = foreign::dlpack(address, N, CUDA0, move || {
            inside.used_on(stream).expect("used");
            let clone = inside.clone();
            let exported = dlpack::export::<DLManagedTensorVersioned>(clone, &Request::default());
            drop(exported.expect("exported"));
            drop(inside);
            cu_ok!("cuCtxPushCurrent_v2", context);
            sim::free(address);
            let mut popped = 0_u64;
            cu_ok!("cuCtxPopCurrent_v2", &raw mut popped);
        });
        let outer = unsafe { dlpack::import_on(outer.as_ptr(), Some(RawStream::NO_SYNC)) }.expect("imported");
        sim::fill(address, 1, N, consumer.stream);
        consumer.read(address);
        outer.used_on(consumer.on()).expect("used");
        drop(outer);
        inner.end();
        consumer.end();
    });
}

#[test]
fn deferred_releases_are_called_by_the_reaper() {
    let session = Session::new();
    session.each(5, || {
        let (memory, consumer) = (Foreign::allocate(), Consumer::begin());
        let tensor = memory.tensor();
        consumer.read(memory.address);
        tensor.used_on(consumer.on()).expect("used");
        drop(tensor);
        sim::settle();
        let thread = *memory.thread.lock().expect("not poisoned");
        assert!(thread.is_some_and(|thread| thread != std::thread::current().id()));
        memory.end();
        consumer.end();
    });
}

#[test]
fn the_host_never_blocks() {
    const BLOCKING: [&str; 7] = [
        "cuStreamSynchronize",
        "cuEventSynchronize",
        "cuCtxSynchronize",
        "cuMemFree_v2",
        "cuMemFreeHost",
        "cuMemcpyDtoH_v2",
        "cuMemcpyHtoD_v2",
    ];
    let session = Session::new();
    if sim::skipped("the calls are counted by the simulated driver") {
        return;
    }
    session.each(5, || {
        let (address, consumer) = (sim::alloc(N), Consumer::begin());
        let owned = [DeviceType::CUDA, DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED]
            .map(|kind| Tensor::allocate(Device { kind, id: 0 }, DType::UINT8, &[N as i64], None).expect("allocated"));
        let before = BLOCKING.map(sim::calls);
        let managed = foreign::dlpack(address, N, CUDA0, || ());
        let tensor = unsafe { dlpack::import_on(managed.as_ptr(), Some(RawStream::LEGACY)) }.expect("imported");
        let request = Request { stream: sim::raw(consumer.stream as i64), ..Request::default() };
        drop(dlpack::export::<DLManagedTensorVersioned>(tensor.clone(), &request).expect("exported"));
        let column = convert::column(&tensor, "x", Copying::Never).expect("a view");
        let mut out = std::mem::MaybeUninit::<ArrowDeviceArray>::uninit();
        unsafe { column.clone().export_device(out.as_mut_ptr()) }.expect("exported");
        let mut out = unsafe { out.assume_init() };
        let again = unsafe { Batch::import_device(&raw mut out, column.schema()) }.expect("imported");
        again.wait(consumer.on()).expect("waits");
        consumer.read(address);
        again.used_on(consumer.on()).expect("used");
        drop((again, column));
        drop(tensor.copy_to(CUDA0, consumer.on()).expect("copied"));
        drop(tensor);
        sim::settle();
        assert_eq!(BLOCKING.map(sim::calls), before, "{BLOCKING:?}");
        // The reaper calls the driver's free, which may wait; a second free shows who called the first one.
        sim::label(Some("the caller"));
        let addresses = owned.each_ref().map(|tensor| tensor.data() as u64);
        for tensor in owned {
            tensor.used_on(consumer.on()).expect("used");
            drop(tensor);
        }
        sim::settle();
        cu!("cuMemFree_v2", addresses[0]);
        cu!("cuMemFreeHost", addresses[1]);
        cu!("cuMemFree_v2", addresses[2]);
        sim::label(None);
        let findings = sim::take_findings();
        assert_eq!(findings.len(), 3, "{findings:?}");
        for finding in findings {
            let (second, first) = finding.split_once("before it").expect("both calls");
            assert!(second.contains("the caller") && !first.contains("the caller"), "{finding}");
        }
        sim::synchronize(consumer.stream);
        sim::free(address);
        consumer.end();
    });
}

// ---- ends of processes ----

#[test]
fn the_end_of_the_process_does_not_wait_for_ever() {
    if sim::is_child() {
        return end_with_endless_work();
    }
    if sim::skipped("work that never ends hangs a real driver") {
        return;
    }
    let start = Instant::now();
    let output = sim::child("the_end_of_the_process_does_not_wait_for_ever", &[("SIMCUDA_MODE", "threads")]);
    let time = start.elapsed();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("one release waits"), "{output:?}");
    // The process gives the work half a second; the rest is for a busy machine.
    assert!(time < patient(Duration::from_secs(120)), "{time:?}");
}

fn end_with_endless_work() {
    sim::set_current(sim::primary(0));
    let stream = sim::stream();
    let tensor = foreign::tensor(sim::alloc(N), N, CUDA0, || panic!("the work is not done"));
    sim::block_forever(stream);
    tensor.used_on(sim::on(stream)).expect("used");
    drop(tensor);
    assert_eq!(releases_waiting(), 1);
    println!("one release waits");
}

/// Makes the code of the driver trap: a call of it in this process ends the process.
fn forbid_the_driver(regions: &[(usize, usize)]) {
    for &(start, end) in regions {
        // SAFETY: code of the driver, which must no longer be called.
        unsafe { libc::mprotect(start as *mut libc::c_void, end - start, libc::PROT_NONE) };
    }
}

fn code_of_the_driver() -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the maps");
    let hex = |text: &str| usize::from_str_radix(text, 16).expect("an address");
    let driver = |line: &&str| line.contains(" r-xp ") && (line.contains("simcuda_driver") || line.contains("libcuda"));
    let range =
        |line: &str| line.split(' ').next().and_then(|range| range.split_once('-').map(|(a, b)| (hex(a), hex(b))));
    maps.lines().filter(driver).filter_map(range).collect()
}

#[test]
fn a_forked_child_never_calls_the_driver() {
    let session = Session::new();
    session.begin(sim::schedules(1)[0]);
    let (memory, consumer) = (Foreign::allocate(), Consumer::begin());
    let tensor = memory.tensor();
    consumer.read(memory.address);
    tensor.used_on(consumer.on()).expect("used");
    let kinds = [DeviceType::CUDA, DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED];
    let owned: Vec<Tensor> = (kinds.into_iter())
        .map(|kind| Tensor::allocate(Device { kind, id: 0 }, DType::UINT8, &[16], None).expect("allocated"))
        .chain([Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(consumer.on())).expect("allocated")])
        .collect();
    owned.iter().for_each(|tensor| tensor.used_on(consumer.on()).expect("used"));
    let unused = Tensor::allocate(CUDA0, DType::UINT8, &[16], None).expect("allocated");
    let mut batch = foreign::batch(memory.address, N, CUDA0, || ());
    unsafe { batch.produced_on(consumer.on()) }.expect("not shared yet");
    let mut out = std::mem::MaybeUninit::<ArrowDeviceArray>::uninit();
    unsafe { batch.export_device(out.as_mut_ptr()) }.expect("exported");
    let mut out = unsafe { out.assume_init() };
    let event = Event::record(consumer.on()).expect("recorded");
    let code = code_of_the_driver();
    assert!(!code.is_empty());
    // SAFETY: the child only drops what it has and ends without running handlers.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        forbid_the_driver(&code);
        let mut wrong = 0;
        let errors = [
            tensor.used_on(consumer.on()),
            tensor.wait(consumer.on()),
            tensor.check_pointers(),
            Tensor::allocate(CUDA0, DType::UINT8, &[16], None).map(drop),
            event.is_complete().map(drop),
            event.synchronize(),
            event.wait(consumer.on()),
            // SAFETY: nothing is done with a stream here.
            unsafe { consumer.on().close() },
        ];
        for error in errors {
            wrong += i32::from(!error.is_err_and(|error| error.message().contains("fork")));
        }
        drop((tensor, owned, unused, event));
        unsafe { devexchange_core::arrow::release_array(&raw mut out.array) };
        wrong += i32::from(memory.released() != 0) * 16;
        // SAFETY: ends the child.
        unsafe { libc::_exit(wrong) };
    }
    let mut status = 0;
    // SAFETY: the child that was made above.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0, "a wait status: exit code in the second byte, signal in the first");
    drop((tensor, owned, unused, event));
    unsafe { devexchange_core::arrow::release_array(&raw mut out.array) };
    memory.end();
    consumer.end();
}

#[test]
fn run_by_threads() {
    sim::again_with_threads();
}
