//! Masks: tensors of their own, with the shape of their array.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use devexchange_core::abi::cuda_array::DevxCudaArray;
use devexchange_core::abi::types::*;
use devexchange_core::cuda_array::{self, Request};
use devexchange_core::{DType, Flags};
use devexchange_tests::cuda_array::{Producer, keep_mask, mask_of, produce, state};
use devexchange_tests::sim::{self, Session};

use super::{N, SEEDS, Scene, for_stream, import};

#[test]
fn masks_are_a_tensor_of_their_own() {
    let session = Session::new();
    session.each(5, || {
        let scene = Scene::new();
        sim::fill(scene.data, 1, N, scene.producer);
        let mut array = produce(scene.data, "<i4", &[4], || ());
        array.stream = scene.producer as i64;
        let mask = mask_of(&array, scene.data + 64);
        keep_mask(&mut array, mask);
        let released = Arc::clone(&state(&array).released);
        let error = import(&mut array, &Request::default()).expect_err("a mask");
        assert_eq!((error.status(), array.release.is_some()), (DEVX_UNSUPPORTED, true));
        let imported = unsafe { cuda_array::import(&raw mut array, &Request::default(), true) }.expect("imported");
        drop(imported.tensor);
        let mask = imported.mask.expect("a mask");
        assert_eq!((mask.dtype(), mask.shape(), mask.data().addr() as u64), (DType::BOOL, &[4][..], scene.data + 64));
        assert_eq!(released.load(SeqCst), 0);
        drop(mask);
        assert_eq!(released.load(SeqCst), 1);
        scene.end();
    });
}

/// An array of 2 x 3 bytes with a mask, which another stream still has to fill.
fn masked(scene: &Scene, mask_stream: u64, shape: &[i64]) -> DevxCudaArray {
    let mut array = produce(scene.data, "|u1", &[2, 3], || ());
    array.stream = scene.producer as i64;
    let mut mask = produce(scene.data + 64, "|b1", shape, || ());
    mask.stream = mask_stream as i64;
    // The memory of the mask belongs to the array, too.
    let kept = mask.private_data.expose_provenance();
    state(&array).on_release =
        Some(Box::new(move || drop(unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<Producer>(kept)) })));
    keep_mask(&mut array, mask);
    array
}

#[test]
fn masks_have_an_order_of_their_own() {
    let session = Session::new();
    session.each(SEEDS, || {
        let scene = Scene::new();
        let other = sim::stream();
        sim::fill(scene.data, 7, 6, scene.producer);
        sim::fill(scene.data + 64, 1, 6, other);
        let mut array = masked(&scene, other, &[2, 3]);
        let request = for_stream(scene.consumer);
        let imported = unsafe { cuda_array::import(&raw mut array, &request, true) }.expect("imported");
        let mask = imported.mask.expect("a mask");
        assert_eq!(sim::download(mask.data() as u64, 6, scene.consumer), [1; 6]);
        mask.used_on(sim::on(scene.consumer)).expect("used");
        drop((imported.tensor, mask));
        // The producer continues after the work that used the memory.
        sim::fill(scene.data + 64, 0, 6, other);
        sim::settle();
        sim::synchronize(other);
        sim::destroy(other);
        scene.end();
    });
}

#[test]
fn masks_get_the_shape_of_their_array() {
    let session = Session::new();
    session.each(1, || {
        let scene = Scene::new();
        let cases: [(&[i64], &[i64]); 6] = [
            (&[2, 3], &[3, 1]),
            (&[3], &[0, 1]),
            (&[1], &[0, 0]),
            (&[], &[0, 0]),
            (&[2, 1], &[1, 0]),
            (&[1, 3], &[0, 1]),
        ];
        for (shape, strides) in cases {
            let mut array = masked(&scene, scene.producer, shape);
            let imported = unsafe { cuda_array::import(&raw mut array, &Request::default(), true) }.expect("imported");
            let mask = imported.mask.expect("a mask");
            assert_eq!((mask.shape(), mask.strides()), (&[2, 3][..], strides), "{shape:?}");
            assert_eq!(mask.flags().has(Flags::READ_ONLY), shape != [2, 3]);
        }
        for shape in [&[2][..], &[3, 2], &[2, 3, 1], &[1, 2, 3], &[0]] {
            let mut array = masked(&scene, scene.producer, shape);
            let error = unsafe { cuda_array::import(&raw mut array, &Request::default(), true) }.expect_err("refused");
            assert_eq!(error.status(), DEVX_MISMATCH, "{error}");
            assert!(error.message().contains(&format!("mask has shape {shape:?}")), "{error}");
            unsafe { cuda_array::release(&raw mut array) };
        }
        scene.end();
    });
}
