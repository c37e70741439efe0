//! What an export states: the stream that the data is behind, and all properties of the tensor; and when it is
//! released.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use devexchange_core::abi::cuda_array::DEVX_CUDA_ARRAY_NO_STREAM;
use devexchange_core::abi::types::*;
use devexchange_core::cuda_array::{self, NoStream, Owned, Request};
use devexchange_core::dlpack::Copying;
use devexchange_core::stream::{LEGACY, PER_THREAD};
use devexchange_core::{Batch, DType, Error, Flags, Owner, Tensor, TensorDesc, convert};
use devexchange_tests::cu_ok;
use devexchange_tests::cuda_array::{produce, state};
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::peer::forked;
use devexchange_tests::sim::{self, Session};

use super::{N, SEEDS, Scene, follow, for_stream, import};

#[test]
fn exports_name_the_stream_that_the_data_is_behind() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, scene.producer);
        let tensor = foreign::tensor_behind(scene.producer, scene.data, N, CUDA0, || ());
        // A consumer of version 3 waits for the stream that is named, as one in Python would.
        for request in [Request::default(), for_stream(scene.consumer)] {
            let exported = cuda_array::export(tensor.clone(), &request).map_err(Error::from).expect("exported");
            let named = exported.as_raw().stream;
            assert_eq!(named as u64, if request.stream.is_some() { scene.consumer } else { scene.producer });
            sim::synchronize(named as u64);
            scene.consume(scene.consumer);
        }
        // A consumer of version 2 works on the legacy default stream.
        let request = Request { max_version: 2, ..Request::default() };
        let exported = cuda_array::export(tensor.clone(), &request).map_err(Error::from).expect("exported");
        assert_eq!((exported.as_raw().version, exported.as_raw().stream), (2, DEVX_CUDA_ARRAY_NO_STREAM));
        scene.consume(LEGACY as u64);
        drop((exported, tensor));
        scene.end();
    });
}

/// When a context is destroyed, its work is over: nobody has to wait for it, and nobody could.
#[test]
fn exports_wait_for_no_use_that_went_with_its_context() {
    if sim::skipped("a real driver may not survive what is asked of a context that is gone") {
        return;
    }
    let session = Session::new();
    let memory = sim::alloc(N);
    let tensor = foreign::tensor(memory, N, CUDA0, || ());
    let mut own = 0_u64;
    cu_ok!("cuCtxCreate_v2", &raw mut own, 0, 0);
    tensor.used_on(sim::on(sim::stream())).expect("noted");
    cu_ok!("cuCtxDestroy_v2", own);
    sim::set_current(sim::primary(0));
    let exported = cuda_array::export(tensor, &Request::default()).map_err(Error::from);
    drop(exported.expect("nothing to wait for"));
    sim::settle();
    let findings = sim::take_findings();
    assert!(findings.iter().all(|finding| finding.contains("StaleHandle")), "{findings:#?}");
    sim::free(memory);
    drop(session);
}

/// Nobody must wait for ready data, until somebody works on it.
#[test]
fn exports_of_what_is_ready_name_a_stream_only_if_it_is_used() {
    let session = Session::new();
    for (max_version, is_used, named) in
        [(3, false, DEVX_CUDA_ARRAY_NO_STREAM), (2, false, DEVX_CUDA_ARRAY_NO_STREAM), (3, true, LEGACY)]
    {
        session.each(20, || {
            let scene = Scene::new();
            let mut array = produce(scene.data, "|u1", &[N as i64], || ());
            let tensor = import(&mut array, &Request::default()).expect("imported");
            sim::fill(scene.data, 0x5a, N, scene.producer);
            if is_used {
                tensor.used_on(sim::on(scene.producer)).expect("noted");
            } else {
                sim::synchronize(scene.producer);
            }
            let request = Request { max_version, ..Request::default() };
            let exported = cuda_array::export(tensor, &request).map_err(Error::from).expect("exported");
            assert_eq!((exported.as_raw().version, exported.as_raw().stream), (max_version, named));
            if is_used {
                follow(scene.consumer, named as u64);
            }
            scene.consume(scene.consumer);
            drop(exported);
            scene.end();
        });
    }
}

/// Noted work is work on the data: waiting for the named stream must be enough for all of it (version 3, "Interface
/// Requirements").
#[test]
fn exports_come_after_the_work_that_was_noted() {
    let session = Session::new();
    for (queued, named) in [(false, false), (true, false), (true, true)] {
        session.each(SEEDS, || {
            let (scene, other) = (Scene::new(), sim::stream());
            let mut tensor = foreign::tensor(scene.data, N, CUDA0, || ());
            if queued {
                unsafe { tensor.produced_on(sim::on(scene.producer)) }.expect("not shared");
            }
            // The holder of the tensor works on it, on another stream.
            sim::fill(scene.data, 0x5a, N, other);
            tensor.used_on(sim::on(other)).expect("noted");
            let request = if named { for_stream(scene.consumer) } else { Request::default() };
            let exported = cuda_array::export(tensor.clone(), &request).map_err(Error::from).expect("exported");
            let behind = match (named, queued) {
                (true, _) => scene.consumer,
                (false, true) => scene.producer,
                (false, false) => LEGACY as u64,
            };
            assert_eq!(exported.as_raw().stream as u64, behind);
            follow(scene.consumer, behind);
            scene.consume(scene.consumer);
            drop((exported, tensor));
            scene.end();
            sim::synchronize(other);
            sim::destroy(other);
        });
    }
}

/// Work that was noted with a batch of columns is work on the columns, and the other way round.
#[test]
fn exports_come_after_the_work_with_a_batch_of_the_column() {
    let session = Session::new();
    for noted_with_the_batch in [false, true] {
        session.each(SEEDS, || {
            let (scene, on) = (Scene::new(), sim::on);
            let mut tensor = foreign::tensor(scene.data, N, CUDA0, || ());
            unsafe { tensor.produced_on(on(scene.consumer)) }.expect("not shared");
            let column = convert::column(&tensor, "", Copying::Never).expect("a column");
            let batch = Batch::of_columns(&[("x", &column)], Some(on(scene.consumer))).expect("a batch");
            sim::fill(scene.data, 0x5a, N, scene.producer);
            let (used, other) = if noted_with_the_batch { (&batch, &column) } else { (&column, &batch) };
            used.used_on(on(scene.producer)).expect("noted");
            let seen = other.column(0).unwrap_or_else(|| other.root());
            let seen = convert::tensor(seen, Copying::Never).expect("a tensor");
            let exported =
                cuda_array::export(seen, &for_stream(scene.consumer)).map_err(Error::from).expect("exported");
            scene.consume(exported.as_raw().stream as u64);
            drop((exported, batch, column, tensor));
            scene.end();
        });
    }
}

/// A consumer that has made the named stream wait for its work may release: the work queued there comes first.
#[test]
fn exports_are_released_after_what_is_behind_the_named_stream() {
    let session = Session::new();
    for (names_one, captures) in [(false, false), (true, false), (true, true)] {
        session.each(if captures { 5 } else { SEEDS }, || {
            let (scene, named) = (Scene::new(), sim::stream());
            let memory = sim::alloc(N);
            sim::fill(memory, 0x5a, N, scene.producer);
            let released = Arc::new(AtomicU32::new(0));
            let count = Arc::clone(&released);
            let tensor = foreign::tensor_behind(scene.producer, memory, N, CUDA0, move || {
                sim::free(memory);
                count.fetch_add(1, SeqCst);
            });
            let request = if names_one { for_stream(named) } else { Request::default() };
            let exported = cuda_array::export(tensor, &request).map_err(Error::from).expect("exported");
            let mut array = exported.into_raw();
            assert_eq!(array.stream as u64, if names_one { named } else { scene.producer });
            follow(scene.consumer, array.stream as u64);
            sim::copy(scene.scratch, memory, N, scene.consumer);
            follow(array.stream as u64, scene.consumer);
            if captures {
                sim::begin_capture(named, 2);
            }
            unsafe { cuda_array::release(&raw mut array) };
            if captures {
                std::thread::sleep(std::time::Duration::from_millis(2));
                assert_eq!(sim::end_capture(named), 0, "the capture is intact");
            }
            sim::settle();
            assert_eq!(released.load(SeqCst), 1);
            sim::synchronize(named);
            sim::destroy(named);
            scene.end();
        });
    }
}

/// A consumer before version 3 gets no stream: the legacy default stream stands for the producer's, at the end, too.
#[test]
fn exports_without_a_stream_are_released_after_the_legacy_one() {
    let session = Session::new();
    for produced in [false, true] {
        session.each(SEEDS, || {
            let (scene, memory) = (Scene::new(), sim::alloc(N));
            sim::fill(memory, 0x5a, N, scene.producer);
            let mut tensor = foreign::tensor(memory, N, CUDA0, move || sim::free(memory));
            if produced {
                unsafe { tensor.produced_on(sim::on(scene.producer)) }.expect("not shared");
            } else {
                sim::synchronize(scene.producer);
            }
            let request = Request { max_version: 2, ..Request::default() };
            let exported = cuda_array::export(tensor, &request).map_err(Error::from).expect("exported");
            let mut array = exported.into_raw();
            assert_eq!(array.stream, DEVX_CUDA_ARRAY_NO_STREAM);
            sim::copy(scene.scratch, memory, N, LEGACY as u64);
            unsafe { cuda_array::release(&raw mut array) };
            sim::settle();
            sim::synchronize(LEGACY as u64);
            scene.end();
        });
    }
}

/// Where no stream is named, the policy says who waits: the legacy default stream, the host, or nobody.
#[test]
fn who_waits_for_an_export_without_a_stream() {
    if sim::skipped("calls of the driver are counted") {
        return;
    }
    let session = Session::new();
    session.each(5, || {
        for (max_version, no_stream, waits) in [
            (2, NoStream::LegacyDefault, [1, 0]),
            (2, NoStream::HostSync, [1, 1]),
            (2, NoStream::Trust, [0, 0]),
            (3, NoStream::HostSync, [0, 0]),
        ] {
            let scene = Scene::new();
            sim::fill(scene.data, 0x5a, N, scene.producer);
            let tensor = foreign::tensor_behind(scene.producer, scene.data, N, CUDA0, || ());
            let calls = || ["cuStreamWaitEvent", "cuStreamSynchronize"].map(sim::calls);
            let before = calls();
            let request = Request { max_version, no_stream, stream: None };
            let exported = cuda_array::export(tensor, &request).map_err(Error::from).expect("exported");
            let [wait, synchronize] = calls();
            assert_eq!([wait - before[0], synchronize - before[1]], waits, "version {max_version}, {no_stream:?}");
            if waits == [1, 1] {
                // On any stream, because the host has waited.
                scene.consume(scene.consumer);
            }
            drop(exported);
            scene.end();
        }
    });
}

/// Nobody imported it, so nobody ordered anything behind its stream.
#[test]
fn what_is_not_taken_is_released_at_once() {
    let session = Session::new();
    session.each(1, || {
        let scene = Scene::new();
        let released = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&released);
        sim::fill(scene.data, 0x5a, N, LEGACY as u64);
        let tensor = foreign::tensor(scene.data, N, CUDA0, move || {
            count.fetch_add(1, SeqCst);
        });
        let exported = cuda_array::export(tensor, &Request::default()).map_err(Error::from).expect("exported");
        sim::copy(scene.scratch, scene.data, N, exported.as_raw().stream as u64);
        drop(exported);
        assert_eq!(released.load(SeqCst), 1);
        sim::synchronize(LEGACY as u64);
        scene.end();
    });
}

/// Whoever owns an array imports it without a promise; what is refused stays with him, and is released once.
#[test]
fn what_is_owned_is_imported_or_released() {
    let session = Session::new();
    session.each(1, || {
        let scene = Scene::new();
        let released = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&released);
        sim::fill(scene.data, 0x5a, N, scene.producer);
        let tensor = foreign::tensor_behind(scene.producer, scene.data, N, CUDA0, move || {
            count.fetch_add(1, SeqCst);
        });
        let mut exported = cuda_array::export(tensor, &Request::default()).map_err(Error::from).expect("exported");
        let seen = exported.import(&for_stream(scene.consumer), false).expect("imported").tensor;
        let again = exported.import(&Request::default(), false).expect_err("nothing is left");
        assert_eq!(again.status(), DEVX_RELEASED);
        drop(exported);
        scene.consume(scene.consumer);
        assert_eq!(released.load(SeqCst), 0);
        seen.used_on(sim::on(scene.consumer)).expect("noted");
        drop(seen);
        sim::settle();
        assert_eq!(released.load(SeqCst), 1);

        let foreign = |typestr| {
            let array = produce(scene.data, typestr, &[N as i64], || ());
            (Arc::clone(&state(&array).released), unsafe { Owned::from_raw(array) })
        };
        let (released, mut array) = foreign("|V8");
        array.import(&Request::default(), false).expect_err("no elements of ours");
        assert_eq!(released.load(SeqCst), 0);
        drop(array);
        assert_eq!(released.load(SeqCst), 1);
        let (released, mut array) = foreign("|u1");
        let seen = array.import(&Request::default(), false).expect("imported");
        drop(array);
        assert_eq!(released.load(SeqCst), 0);
        drop(seen);
        assert_eq!(released.load(SeqCst), 1);
        scene.end();
    });
}

/// The number 2 means a different stream on every thread, so the default stream of one thread is not named on another.
#[test]
fn the_default_stream_of_another_thread_is_named_by_the_legacy_one() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, PER_THREAD as u64);
        let tensor = foreign::tensor_behind(PER_THREAD as u64, scene.data, N, CUDA0, || ());
        let export = || cuda_array::export(tensor.clone(), &Request::default()).map_err(Error::from).expect("exported");
        assert_eq!(export().as_raw().stream, PER_THREAD);
        std::thread::scope(|scope| {
            let consumer = scope.spawn(|| {
                sim::set_current(sim::primary(0));
                let exported = export();
                follow(scene.consumer, exported.as_raw().stream as u64);
                scene.consume(scene.consumer);
                assert_eq!(exported.as_raw().stream, LEGACY);
            });
            consumer.join().expect("the consumer");
        });
        drop(tensor);
        scene.end();
    });
}

#[test]
fn what_is_described_comes_back() {
    let session = Session::new();
    session.each(5, || {
        let scene = Scene::new();
        let described = |dtype, shape: &[i64], strides: Option<&[i64]>, flags| {
            let data = std::ptr::with_exposed_provenance_mut(scene.data as usize);
            let desc = TensorDesc { data, device: CUDA0, dtype, shape, strides, byte_offset: 0, flags };
            unsafe { Tensor::from_raw_parts(&desc, Owner::none()) }.map_err(Error::from).expect("described")
        };
        for (dtype, typestr) in [
            (DType::BOOL, "|b1"),
            (DType::INT8, "|i1"),
            (DType::UINT16, "<u2"),
            (DType::INT64, "<i8"),
            (DType::FLOAT16, "<f2"),
            (DType::FLOAT64, "<f8"),
            ("complex64".parse().expect("a type"), "<c8"),
            ("complex128".parse().expect("a type"), "<c16"),
        ] {
            let tensor = described(dtype, &[2, 3], Some(&[1, 4]), Flags::READ_ONLY);
            let mut array =
                cuda_array::export(tensor, &Request::default()).map_err(Error::from).expect("exported").into_raw();
            let said = unsafe { std::ffi::CStr::from_ptr(array.typestr) };
            assert_eq!((said.to_str(), array.read_only), (Ok(typestr), 1));
            let width = dtype.element_bytes().expect("whole bytes") as i64;
            assert_eq!(unsafe { std::slice::from_raw_parts(array.strides, 2) }, [width, 4 * width]);
            let back = import(&mut array, &Request::default()).expect("imported");
            assert_eq!((back.dtype(), back.shape(), back.strides()), (dtype, &[2, 3][..], &[1, 4][..]));
            assert!(back.flags().has(Flags::READ_ONLY));
            assert_eq!(back.data().addr() as u64, scene.data);
        }
        // NumPy has no such numbers, or uses the name for others.
        for name in ["complex32", "int128", "uint128", "float128", "bfloat16", "float32x2"] {
            let tensor = described(name.parse().expect(name), &[2], None, Flags::default());
            let refused = cuda_array::export(tensor, &Request::default()).map_err(Error::from).expect_err(name);
            assert_eq!(refused.status(), DEVX_UNSUPPORTED, "{refused}");
            assert!(refused.message().contains(name), "{refused}");
        }
        let compact = described(DType::FLOAT32, &[4, 2], None, Flags::default());
        let exported = cuda_array::export(compact, &Request::default()).map_err(Error::from).expect("exported");
        assert!(exported.as_raw().strides.is_null());
        drop(exported);
        let empty = described(DType::FLOAT32, &[0, 2], None, Flags::default());
        let exported = cuda_array::export(empty, &Request::default()).map_err(Error::from).expect("exported");
        assert!(exported.as_raw().data.is_null());
        let mut array = exported.into_raw();
        assert_eq!(import(&mut array, &Request::default()).expect("imported").shape(), [0, 2]);
        scene.end();
    });
}

/// In the child, a thread of the parent that was noting a use is missing.
#[test]
fn a_fork_does_not_wait_for_uses_that_threads_of_its_parent_note() {
    let _session = Session::new();
    let tensor = Tensor::allocate(CUDA0, DType::UINT8, &[N as i64], None).expect("allocated");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                tensor.used_on(sim::on(1)).expect("noted");
            }
        });
        tensor.used_on(sim::on(1)).expect("noted");
        let refused = || {
            cuda_array::export(tensor.clone(), &Request::default())
                .is_err_and(|refused| refused.error.message().contains("fork"))
        };
        let ended: Vec<_> = (0..100).map(|_| forked(refused)).collect();
        over.store(true, SeqCst);
        assert!(ended.iter().all(|&status| status == 0), "wait statuses: {ended:?}");
    });
    drop(tensor);
    sim::synchronize(LEGACY as u64);
    sim::settle();
}
