//! CUDA arrays of foreign producers in, with a mask, in every version; and out again.

use devexchange_core::abi::cuda_array::{DEVX_CUDA_ARRAY_NO_STREAM, DevxCudaArray};
use devexchange_core::cuda_array::{self, NoStream, Request};
use devexchange_tests::cuda_array as foreign;
use devexchange_tests::sim;

use super::N;
use super::scene::Scene;

/// Bytes of the scene's foreign memory, with a mask over its own.
fn produce(scene: &Scene, which: usize, version: i32, stream: i64) -> DevxCudaArray {
    let (address, release) = scene.release_of(which);
    let array = foreign::produce(address, "|u1", &[N as i64], release);
    let mut array = DevxCudaArray { version, stream, ..array };
    let mask = foreign::mask_of(&array, scene.data);
    foreign::keep_mask(&mut array, mask);
    array
}

pub(super) fn arrays(scene: &Scene) {
    let cases = [
        (3, scene.producer as i64, NoStream::LegacyDefault),
        (2, DEVX_CUDA_ARRAY_NO_STREAM, if scene.stream == 1 { NoStream::HostSync } else { NoStream::LegacyDefault }),
    ];
    for (which, (version, stream, no_stream)) in cases.into_iter().enumerate() {
        let mut array = produce(scene, which, version, stream);
        let request = Request { no_stream, stream: Some(sim::raw(scene.stream())), ..Request::default() };
        let Some(imported) = scene.note(unsafe { cuda_array::import(&raw mut array, &request, true) }) else {
            assert!(array.release.is_some(), "a refused array is its producer's");
            unsafe { cuda_array::release(&raw mut array) };
            continue;
        };
        assert!(array.release.is_none());
        let mask = imported.mask.expect("a mask");
        scene.note(mask.wait(sim::on(scene.producer)));
        scene.note(mask.used_on(scene.on()));
        let tensor = imported.tensor;
        for max_version in [3, 2] {
            for stream in [None, Some(sim::raw(scene.consumer as i64))] {
                let request = Request { max_version, no_stream, stream };
                let out = cuda_array::export(tensor.clone(), &request).map_err(Into::into);
                let Some(out) = scene.note(out) else { continue };
                let mut out = out.into_raw();
                let request = Request { no_stream: NoStream::Trust, ..Request::default() };
                match scene.note(unsafe { cuda_array::import(&raw mut out, &request, false) }) {
                    Some(again) => drop(scene.note(again.tensor.used_on(sim::on(scene.consumer)))),
                    None => unsafe { cuda_array::release(&raw mut out) },
                }
            }
        }
    }
}
