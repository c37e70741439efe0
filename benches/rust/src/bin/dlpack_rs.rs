//! Export of DLPack with dlpack-rs. It has no import, so the consumer reads the struct itself.

#![no_main]

use std::ffi::c_void;
use std::hint::black_box;
use std::sync::Arc;

use bench::{Bench, SHAPE, Threads};
use dlpack_rs::ffi::DLManagedTensorVersioned;
use dlpack_rs::safe::{TensorInfo, cpu_device, dtype_f32, pack_versioned};

/// The owner of the memory. Its number counts the releases of `Moved`.
struct Owner(u64);

fn export<T: 'static>(owner: T) -> *mut DLManagedTensorVersioned {
    let info = TensorInfo::contiguous(bench::matrix().cast(), cpu_device(), dtype_f32(), SHAPE.to_vec());
    pack_versioned(owner, info, 0)
}

/// Checks the fields that every consumer has to check, and releases the tensor.
fn import(handed: *mut DLManagedTensorVersioned) {
    // SAFETY: the struct was exported and is not released yet.
    let managed = unsafe { &*black_box(handed) };
    let tensor = &managed.dl_tensor;
    let (dtype, float32) = (&tensor.dtype, dtype_f32());
    assert!(managed.version.major == 1 && tensor.ndim == 2);
    assert!((dtype.code, dtype.bits, dtype.lanes) == (float32.code, float32.bits, float32.lanes));
    // SAFETY: the tensor has two dimensions.
    let shape = unsafe { std::slice::from_raw_parts(tensor.shape, 2) };
    assert!(shape == SHAPE && tensor.data == bench::matrix().cast());
    let deleter = managed.deleter.expect("deleter");
    // SAFETY: the deleter is called once, and nothing uses the struct afterwards.
    unsafe { deleter(handed) };
}

struct Shared(Arc<Owner>);

impl Bench for Shared {
    fn set_up(_: usize) -> Self {
        Self(Arc::new(Owner(0)))
    }

    fn once(&mut self) {
        import(export(self.0.clone()));
    }
}

impl Threads for Shared {
    fn export(&self) -> *mut c_void {
        export(self.0.clone()).cast()
    }

    unsafe fn import(handed: *mut c_void) {
        import(handed.cast());
    }
}

struct Moved(u64);

/// Counts its drop in the owner.
struct Lent(*mut Owner);

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: `once` keeps the owner alive until the release.
        unsafe { (*self.0).0 += 1 }
    }
}

impl Bench for Moved {
    fn set_up(_: usize) -> Self {
        Self(0)
    }

    fn once(&mut self) {
        let mut owner = Owner(self.0);
        import(export(Lent(&raw mut owner)));
        assert!(owner.0 == self.0 + 1);
        self.0 = owner.0;
    }
}

fn add() {
    bench::add::<Shared>(c"dlpack/shared", 0);
    bench::add::<Moved>(c"dlpack/moved", 0);
    bench::add::<Shared>(c"rust/tensor-round-trip", 0);
    bench::add::<Moved>(c"rust/tensor-moved", 0);
    bench::add_threads::<Shared>();
}

bench::benches!(c"dlpack-rs", add);
