//! Arrays that are exported and imported through the Arrow C device interface.

use super::*;

#[test]
fn arrow_export_carries_an_event_that_survives_moves() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let batch = scene.batch();
        let shared = export_arrow(batch.clone());
        // The consumer moves the struct, as the standard allows, and the original is gone before it reads the copy.
        let moved = Box::new(shared);
        drop(batch);
        wait_event(&moved, scene.consumer);
        scene.consume(scene.consumer);
        release(*moved);
        scene.end();
    });
}

#[test]
fn arrow_export_without_the_wait_is_seen() {
    Session::new().races(TWINS, || {
        let scene = Scene::new();
        let array = export_arrow(scene.batch());
        consume_blindly(&scene, scene.consumer);
        release(array);
        scene.end();
    });
}

#[test]
fn arrow_exports_at_different_times_have_events_of_their_own() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let batch = scene.batch();
        let early = export_arrow(batch.clone());
        sim::fill(scene.data, 0x5a, N, scene.producer);
        let late = export_arrow(batch);
        release(early);
        wait_event(&late, scene.consumer);
        scene.consume(scene.consumer);
        release(late);
        scene.end();
    });
}

#[test]
fn arrow_import_has_to_be_waited_for() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let mut array = scene.arrow();
        let batch = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported");
        assert!(array.array.release.is_none());
        batch.wait(sim::on(scene.consumer)).expect("waits");
        scene.consume(scene.consumer);
        drop(batch);
        scene.end();
    });
}

#[test]
fn arrow_import_without_the_wait_is_seen() {
    Session::new().races(TWINS, || {
        let scene = Scene::new();
        let mut array = scene.arrow();
        let batch = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported");
        consume_blindly(&scene, scene.consumer);
        drop(batch);
        scene.end();
    });
}

#[test]
fn the_host_is_told_to_wait() {
    let session = Session::new();
    session.each(3, || {
        let (data, stream, event) = (sim::alloc_host(N), sim::stream(), sim::event());
        sim::fill(data, 7, N, stream);
        cu_ok!("cuEventRecord", event, stream);
        for kind in [DeviceType::CUDA_HOST, DeviceType::CUDA] {
            let device = Device { kind, id: 0 };
            let mut array = foreign::arrow(data, N, device, event, || ());
            let batch = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported");
            match batch.root().values::<u8>() {
                Err(refused) => {
                    let expected = if kind == DeviceType::CUDA { DEVX_DEVICE } else { DEVX_NOT_READY };
                    assert_eq!(refused.status(), expected, "{refused}");
                }
                Ok(bytes) => assert!(sim::goes_on() && kind == DeviceType::CUDA_HOST && bytes == [7; N as usize]),
            }
        }
        sim::synchronize(stream);
        cu_ok!("cuMemFreeHost", data);
        cu_ok!("cuEventDestroy_v2", event);
        sim::destroy(stream);
    });
}

#[test]
fn a_reader_of_rows_asks_once_whether_they_are_ready() {
    let session = Session::new();
    session.each(3, || {
        let (data, stream, event) = (sim::alloc_host(N), sim::stream(), sim::event());
        sim::fill(data, 7, N, stream);
        cu_ok!("cuEventRecord", event, stream);
        let mut array = foreign::arrow(data, N, Device { kind: DeviceType::CUDA_HOST, id: 0 }, event, || ());
        let batch = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported");
        let early = batch.root().rows();
        match early.fixed(0) {
            Err(refused) => assert_eq!(refused.status(), DEVX_NOT_READY, "{refused}"),
            Ok(bytes) => assert_eq!(bytes, [7]),
        }
        sim::synchronize(stream);
        assert_eq!(early.fixed(0), Ok(&[7][..]), "it looks again");
        let rows = batch.root().rows();
        let queries = sim::calls("cuEventQuery");
        assert!((0..rows.length()).all(|row| rows.value(row) == Ok(Value::UInt(7))));
        assert_eq!(sim::calls("cuEventQuery"), queries);
        drop(batch);
        cu_ok!("cuMemFreeHost", data);
        cu_ok!("cuEventDestroy_v2", event);
        sim::destroy(stream);
    });
}

#[test]
fn arrow_reexport_keeps_the_producers_event() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let mut array = scene.arrow();
        let given = array.sync_event;
        let batch = unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported");
        let again = export_arrow(batch);
        assert_eq!(again.sync_event, given);
        wait_event(&again, scene.consumer);
        scene.consume(scene.consumer);
        release(again);
        scene.end();
    });
}
