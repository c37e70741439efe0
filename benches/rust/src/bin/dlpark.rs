//! Export and import of DLPack with dlpark: the rank is known at compile time, and a shared owner is in an `Arc`.

#![no_main]

use std::ffi::c_void;
use std::sync::Arc;

use bench::{Bench, SHAPE, STRIDES, Threads};
use dlpark::ffi::{DLDataType, DLDevice, DLManagedTensorVersioned};
use dlpark::metadata::Fixed;
use dlpark::{OpaqueContext, versioned};

/// The owner of the memory. Its number counts the releases of `Moved`.
struct Owner(u64);

fn export<C: OpaqueContext>(owner: C) -> *mut DLManagedTensorVersioned {
    let mut made = Fixed::new(SHAPE, STRIDES).initialize_as::<DLManagedTensorVersioned>(owner).expect("initialize");
    made.set_data(bench::matrix().cast()).set_dtype(DLDataType::F32).set_device(DLDevice::CPU);
    // SAFETY: the memory is static, and all fields are set.
    let tensor: versioned::Dlpack = unsafe { made.finish() };
    tensor.into_raw()
}

fn import(handed: *mut DLManagedTensorVersioned) {
    // SAFETY: the struct was exported, and nothing else uses it.
    let tensor = unsafe { versioned::Dlpack::from_raw(handed) }.expect("from_raw");
    let seen = tensor.validate().expect("validate");
    // SAFETY: the memory is as large as the shape says.
    let values = unsafe { seen.cpu_slice::<f32>() }.expect("cpu_slice");
    assert!(values.len() == 6);
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

/// A pointer to the owner, which is the context itself.
struct Lent(*mut Owner);

// SAFETY: `drop_raw` gets the pointer that `into_raw` returned, and does nothing that depends on the thread.
unsafe impl OpaqueContext for Lent {
    fn into_raw(self) -> *mut c_void {
        self.0.cast()
    }

    unsafe fn drop_raw(raw: *mut c_void) {
        // SAFETY: `raw` comes from `into_raw`, and `once` keeps the owner alive until the release.
        unsafe { (*raw.cast::<Owner>()).0 += 1 }
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

bench::benches!(c"dlpark", add);
