//! Order on CUDA: a producer's queued work comes before a consumer's work, through every protocol and conversion,
//! whatever the schedule; and a wait that is left out is detected.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

mod batches;
mod chains;
mod driver;
mod tensors;

use std::cell::Cell;
use std::mem::MaybeUninit;

use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::abi::types::{DEVX_DEVICE, DEVX_INVALID_STREAM, DEVX_NOT_READY, DEVX_UNSUPPORTED};
use devexchange_core::arrow::{Value, release_array};
use devexchange_core::convert;
use devexchange_core::dlpack::{self, Copying, Managed, Owned, Request};
use devexchange_core::manager::{Driver, Manager, Pool, PoolOptions};
use devexchange_core::order::{NO_SYNC, Ready};
use devexchange_core::stream::{LEGACY, PER_THREAD};
use devexchange_core::{Batch, DType, Device, DeviceType, Stream, Tensor};
use devexchange_tests::foreign::{self, CUDA0, bytes_schema};
use devexchange_tests::sim::{self, Session};
use devexchange_tests::{cu, cu_ok};

const N: u64 = 256;
const SEEDS: u64 = 100;
/// The number of seeds for a negative twin: the detector must report each of them.
const TWINS: u64 = 20;

/// Memory that a producer fills on its own stream, and a stream and memory of a consumer.
struct Scene {
    data: u64,
    producer: u64,
    consumer: u64,
    scratch: u64,
}

impl Scene {
    fn new() -> Self {
        let scene =
            Self { data: sim::alloc(N), producer: sim::stream(), consumer: sim::stream(), scratch: sim::alloc(N) };
        sim::fill(scene.data, 0x5a, N, scene.producer);
        scene
    }

    /// A tensor over the memory, produced on the producer's stream. The memory's creator frees it.
    fn tensor(&self) -> Tensor {
        foreign::tensor_behind(self.producer, self.data, N, CUDA0, || ())
    }

    fn batch(&self) -> Batch {
        foreign::batch_behind(self.producer, self.data, N, CUDA0, || ())
    }

    /// A foreign array with an event of the producer.
    fn arrow(&self) -> ArrowDeviceArray {
        let event = sim::event();
        cu_ok!("cuEventRecord", event, self.producer);
        foreign::arrow(self.data, N, CUDA0, event, move || cu_ok!("cuEventDestroy_v2", event))
    }

    /// The consumer's work on `stream`: the data must be what the producer wrote.
    fn consume(&self, stream: u64) {
        sim::copy(self.scratch, self.data, N, stream);
        let seen = sim::download(self.scratch, N, stream);
        assert!(seen.iter().all(|byte| *byte == 0x5a), "{seen:x?}");
    }

    fn end(self) {
        sim::synchronize(self.producer);
        sim::synchronize(self.consumer);
        sim::free(self.data);
        sim::free(self.scratch);
        sim::destroy(self.producer);
        sim::destroy(self.consumer);
    }
}

fn request(stream: i64) -> Request {
    Request { stream: sim::raw(stream), ..Request::default() }
}

fn export<M: Managed>(tensor: Tensor, stream: i64) -> Owned<M> {
    dlpack::export(tensor, &request(stream)).expect("exported")
}

/// Imports a tensor from a producer that was asked for the consumer's stream, and that makes this stream wait if
/// `waits` is set.
fn imported(scene: &Scene, stream: i64, waits: bool) -> Tensor {
    if waits {
        let event = sim::event();
        cu_ok!("cuEventRecord", event, scene.producer);
        cu_ok!("cuStreamWaitEvent", stream, event, 0);
        cu_ok!("cuEventDestroy_v2", event);
    }
    let managed = foreign::dlpack(scene.data, N, CUDA0, || ());
    unsafe { dlpack::import_on(managed.as_ptr(), Some(sim::raw(stream))) }.expect("imported")
}

fn export_arrow(batch: Batch) -> ArrowDeviceArray {
    let mut out = MaybeUninit::uninit();
    unsafe { batch.export_device(out.as_mut_ptr()) }.expect("exported");
    unsafe { out.assume_init() }
}

/// The first step of a consumer of Arrow.
fn wait_event(array: &ArrowDeviceArray, stream: u64) {
    assert!(!array.sync_event.is_null(), "the data is not ready, so there is an event");
    let event = unsafe { *array.sync_event.cast::<u64>() };
    cu_ok!("cuStreamWaitEvent", stream, event, 0);
}

fn release(mut array: ArrowDeviceArray) {
    unsafe { release_array(&raw mut array.array) }
}

/// The consumer's copy, without a check of the data, which may be anything.
fn consume_blindly(scene: &Scene, stream: u64) {
    sim::copy(scene.scratch, scene.data, N, stream);
    sim::synchronize(stream);
}
