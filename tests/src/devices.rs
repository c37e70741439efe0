//! Two devices: a stream on each, and numbers to copy between them.

use devexchange_core::{Device, DeviceType, Stream, Tensor};

use crate::foreign::CUDA0;
use crate::sim::{self, Session};

/// CUDA device 1.
pub const CUDA1: Device = Device { kind: DeviceType::CUDA, id: 1 };

/// The session of a test that needs two devices; none on a GPU.
pub fn two_devices() -> Option<Session> {
    let session = Session::new();
    if sim::skipped("this needs two devices") { None } else { Some(session) }
}

/// A stream on each device. Device 0 is current before and after.
#[derive(Debug)]
pub struct Streams {
    /// On device 0.
    pub zero: u64,
    /// On device 1.
    pub one: u64,
}

impl Streams {
    /// Makes new streams.
    #[expect(clippy::new_without_default, reason = "making streams is an act, not a value")]
    pub fn new() -> Self {
        let zero = sim::stream();
        sim::set_current(sim::primary(1));
        let one = sim::stream();
        sim::set_current(sim::primary(0));
        Self { zero, one }
    }

    /// The stream of a device.
    pub fn of(&self, device: Device) -> Stream {
        sim::on_device(device.id, if device == CUDA0 { self.zero } else { self.one })
    }

    /// Destroys the streams.
    ///
    /// # Panics
    /// If the current context is not the same as before.
    pub fn end(self) {
        assert_eq!(sim::current(), sim::primary(0), "the context of the caller is as it was");
        sim::settle();
        sim::destroy(self.zero);
        sim::destroy(self.one);
    }
}

/// A matrix in host memory.
///
/// # Panics
/// Never.
pub fn numbers() -> Tensor {
    Tensor::from_vec((0..64_i32).collect(), &[8, 8]).expect("a matrix")
}

/// Checks that a copy of [`numbers`] has the same numbers.
///
/// # Panics
/// If it does not.
pub fn require_numbers(tensor: &Tensor, stream: Stream) {
    let mut seen = vec![0_u8; 256];
    tensor.read(&mut seen, Some(stream)).expect("read");
    let expected: Vec<u8> = (0..64_i32).flat_map(i32::to_ne_bytes).collect();
    assert_eq!(seen, expected);
}
