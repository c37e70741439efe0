//! What a scenario works with: memory, streams and an event of a foreign producer, and the results of its calls.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
use devexchange_core::abi::types::{DEVX_OK, DevxError, DevxStatus};
use devexchange_core::{Batch, Result, Stream, Tensor};
use devexchange_tests::foreign::{self, CUDA0};
use devexchange_tests::{cu, cu_ok, sim};

use super::N;

/// What a scenario works with, and its results.
pub(super) struct Scene {
    pub(super) data: u64,
    pub(super) scratch: u64,
    pub(super) producer: u64,
    pub(super) consumer: u64,
    pub(super) event: u64,
    /// The stream that the scenario names: a handle, or a default stream.
    pub(super) stream: i64,
    /// Foreign memory: its address, and the number of its releases.
    foreign: Mutex<Vec<(u64, Arc<AtomicU32>)>>,
    /// Foreign memory whose producer could not free it.
    pub(super) unfreed: Arc<Mutex<Vec<u64>>>,
    pub(super) errors: Mutex<Vec<(i32, String)>>,
}

impl Scene {
    pub(super) fn new(stream: i64) -> Self {
        let scene = Self {
            data: sim::alloc(N),
            scratch: sim::alloc(N),
            producer: sim::stream(),
            consumer: sim::stream(),
            event: sim::event(),
            stream,
            foreign: Mutex::default(),
            unfreed: Arc::default(),
            errors: Mutex::default(),
        };
        for _ in 0..2 {
            let address = sim::alloc(N);
            sim::fill(address, 1, N, scene.producer);
            scene.foreign.lock().expect("not poisoned").push((address, Arc::default()));
        }
        // A producer does not hand out memory that it still writes to.
        sim::synchronize(scene.producer);
        sim::fill(scene.data, 1, N, scene.producer);
        cu_ok!("cuEventRecord", scene.event, scene.producer);
        // The producer does as DLPack requires, whichever stream is named.
        for stream in [scene.consumer, 1, 2] {
            cu_ok!("cuStreamWaitEvent", stream, scene.event, 0);
        }
        scene
    }

    pub(super) fn stream(&self) -> i64 {
        if self.stream == 0 { self.consumer as i64 } else { self.stream }
    }

    pub(super) fn on(&self) -> Stream {
        sim::on(self.stream() as u64)
    }

    /// Records the result of an operation.
    pub(super) fn note<T>(&self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.error(error.driver_code(), error.message().to_owned())).ok()
    }

    pub(super) fn note_c(&self, status: DevxStatus, error: &DevxError) -> bool {
        if status != DEVX_OK {
            let text = unsafe { CStr::from_ptr(error.message.as_ptr()) };
            self.error(error.driver_code, text.to_string_lossy().into_owned());
        }
        status == DEVX_OK
    }

    fn error(&self, code: i32, text: String) {
        self.errors.lock().expect("not poisoned").push((code, text));
    }

    /// Foreign memory whose producer frees it at once when it is released.
    pub(super) fn release_of(&self, which: usize) -> (u64, impl FnOnce() + Send + 'static) {
        let (address, count) = self.foreign.lock().expect("not poisoned")[which].clone();
        let unfreed = Arc::clone(&self.unfreed);
        let release = move || {
            count.fetch_add(1, SeqCst);
            if cu!("cuMemFree_v2", address) != 0 {
                unfreed.lock().expect("not poisoned").push(address);
            }
        };
        (address, release)
    }

    pub(super) fn foreign_tensor(&self) -> *mut DLManagedTensorVersioned {
        let (address, release) = self.release_of(0);
        foreign::dlpack(address, N, CUDA0, release).as_ptr()
    }

    pub(super) fn foreign_array(&self, which: usize, event: u64) -> ArrowDeviceArray {
        let (address, release) = self.release_of(which);
        foreign::arrow(address, N, CUDA0, event, release)
    }

    pub(super) fn tensor(&self) -> Tensor {
        foreign::tensor_behind(self.producer, self.data, N, CUDA0, || ())
    }

    pub(super) fn batch(&self) -> Batch {
        foreign::batch_behind(self.producer, self.data, N, CUDA0, || ())
    }

    /// Gives back what the scene made. Foreign memory must have been released once, or not at all if it was counted as
    /// lost; memory that was never imported belongs to the test.
    pub(super) fn end(self, lost: i64) {
        for stream in [self.producer, self.consumer] {
            sim::synchronize(stream);
        }
        cu_ok!("cuCtxSynchronize");
        let mut missing = 0;
        for (address, count) in self.foreign.into_inner().expect("not poisoned") {
            match count.load(SeqCst) {
                0 => {
                    missing += 1;
                    sim::free(address);
                }
                count => assert_eq!(count, 1, "released {count} times"),
            }
        }
        assert!(missing <= lost, "{missing} releases are missing, {lost} were counted as lost");
        self.unfreed.lock().expect("not poisoned").drain(..).for_each(sim::free);
        sim::free(self.data);
        sim::free(self.scratch);
        cu_ok!("cuEventDestroy_v2", self.event);
        sim::destroy(self.producer);
        sim::destroy(self.consumer);
    }
}

/// Marks foreign memory that a scenario does not use.
pub(super) fn unused(scene: &Scene, which: &[usize]) {
    for which in which {
        let (address, count) = scene.foreign.lock().expect("not poisoned")[*which].clone();
        count.fetch_add(1, SeqCst);
        scene.unfreed.lock().expect("not poisoned").push(address);
    }
}

/// After an import that failed, the producer's tensor is still the caller's.
pub(super) fn give_back(managed: *mut DLManagedTensorVersioned) {
    if let Some(deleter) = unsafe { (*managed).deleter } {
        unsafe { deleter(managed) }
    }
}
