//! An import comes after the producer's work, and the producer's next work after that of the consumer.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use devexchange_core::cuda_array::Request;
use devexchange_core::dlpack::Copying;
use devexchange_core::stream::{LEGACY, PER_THREAD};
use devexchange_core::{Batch, convert};
use devexchange_tests::cu_ok;
use devexchange_tests::cuda_array::{produce, state};
use devexchange_tests::sim::{self, Session};

use super::{N, SEEDS, Scene, TWINS, for_stream, import};

#[test]
fn the_producers_stream_is_waited_for() {
    let session = Session::new();
    for value in [LEGACY, PER_THREAD, 0] {
        session.each(SEEDS, || {
            let scene = Scene::new();
            // 0 stands for a handle here.
            let stream = if value == 0 { scene.producer } else { value as u64 };
            sim::fill(scene.data, 0x5a, N, stream);
            let mut array = produce(scene.data, "|u1", &[N as i64], || ());
            array.stream = stream as i64;
            let tensor = import(&mut array, &for_stream(scene.consumer)).expect("imported");
            assert!(array.release.is_none());
            scene.consume(scene.consumer);
            drop(tensor);
            sim::synchronize(stream);
            scene.end();
        });
    }
}

/// The import names no stream: the next consumer of the tensor waits.
#[test]
fn the_wait_is_handed_on() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, scene.producer);
        let mut array = produce(scene.data, "|u1", &[N as i64], || ());
        array.stream = scene.producer as i64;
        let tensor = import(&mut array, &Request::default()).expect("imported");
        // The producer continues with other work, and its stream can even end: the event stays.
        tensor.wait(sim::on(scene.consumer)).expect("waits");
        scene.consume(scene.consumer);
        drop(tensor);
        scene.end();
    });
}

/// At the end the producer's stream waits for the consumer's work, on the device.
#[test]
fn the_producers_stream_waits_at_the_end() {
    let session = Session::new();
    let scenario = |says_so: bool| {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, scene.producer);
        let mut array = produce(scene.data, "|u1", &[N as i64], || ());
        array.stream = scene.producer as i64;
        let tensor = import(&mut array, &for_stream(scene.consumer)).expect("imported");
        sim::copy(scene.scratch, scene.data, N, scene.consumer);
        if says_so {
            tensor.used_on(sim::on(scene.consumer)).expect("noted");
        }
        drop(tensor);
        // The producer writes again, on its own stream, without telling anybody.
        sim::fill(scene.data, 1, N, scene.producer);
        sim::synchronize(scene.producer);
        sim::synchronize(scene.consumer);
        scene
    };
    session.each(SEEDS, || scenario(true).end());
    session.races(TWINS, || scenario(false).end());
}

/// A use of a batch of columns is a use of each column: every producer's stream waits, including those of columns in a
/// batch within the batch.
#[test]
fn uses_of_a_batch_are_uses_of_its_columns() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let other = sim::stream();
        let columns = [(scene.data, scene.producer), (scene.scratch, other)].map(|(memory, producer)| {
            sim::fill(memory, 0x5a, N, producer);
            let mut array = produce(memory, "|u1", &[N as i64], || ());
            array.stream = producer as i64;
            let tensor = import(&mut array, &for_stream(scene.consumer)).expect("imported");
            convert::column(&tensor, "", Copying::Never).expect("a column")
        });
        let [first, second] = &columns;
        let on = Some(sim::on(scene.consumer));
        let pair = Batch::of_columns(&[("a", first), ("again", first)], on).expect("a batch");
        let whole = Batch::of_columns(&[("pair", &pair), ("b", second)], on).expect("a batch");
        drop((pair, columns));
        sim::copy(scene.scratch, scene.data, N, scene.consumer);
        whole.slice(0, 4).expect("some rows").used_on(sim::on(scene.consumer)).expect("noted");
        drop(whole);
        // The producers write again, without telling anybody.
        for (memory, producer) in [(scene.data, scene.producer), (scene.scratch, other)] {
            sim::fill(memory, 1, N, producer);
            sim::synchronize(producer);
        }
        scene.end();
        sim::destroy(other);
    });
}

/// A stream that is being captured cannot wait for work outside the capture: the release waits nevertheless.
#[test]
fn a_producer_that_captures_meanwhile_is_left_alone() {
    let session = Session::new();
    session.each(5, || {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, scene.producer);
        let mut array = produce(scene.data, "|u1", &[N as i64], || ());
        array.stream = scene.producer as i64;
        let released = Arc::clone(&state(&array).released);
        let tensor = import(&mut array, &for_stream(scene.consumer)).expect("imported");
        sim::copy(scene.scratch, scene.data, N, scene.consumer);
        tensor.used_on(sim::on(scene.consumer)).expect("noted");
        sim::begin_capture(scene.producer, 2);
        drop(tensor);
        sim::settle();
        assert_eq!(sim::end_capture(scene.producer), 0, "the capture is intact");
        assert_eq!(released.load(SeqCst), 1);
        scene.end();
    });
}

#[test]
fn releases_come_once_and_after_the_work() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let memory = sim::alloc(N);
        sim::fill(memory, 0x5a, N, scene.producer);
        let mut array = produce(memory, "|u1", &[N as i64], move || sim::free(memory));
        array.stream = scene.producer as i64;
        let released = Arc::clone(&state(&array).released);
        let tensor = import(&mut array, &for_stream(scene.consumer)).expect("imported");
        sim::copy(scene.scratch, memory, N, scene.consumer);
        tensor.used_on(sim::on(scene.consumer)).expect("noted");
        drop(tensor);
        sim::settle();
        assert_eq!(released.load(SeqCst), 1);
        scene.end();
    });
}

/// Managed memory has no device of its own, but its producer's default stream has one.
#[test]
fn default_streams_are_those_of_the_device_that_the_memory_was_made_for() {
    let session = Session::new();
    if sim::skipped("this needs two devices") {
        return;
    }
    session.each(SEEDS, || {
        let scene = Scene::new();
        sim::set_current(sim::primary(1));
        let mut memory = 0_u64;
        cu_ok!("cuMemAllocManaged", &raw mut memory, N, 1);
        sim::fill(memory, 0x5a, N, LEGACY as u64);
        sim::set_current(sim::primary(0));
        let mut array = produce(memory, "|u1", &[N as i64], || ());
        array.stream = LEGACY;
        let tensor = import(&mut array, &for_stream(scene.consumer)).expect("imported");
        sim::copy(scene.scratch, memory, N, scene.consumer);
        assert!(sim::download(scene.scratch, N, scene.consumer).iter().all(|byte| *byte == 0x5a));
        drop(tensor);
        sim::free(memory);
        scene.end();
    });
}
