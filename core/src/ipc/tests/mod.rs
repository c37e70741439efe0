//! Tests of sharing between processes, over sockets in one process, and what these tests have in common.

mod again;
mod descriptor;
mod exchange;
mod given_up;
mod hostile;
mod message;
#[path = "../../../tests/patience/mod.rs"]
mod patience;
mod sandbox;
mod server;

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::message::{Message, PROTOCOL};
use super::socket::{Received, Room, Sent, Socket};
use super::{Client, Exported, Peer};
use crate::arrow::Batch;
use crate::arrow::builder::ArrayBuilder;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Error;
use crate::memory::Owner;
use crate::tensor::Tensor;

/// Imports by tests, which are the exporters, too. Offsets that the tests have altered are never followed: of a batch whose
/// descriptor or data was altered, they read numbers only.
pub(super) trait Importing {
    fn tensor(&self, name: &str) -> Result<Tensor, Error>;
    fn batch(&self, name: &str) -> Result<Batch, Error>;
}

impl Importing for Client {
    fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        // SAFETY: the tests write nothing that they look at.
        unsafe { self.import_tensor(name) }
    }

    fn batch(&self, name: &str) -> Result<Batch, Error> {
        // SAFETY: as above, and the tests read no offsets but those that they exported.
        unsafe { self.import_batch(name) }
    }
}

fn import_tensor(descriptor: &[u8], fds: Vec<OwnedFd>, peer: Peer) -> Result<Tensor, Error> {
    // SAFETY: as of a client.
    unsafe { super::import_tensor(descriptor, fds, peer) }
}

fn import_batch(descriptor: &[u8], fds: Vec<OwnedFd>, peer: Peer) -> Result<Batch, Error> {
    // SAFETY: as of a client.
    unsafe { super::import_batch(descriptor, fds, peer) }
}

/// Corrects the length and checksum of altered bytes, as the writer would set them.
fn reseal(bytes: &mut [u8]) {
    if bytes.len() >= 32 {
        super::descriptor::seal(bytes);
    }
}

/// Leases in the form of a message.
fn leases(all: &[u64]) -> Vec<[u8; 8]> {
    all.iter().map(|lease| lease.to_le_bytes()).collect()
}

/// The address where a test listens. No other test of this program has it, because the tests run at the same time.
pub(super) fn address(of: &str) -> String {
    format!("@devexchange-test-{of}-{}", std::process::id())
}

fn shared(values: &[i32]) -> Tensor {
    let tensor = super::allocate_tensor(DType::INT32, &[values.len() as i64]).expect("allocated");
    // SAFETY: the tensor has as many elements, and nobody else knows of it.
    unsafe { tensor.data().cast::<i32>().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    tensor
}

fn numbers_and_texts() -> Batch {
    let numbers = vec![1_i64, 2, 3];
    let (offsets, text) = (vec![0_i32, 1, 3, 6], b"abbccc".to_vec());
    let batch = ArrayBuilder::batch(3)
        .child(
            ArrayBuilder::new("n", "l", 3)
                .buffer(std::ptr::null())
                .buffer(numbers.as_ptr().cast())
                .owner(Owner::new(numbers)),
        )
        .child(
            ArrayBuilder::new("t", "u", 3)
                .buffer(std::ptr::null())
                .buffer(offsets.as_ptr().cast())
                .buffer(text.as_ptr().cast())
                .owner(Owner::new((offsets, text))),
        );
    // SAFETY: the vectors have what the arrays say.
    unsafe { batch.build(Device::CPU) }.expect("built")
}

/// How long a test waits for what comes, though not at once on a busy machine.
pub(super) fn long() -> Duration {
    patient(120_000)
}

/// That many milliseconds, or more.
pub(super) fn patient(milliseconds: u64) -> Duration {
    patience::patient(Duration::from_millis(milliseconds))
}

pub(super) fn soon(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + long();
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn nobody() -> Peer {
    Peer { id: 0, keep: Owner::none() }
}

fn duplicates(exported: &Exported) -> Vec<OwnedFd> {
    exported.files().iter().map(|fd| fd.try_clone().expect("duplicated")).collect()
}

/// The other end of a socket, played by hand, with room for all its messages. The room is made once, because a sanitizer takes
/// minutes to write so many zeros before each message.
struct Raw(Socket, RefCell<Room>);

impl Raw {
    fn new(socket: Socket) -> Self {
        Self(socket, RefCell::new(Room::new().expect("memory")))
    }

    fn connect(of: &str) -> Self {
        let raw = Self::new(Socket::connect(&address(of), Instant::now() + long()).expect("connected"));
        match Message::decode(&raw.receive().expect("hello").0) {
            Ok(Message::Hello { protocol: PROTOCOL, .. }) => raw,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let mut room = self.1.borrow_mut();
        loop {
            match self.0.receive(&mut room).expect("received") {
                Received::Message => {
                    let (bytes, fds) = room.last();
                    return Some((bytes.to_vec(), fds.collect()));
                }
                Received::End => return None,
                Received::Nothing => {
                    let end = Instant::now() + long();
                    assert!(self.0.wait(rustix::event::PollFlags::IN, end).expect("waited"), "no answer");
                }
            }
        }
    }

    fn say(&self, bytes: &[u8]) {
        assert_eq!(self.0.send(bytes, &[]), Ok(Sent::Yes));
    }
}

/// An importer that waits for its answers for `timeout` only. It connects as often as it takes to get the hello.
fn connect_impatient(address: &str, timeout: Duration) -> Client {
    let mut client = None;
    soon("connected", || {
        client = Client::connect(address, Some(timeout)).ok();
        client.is_some()
    });
    client.expect("connected")
}
