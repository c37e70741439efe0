//! The CUDA Array Interface as a C struct: every version in both directions, the order that it requires of both sides,
//! and what is refused; whatever the schedule.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]

mod exports;
mod imports;
mod masks;
mod order;

use devexchange_core::abi::cuda_array::DevxCudaArray;
use devexchange_core::cuda_array::{self, Request};
use devexchange_core::{Error, Tensor};
use devexchange_tests::cu_ok;
use devexchange_tests::sim;

const N: u64 = 256;
const SEEDS: u64 = 100;
const TWINS: u64 = 20;

fn import(array: &mut DevxCudaArray, request: &Request) -> Result<Tensor, Error> {
    unsafe { cuda_array::import(array, request, false) }.map(|imported| imported.tensor)
}

fn for_stream(stream: u64) -> Request {
    Request { stream: Some(sim::raw(stream as i64)), ..Request::default() }
}

/// A producer and a consumer with a stream each.
struct Scene {
    data: u64,
    scratch: u64,
    producer: u64,
    consumer: u64,
}

impl Scene {
    fn new() -> Self {
        Self { data: sim::alloc(N), scratch: sim::alloc(N), producer: sim::stream(), consumer: sim::stream() }
    }

    fn consume(&self, stream: u64) {
        sim::copy(self.scratch, self.data, N, stream);
        assert!(sim::download(self.scratch, N, stream).iter().all(|byte| *byte == 0x5a));
    }

    fn end(self) {
        sim::settle();
        for stream in [self.producer, self.consumer] {
            sim::synchronize(stream);
            sim::destroy(stream);
        }
        sim::free(self.data);
        sim::free(self.scratch);
    }
}

/// Makes a stream wait for the work queued on another one, as a consumer does by itself.
fn follow(stream: u64, other: u64) {
    let event = sim::event();
    cu_ok!("cuEventRecord", event, other);
    cu_ok!("cuStreamWaitEvent", stream, event, 0);
    cu_ok!("cuEventDestroy_v2", event);
}
