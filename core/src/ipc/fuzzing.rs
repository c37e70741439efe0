//! What the fuzz targets need from behind the sockets (`fuzz/fuzz_targets/ipc.rs`): reading what a peer sent.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;

use super::descriptor::{self, Descriptor, Place, Region, RegionKind, Spot, TensorPart, What};
use super::memory::{file, seal};
use super::message::{Message, PROTOCOL};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Flags;

/// Reads a message and writes again what is known of it: all of it, except of a hello in another version, whose rest only that
/// version knows. The second value says whether it is all.
///
/// # Errors
/// Those of a peer that reads the message.
pub fn message(bytes: &[u8]) -> Result<(Vec<u8>, bool)> {
    let message = Message::decode(bytes)?;
    let mut again = message.encode()?;
    let all = !matches!(message, Message::Hello { protocol, .. } if protocol != PROTOCOL);
    if !all {
        again.truncate(12);
    }
    Ok((again, all))
}

/// Encodes a message of each type.
///
/// # Errors
/// None, because they are small.
pub fn messages() -> Result<Vec<Vec<u8>>> {
    let leases = [1, 2, u64::MAX].map(u64::to_le_bytes);
    let all = [
        Message::Hello { protocol: PROTOCOL, exporter: 77 },
        Message::Get { request: 5, name: "näme" },
        Message::Release { leases: &leases },
        Message::Given { request: 5, descriptor: Some(b"descriptor") },
        Message::Given { request: 5, descriptor: None },
        Message::Refused { request: 5, status: 5, text: "why" },
    ];
    all.iter().map(Message::encode).collect()
}

/// Reads a descriptor and writes it again.
///
/// # Errors
/// Those of a peer that reads the descriptor.
pub fn descriptor(bytes: &[u8]) -> Result<Vec<u8>> {
    Descriptor::decode(bytes).and_then(|descriptor| descriptor.encode())
}

/// Corrects the length and checksum in altered bytes.
pub fn reseal(bytes: &mut [u8]) {
    descriptor::seal(bytes);
}

/// Makes the files that a descriptor needs, all zeros; `None` if the bytes are not a descriptor, or if the files would have
/// more than `most` bytes.
pub fn files(bytes: &[u8], most: u64) -> Option<Vec<OwnedFd>> {
    let descriptor = Descriptor::decode(bytes).ok()?;
    let total = descriptor.regions.iter().try_fold(0_u64, |sum, region| sum.checked_add(region.bytes))?;
    let new = |region: &Region| {
        let fd = file("fuzz", region.bytes as usize).ok()?;
        seal(&fd).ok().map(|()| fd)
    };
    let all = || descriptor.regions.iter().filter(|region| region.kind.has_fd()).map(new).collect();
    if total <= most { all() } else { None }
}

/// Encodes a tensor in device memory, which cannot be exported on a machine without a device.
///
/// # Errors
/// None, because it is small.
pub fn on_a_device() -> Result<Vec<u8>> {
    let pool = RegionKind::Pool { pool: 7, pointer: [9; 64] };
    let regions = vec![Region { bytes: 8, kind: pool }, Region { bytes: 64, kind: RegionKind::Cuda([3; 64]) }];
    let spot = Some(Spot { region: 1, offset: 20 });
    let (dtype, flags) = (DType::FLOAT32, Flags::READ_ONLY);
    let what = What::Tensor(TensorPart { dtype, flags, shape: vec![2, 3], strides: vec![-3, 1], spot });
    Descriptor { place: Place::Cuda([5; 16]), order: Some([4; 64]), regions, what }.encode()
}
