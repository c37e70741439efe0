//! Streams that are closed while something needs them: waiting releases, holds, and data in their order.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::abi::types::DEVX_INVALID_STREAM;
use devexchange_core::dlpack::{self, Copying, Owned, Request};
use devexchange_core::manager::{Pool, PoolOptions};
use devexchange_core::runtime::cuda::Hold;
use devexchange_core::runtime::releases_waiting;
use devexchange_core::{DType, DeviceStream, Error, RawStream, Stream, Tensor, convert, cuda_array};
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::peer::{forked, soon};
use devexchange_tests::sim::{self, Live, Session};

const N: u64 = 256;

/// Waits until a closed stream is destroyed, which `is_gone` sees.
fn soon_destroyed(is_gone: impl Fn() -> bool) {
    soon("the closed stream is destroyed", || {
        assert_eq!(Stream::destroy_closed(), Ok(()));
        is_gone()
    });
}

/// There may be no moment without a waiting release.
#[test]
fn they_wait_only_for_releases_from_before() {
    if sim::skipped("streams are counted by the simulated driver") {
        return;
    }
    let session = Session::new();
    session.each(3, || {
        let waits_for = |stream: u64| {
            let on = sim::on(stream);
            let tensor = Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(on)).expect("allocated");
            sim::begin_capture(stream, 1);
            drop(tensor);
        };
        let waiting = [sim::stream(), sim::stream()];
        let streams = || Live::now().streams;
        let before = streams();
        for round in 0..10 {
            let (older, newer) = (waiting[round % 2], waiting[(round + 1) % 2]);
            if round == 0 {
                waits_for(older);
            }
            // SAFETY: nobody uses it.
            unsafe { Stream::create(0).expect("a stream").close() }.expect("closed");
            waits_for(newer);
            assert_eq!((releases_waiting(), streams()), (2, before + 1), "round {round}");
            assert_eq!(sim::end_capture(older), 0, "the capture is intact");
            soon("one release is done", || releases_waiting() == 1);
            soon_destroyed(|| streams() == before);
            if round == 9 {
                assert_eq!(sim::end_capture(newer), 0, "the capture is intact");
            }
        }
        sim::settle();
        waiting.into_iter().for_each(sim::destroy);
    });
}

/// Whatever way a function is left.
#[test]
fn one_with_an_owner_is_closed_by_itself() {
    if sim::skipped("streams are counted by the simulated driver") {
        return;
    }
    let session = Session::new();
    session.each(3, || {
        let streams = || Live::now().streams;
        let before = streams();
        let left_early = || -> Result<Tensor, Error> {
            // SAFETY: no copy of the stream is used after this.
            let stream = unsafe { DeviceStream::create(0) }?;
            assert_eq!(streams(), before + 1);
            let tensor = Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(*stream))?;
            Tensor::allocate(CUDA0, DType::UINT8, &[-1], Some(*stream))?;
            Ok(tensor)
        };
        left_early().expect_err("a negative extent");
        soon_destroyed(|| streams() == before);
        // SAFETY: as above.
        let kept = unsafe { DeviceStream::create(0) }.expect("a stream").into_stream();
        assert_eq!(streams(), before + 1);
        // SAFETY: nobody uses it.
        unsafe { kept.destroy() }.expect("destroyed");
        sim::settle();
    });
}

/// A stream is held for memory that is given back on it some time after the release.
#[test]
fn one_that_is_held_is_destroyed_after_that() {
    if sim::skipped("streams are counted by the simulated driver") {
        return;
    }
    let session = Session::new();
    session.each(3, || {
        let waiting = sim::stream();
        let streams = || Live::now().streams;
        let before = streams();
        let stream = || Stream::create(0).expect("a stream");
        let hold = |stream: Stream| Hold::new(stream.value()).expect("held");
        // SAFETY: nobody uses it.
        let close = |stream: Stream| unsafe { stream.close() }.expect("closed");
        let (held, other) = (stream(), stream());
        let holds = [held, held].map(hold);
        close(held);
        // SAFETY: as above.
        let error = unsafe { held.close() }.expect_err("closed before");
        assert!(error.message().ends_with(": it is closed already, and only held"), "{error}");
        close(other);
        let left = holds.map(|hold| {
            assert_eq!(streams(), before + 1, "the other one is destroyed");
            drop(hold);
            streams() - before
        });
        assert_eq!(left, [1, 0]);
        // A waiting release is waited for, whichever comes first.
        let (held, in_use) = (stream(), Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(sim::on(waiting))));
        let hold = hold(held);
        sim::begin_capture(waiting, 1);
        drop(in_use.expect("allocated"));
        close(held);
        drop(hold);
        assert_eq!((releases_waiting(), streams()), (1, before + 1));
        assert_eq!(sim::end_capture(waiting), 0, "the capture is intact");
        soon("the stream is destroyed", || streams() == before);
        sim::settle();
        sim::destroy(waiting);
    });
    let of_device = RawStream::LEGACY.on(1).to_raw();
    assert_eq!([-1, 1, 2, of_device].map(|none| Hold::new(none).expect("nothing").into_raw()), [0; 4]);
    for wrong in [0, -7] {
        let error = Hold::new(wrong).expect_err("no stream");
        assert_eq!(error.status(), DEVX_INVALID_STREAM);
        assert!(error.message().starts_with(&format!("stream is {wrong}: ")), "{error}");
    }
}

/// A program that makes its streams itself may hold one before anything else has needed the driver.
#[test]
fn one_is_held_by_the_first_call_of_the_process() {
    let test = "one_is_held_by_the_first_call_of_the_process";
    if sim::skipped("streams are counted by the simulated driver") || !sim::is_apart(test, &[]) {
        return;
    }
    sim::set_current(sim::primary(0));
    let stream = sim::stream();
    let hold = Hold::new(stream.cast_signed()).expect("held");
    // SAFETY: nobody queues work on it.
    unsafe { sim::on(stream).close() }.expect("closed");
    assert_eq!(sim::stat("live_streams"), 1);
    drop(hold);
    assert_eq!(sim::stat("live_streams"), 0);
}

/// The closer need not know of the data that still needs the stream.
#[test]
fn one_is_destroyed_after_what_is_in_its_order() {
    if sim::skipped("streams are counted by the simulated driver") {
        return;
    }
    let session = Session::new();
    let foreign = || {
        let memory = sim::alloc(N);
        foreign::tensor(memory, N, CUDA0, move || sim::free(memory))
    };
    let made: [(&str, &dyn Fn(Stream) -> Tensor); 6] = [
        ("allocated", &|on| Tensor::allocate(CUDA0, DType::UINT8, &[16], Some(on)).expect("allocated")),
        ("of a pool", &|on| {
            let pool = Pool::new(PoolOptions::default()).expect("a pool");
            Tensor::allocate_with(&pool, CUDA0, DType::UINT8, &[16], Some(on)).expect("allocated")
        }),
        ("copied", &|on| foreign().copy_to(CUDA0, on).expect("copied")),
        ("produced", &|on| {
            let mut tensor = foreign();
            // SAFETY: the work that fills it is queued there.
            unsafe { tensor.produced_on(on) }.expect("not shared yet");
            tensor
        }),
        ("imported", &|on| {
            let handed: Owned<DLManagedTensorVersioned> =
                dlpack::export(foreign(), &Request::default()).expect("exported");
            // SAFETY: just exported, for nobody else.
            unsafe { dlpack::import_on(handed.into_raw(), Some(on.into())) }.expect("imported")
        }),
        ("a view", &|on| {
            let column = convert::column(&foreign().copy_to(CUDA0, on).expect("copied"), "n", Copying::Never);
            convert::tensor(column.expect("a column").root(), Copying::Never).expect("a tensor")
        }),
    ];
    session.each(3, || {
        let streams = || Live::now().streams;
        for (name, make) in made {
            let before = streams();
            let on = Stream::create(0).expect("a stream");
            let tensor = make(on);
            // SAFETY: everything that uses the stream is held.
            unsafe { on.close() }.expect("closed");
            assert_eq!(streams(), before + 1, "{name}");
            // Exported data needs the stream, too; it is imported on another stream, which the consumer names.
            let consumer = sim::stream();
            let request = Request { stream: sim::raw(consumer as i64), ..Request::default() };
            let handed: Owned<DLManagedTensorVersioned> = dlpack::share(&tensor, &request).expect("exported");
            drop(tensor);
            assert_eq!(streams(), before + 2, "{name}");
            let seen = handed.import().expect("imported");
            seen.used_on(sim::on(consumer)).expect("used");
            drop(seen);
            soon("the stream is destroyed", || streams() == before + 1);
            sim::destroy(consumer);
            sim::settle();
        }
    });
}

/// The consumer's work is queued there when it releases the array.
#[test]
fn one_is_destroyed_after_a_cuda_array_that_names_it() {
    if sim::skipped("streams are counted by the simulated driver") {
        return;
    }
    let session = Session::new();
    session.each(3, || {
        let before = sim::stat("live_streams");
        let memory = sim::alloc(N);
        let tensor = foreign::tensor(memory, N, CUDA0, move || sim::free(memory));
        let on = Stream::create(0).expect("a stream");
        let request = cuda_array::Request { stream: Some(sim::raw(on.value())), ..cuda_array::Request::default() };
        let exported = cuda_array::export(tensor, &request).map_err(Error::from).expect("exported");
        assert_eq!(exported.as_raw().stream, on.value());
        // SAFETY: the consumer, who queues nothing more, is done with it.
        unsafe { on.close() }.expect("closed");
        assert_eq!(sim::stat("live_streams"), before + 1);
        drop(exported);
        soon("the stream is destroyed", || sim::stat("live_streams") == before);
    });
}

/// At the fork, the parent's threads may be about to hold another stream.
#[test]
fn a_child_holds_no_stream() {
    let _session = Session::new();
    let stream = sim::stream();
    let number = stream.cast_signed();
    let hold = || Hold::new(number).expect("held");
    let over = AtomicBool::new(false);
    let ended: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                drop(hold());
            }
        });
        let children = (0..100).map(|_| {
            let held = hold().into_raw();
            assert_eq!(held, number);
            // SAFETY: taken back once in each of the two processes.
            let let_go = || drop(unsafe { Hold::from_raw(held) });
            let status = forked(|| {
                let_go();
                hold().into_raw() == 0
            });
            let_go();
            status
        });
        let ended = children.collect();
        over.store(true, SeqCst);
        ended
    });
    assert!(ended.iter().all(|&status| status == 0), "wait statuses: {ended:?}");
    sim::destroy(stream);
}

#[test]
fn run_by_threads() {
    sim::again_with_threads();
}
