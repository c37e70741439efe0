//! DLPack's structs: depending on `base`, a matrix of 2 x 3, a scalar, or an empty tensor.

use core::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;

use devexchange_core::abi::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION,
    DLPackVersion, DLTensor, kDLCPU, kDLFloat,
};

use crate::layout::{LEGACY, VERSIONED};
use crate::thing::{Record, Thing};
use crate::tree::put;

pub(crate) fn versioned(base: &str, edits: &[String]) -> Thing {
    let mut thing = Thing::new(&VERSIONED);
    let dl_tensor = tensor(&mut thing, base);
    let managed = DLManagedTensorVersioned {
        version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
        manager_ctx: thing.record(Vec::new()),
        deleter: Some(delete_versioned),
        flags: 0,
        dl_tensor,
    };
    put(thing.root, managed);
    thing.spoil(edits)
}

pub(crate) fn legacy(base: &str, edits: &[String]) -> Thing {
    let mut thing = Thing::new(&LEGACY);
    let dl_tensor = tensor(&mut thing, base);
    let manager_ctx = thing.record(Vec::new());
    put(thing.root, DLManagedTensor { dl_tensor, manager_ctx, deleter: Some(delete_legacy) });
    thing.spoil(edits)
}

fn tensor(thing: &mut Thing, base: &str) -> DLTensor {
    let shape: &[i64] = match base {
        "matrix" => &[2, 3],
        "scalar" => &[],
        "empty" => &[2, 0],
        other => panic!("there is no tensor {other:?}"),
    };
    // More room than stated, for edits that make the tensor larger.
    let (at, bytes) = (thing.arena.room(8 * 64), thing.arena.room(4096));
    let strides_at = thing.arena.room(8 * 64);
    let mut step = shape.iter().product::<i64>();
    for (i, extent) in shape.iter().enumerate() {
        step /= (*extent).max(1);
        put(at + 8 * i, *extent);
        put(strides_at + 8 * i, step);
    }
    DLTensor {
        data: if base == "empty" { std::ptr::null_mut() } else { with_exposed_provenance_mut(bytes) },
        device: DLDevice { device_type: kDLCPU, device_id: 0 },
        ndim: shape.len() as i32,
        dtype: DLDataType { code: kDLFloat, bits: 64, lanes: 1 },
        shape: with_exposed_provenance_mut(at),
        strides: with_exposed_provenance_mut(strides_at),
        byte_offset: 0,
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: a consumer passes what it was given.
    let context: *mut c_void = unsafe { (*managed).manager_ctx };
    // SAFETY: made above.
    unsafe { Record::of(context) }.count();
}

unsafe extern "C" fn delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: a consumer passes what it was given.
    let context: *mut c_void = unsafe { (*managed).manager_ctx };
    // SAFETY: made above.
    unsafe { Record::of(context) }.count();
}
