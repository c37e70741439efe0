//! What an import accepts: arrays without a stream, according to the policy, and all types; and what it refuses.

use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use devexchange_core::abi::cuda_array::DevxCudaArray;
use devexchange_core::abi::types::*;
use devexchange_core::cuda_array::{self, NoStream, Request, dtype_of};
use devexchange_core::stream::LEGACY;
use devexchange_core::{Device, Tensor};
use devexchange_tests::cuda_array::{produce, state};
use devexchange_tests::sim::{self, Session};

use super::{N, Scene, TWINS, for_stream, import};

/// Versions before 3 have no stream: the policy decides what takes its place.
#[test]
fn producers_without_a_stream() {
    let session = Session::new();
    for version in 0..3 {
        for (no_stream, filled_on_legacy) in [(NoStream::LegacyDefault, true), (NoStream::HostSync, false)] {
            session.each(20, || {
                let scene = Scene::new();
                let stream = if filled_on_legacy { LEGACY as u64 } else { scene.producer };
                sim::fill(scene.data, 0x5a, N, stream);
                let mut array = produce(scene.data, "|u1", &[N as i64], || ());
                (array.version, array.stream) = (version, 0);
                let request = Request { no_stream, ..for_stream(scene.consumer) };
                let tensor = import(&mut array, &request).expect("imported");
                scene.consume(scene.consumer);
                drop(tensor);
                scene.end();
            });
        }
    }
    session.races(TWINS, || {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, LEGACY as u64);
        let mut array = produce(scene.data, "|u1", &[N as i64], || ());
        array.version = 2;
        let request = Request { no_stream: NoStream::Trust, ..for_stream(scene.consumer) };
        let tensor = import(&mut array, &request).expect("imported");
        sim::copy(scene.scratch, scene.data, N, scene.consumer);
        sim::synchronize(scene.consumer);
        drop(tensor);
        sim::synchronize(LEGACY as u64);
        scene.end();
    });
}

/// Data without a stream in version 3 is ready: the host does not wait for other work of the device.
#[test]
fn the_host_waits_for_no_array_that_is_ready() {
    let session = Session::new();
    if sim::skipped("calls of the driver are counted") {
        return;
    }
    session.each(5, || {
        let scene = Scene::new();
        for (version, waits) in [(2, 1), (3, 0)] {
            let before = sim::calls("cuCtxSynchronize");
            let mut array = produce(scene.data, "|u1", &[N as i64], || ());
            array.version = version;
            let request = Request { no_stream: NoStream::HostSync, ..Request::default() };
            drop(import(&mut array, &request).expect("imported"));
            assert_eq!(sim::calls("cuCtxSynchronize") - before, waits, "version {version}");
        }
        scene.end();
    });
}

/// Waiting for one device does not disturb captures on another one.
#[test]
fn the_host_waits_for_one_device_while_another_one_captures() {
    let session = Session::new();
    if sim::skipped("there are two devices") {
        return;
    }
    session.each(5, || {
        let scene = Scene::new();
        sim::fill(scene.data, 0x5a, N, scene.producer);
        sim::set_current(sim::primary(1));
        let other = sim::stream();
        sim::begin_capture(other, 0);
        sim::set_current(sim::primary(0));
        let mut array = produce(scene.data, "|u1", &[N as i64], || ());
        array.version = 2;
        let request = Request { no_stream: NoStream::HostSync, ..Request::default() };
        let imported = import(&mut array, &request);
        assert_eq!(sim::end_capture(other), 0, "the capture is intact");
        drop(imported.expect("imported"));
        sim::destroy(other);
        scene.end();
    });
}

#[test]
fn type_strings() {
    let _session = Session::new();
    for typestr in ["|b1", "<i2", "=u4", "<f8", "<c8", "<c16", "|i1", ">u1", "<f2"] {
        dtype_of(typestr).expect(typestr);
    }
    for (typestr, status) in [
        ("", DEVX_INVALID_DTYPE),
        ("f4", DEVX_INVALID_DTYPE),
        ("<f", DEVX_INVALID_DTYPE),
        ("<f3", DEVX_INVALID_DTYPE),
        ("<f+4", DEVX_INVALID_DTYPE),
        ("<f99999", DEVX_INVALID_DTYPE),
        ("|f4", DEVX_INVALID_DTYPE),
        ("<x4", DEVX_INVALID_DTYPE),
        ("<b2", DEVX_INVALID_DTYPE),
        (">f4", DEVX_UNSUPPORTED),
        ("<M8[ns]", DEVX_UNSUPPORTED),
        ("|V8", DEVX_UNSUPPORTED),
        ("|O", DEVX_UNSUPPORTED),
        ("|S3", DEVX_UNSUPPORTED),
        ("|t3", DEVX_UNSUPPORTED),
        // NumPy's long double, which is not an IEEE number of 128 bits like DLPack's float128.
        ("<f16", DEVX_UNSUPPORTED),
        ("<c24", DEVX_UNSUPPORTED),
        ("<c32", DEVX_UNSUPPORTED),
        // More bits than DLPack's field for their number can hold.
        ("<i32", DEVX_INVALID_DTYPE),
    ] {
        let error = dtype_of(typestr).expect_err(typestr);
        assert_eq!(error.status(), status, "{error}");
        assert!(error.message().contains(typestr) && !error.message().contains("bits is 0"), "{error}");
    }
}

type Spoil = Box<dyn Fn(&mut DevxCudaArray)>;

/// A refusal that names the field and the value, and takes nothing.
fn is_refused(data: u64, status: DevxStatus, says: &str, spoil: &dyn Fn(&mut DevxCudaArray)) {
    let mut array = produce(data, "<i4", &[4], || ());
    let released = Arc::clone(&state(&array).released);
    spoil(&mut array);
    let error = import(&mut array, &Request::default()).expect_err(says);
    assert!(error.status() == status && error.message().contains(says), "{says}: {error}");
    assert_eq!((array.release.is_some(), released.load(SeqCst)), (true, 0), "{says}");
    unsafe { cuda_array::release(&raw mut array) };
    unsafe { cuda_array::release(&raw mut array) };
    assert_eq!(released.load(SeqCst), 1, "{says}");
    let error = import(&mut array, &Request::default()).expect_err("released");
    assert_eq!(error.status(), DEVX_RELEASED);
}

#[test]
fn a_stream_that_is_none() {
    let session = Session::new();
    if sim::skipped("a real driver may not survive a handle that is none") {
        return;
    }
    let data = sim::alloc(N);
    is_refused(data, DEVX_DRIVER, "(400)", &|array| array.stream = 0x12345);
    sim::free(data);
    sim::take_findings();
    session.accept();
}

#[test]
fn bad_input() {
    let session = Session::new();
    let data = sim::alloc(N);
    let freed = sim::alloc(N);
    sim::free(freed);
    sim::take_findings();
    session.accept();
    let host = Box::new([0_u8; 16]);
    let host = (&raw const *host).expose_provenance() as u64;
    let cases: Vec<(DevxStatus, &str, Spoil)> = vec![
        (DEVX_VERSION, "version is 4", Box::new(|array| array.version = 4)),
        (DEVX_VERSION, "version is -1", Box::new(|array| array.version = -1)),
        (DEVX_INVALID_STREAM, "stream is 0", Box::new(|array| array.stream = 0)),
        (DEVX_INVALID_STREAM, "stream is -2", Box::new(|array| array.stream = -2)),
        (DEVX_INVALID_DTYPE, "typestr is NULL", Box::new(|array| array.typestr = null())),
        (DEVX_INVALID_SHAPE, "ndim is -1", Box::new(|array| array.ndim = -1)),
        (DEVX_INVALID_SHAPE, "ndim is 65", Box::new(|array| array.ndim = 65)),
        (DEVX_INVALID_SHAPE, "shape is NULL", Box::new(|array| array.shape = null())),
        (DEVX_INVALID_SHAPE, "shape[0] is -3", Box::new(|array| state(array).shape[0] = -3)),
        (DEVX_INVALID_ARGUMENT, "data is NULL", Box::new(|array| array.data = null_mut())),
        (
            DEVX_INVALID_SHAPE,
            "strides[0] is 6 bytes",
            Box::new(|array| {
                state(array).strides = vec![6];
                array.strides = state(array).strides.as_ptr();
            }),
        ),
        (DEVX_DEVICE, "needs 4000 bytes", Box::new(|array| state(array).shape[0] = 1000)),
        (
            DEVX_DEVICE,
            "host memory",
            Box::new(move |array| array.data = std::ptr::with_exposed_provenance_mut(host as usize)),
        ),
        (
            DEVX_DEVICE,
            "data is",
            Box::new(move |array| array.data = std::ptr::with_exposed_provenance_mut(freed as usize)),
        ),
    ];
    for (status, says, spoil) in cases {
        is_refused(data, status, says, &spoil);
    }
    assert_eq!(
        unsafe { cuda_array::import(null_mut(), &Request::default(), true) }.expect_err("NULL").status(),
        DEVX_NULL_ARGUMENT
    );
    let on_host = Tensor::from_vec(vec![1_i32], &[1]).expect("a tensor");
    let refused = cuda_array::export(on_host, &Request::default()).expect_err("host memory");
    assert_eq!((refused.error.status(), refused.returned.device()), (DEVX_DEVICE, Device::CPU));
    sim::free(data);
    sim::take_findings();
    session.accept();
}
