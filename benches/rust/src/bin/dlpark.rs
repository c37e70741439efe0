//! DLPack out and in again with dlpark: rank known when compiled, the owner in an `Arc` where it is shared.

#![no_main]

use std::ffi::c_void;
use std::sync::Arc;

use bench::{Bench, SHAPE, STRIDES, Threads};
use dlpark::ffi::{DLDataType, DLDevice, DLManagedTensorVersioned};
use dlpark::metadata::Fixed;
use dlpark::{OpaqueContext, versioned};

/// Whoever has the memory.
struct Owner(u64);

fn export<C: OpaqueContext>(owner: C) -> *mut DLManagedTensorVersioned {
    let mut made = Fixed::new(SHAPE, STRIDES).initialize_as::<DLManagedTensorVersioned>(owner).expect("initialize");
    made.set_data(bench::matrix().cast()).set_dtype(DLDataType::F32).set_device(DLDevice::CPU);
    // SAFETY: the memory is static, and everything is set.
    let tensor: versioned::Dlpack = unsafe { made.finish() };
    tensor.into_raw()
}

fn import(handed: *mut DLManagedTensorVersioned) {
    // SAFETY: it was exported for us.
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

/// The context is the owner itself, behind its pointer.
struct Moved(u64);

struct Lent(*mut Owner);

// SAFETY: the pointer is given back as it was, and what is done with it at the end may be done on any thread.
unsafe impl OpaqueContext for Lent {
    fn into_raw(self) -> *mut c_void {
        self.0.cast()
    }

    unsafe fn drop_raw(raw: *mut c_void) {
        // SAFETY: it is into_raw's, and the producer waits for it.
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
