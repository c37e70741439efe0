//! The CUDA Array Interface as a C struct: a vector of four numbers on CUDA device 0, with a mask for a second one.

use std::ptr::{null, null_mut, with_exposed_provenance, with_exposed_provenance_mut};

use devexchange_core::abi::cuda_array::{DEVX_CUDA_ARRAY_NO_STREAM, DEVX_CUDA_ARRAY_VERSION, DevxCudaArray};

use crate::cuda;
use crate::layout::CUDA_ARRAY;
use crate::thing::{Record, Thing};
use crate::tree::put;

/// `vector`; `masked`, with a mask of its own shape; `empty`, without an address.
pub(crate) fn cuda_array(base: &str, edits: &[String]) -> Thing {
    let mut thing = Thing::new(&CUDA_ARRAY);
    let record = thing.record(Vec::new());
    let (root, extent) = (thing.root, if base == "empty" { 0 } else { 4 });
    let mut array = described(&mut thing, "<f8", extent);
    if base == "masked" {
        let at = thing.arena.room(CUDA_ARRAY.bytes);
        let mask = described(&mut thing, "|b1", extent);
        put(at, mask);
        array.mask = with_exposed_provenance(at);
    } else {
        assert!(matches!(base, "vector" | "empty"), "there is no array {base:?}");
    }
    array.release = Some(release);
    array.private_data = record;
    put(root, array);
    thing.spoil(edits)
}

fn described(thing: &mut Thing, typestr: &str, extent: i64) -> DevxCudaArray {
    // Room for edits that make it larger.
    let shape = thing.arena.room(8 * 64);
    put(shape, extent);
    // Without a driver there is no such memory; input that is refused before the driver is asked does not need any.
    let data = if extent == 0 { 0 } else { cuda::driver().map_or(4096, |_| cuda::device_memory()) };
    DevxCudaArray {
        version: DEVX_CUDA_ARRAY_VERSION,
        read_only: 0,
        data: with_exposed_provenance_mut(data),
        ndim: 1,
        shape: with_exposed_provenance(shape),
        strides: null(),
        typestr: with_exposed_provenance(thing.arena.text(typestr.as_bytes())),
        descr: null(),
        mask: null(),
        stream: DEVX_CUDA_ARRAY_NO_STREAM,
        release: None,
        private_data: null_mut(),
    }
}

unsafe extern "C" fn release(array: *mut DevxCudaArray) {
    // SAFETY: a consumer passes the struct that it was given, wherever it has moved it.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: made above.
    unsafe { Record::of(array.private_data) }.count();
}
