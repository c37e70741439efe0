//! The importer: asks an exporter for what it offers, and says when it is done with it.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::changes::Watched;
use super::descriptor::MAX_BYTES;
use super::holds::Holds;
use super::import::{Held, Importable, Peer};
use super::memory::read_all;
use super::message::{MAX_RELEASES, Message, PROTOCOL, check_name, refused};
use super::server::{Users, require_user};
use super::socket::{Received, Sent, Socket};
use crate::abi::types::{DEVX_CLOSED, DEVX_SYSTEM};
use crate::arrow::Batch;
use crate::error::{Error, Result, refuse};
use crate::memory::{Owner, collected};
use crate::tensor::Tensor;

/// How long an exporter has for an answer, unless the importer says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to an exporter. Any thread may import; what was imported keeps the connection.
#[derive(Clone, Debug)]
pub struct Client(Arc<Connection>);

crate::ipc::held_by_bindings!(Client of Connection);

#[derive(Debug)]
struct Connection {
    socket: Socket,
    timeout: Duration,
    exporter: u64,
    /// The number of the last request; held until it is answered.
    request: Mutex<u64>,
    /// Leases to give up that the exporter could not be told of yet.
    late: Mutex<Late>,
    /// How often the exporter's offers have changed, if it says so.
    changes: Option<Watched>,
    holds: Holds,
    /// A fork must not give up what its parent holds.
    process: u32,
}

#[derive(Debug, Default)]
struct Late {
    leases: Vec<u64>,
    /// A thread waits for room on the socket.
    waiting: bool,
}

/// Connects to the [`Server`](super::Server) at an address, of the same user.
///
/// # Errors
/// `DEVX_SYSTEM` if nobody listens there, the user is another one, or there is no answer in time; `DEVX_VERSION`.
pub fn connect(address: &str) -> Result<Client> {
    Client::connect(address, Users::Same, TIMEOUT)
}

impl Client {
    /// As [`connect`], to exporters of other users too, and with another time for each answer.
    ///
    /// # Errors
    /// As [`connect`].
    pub fn connect(address: &str, users: Users, timeout: Duration) -> Result<Self> {
        let end = deadline(timeout);
        let socket = Socket::connect(address, end)?;
        let peer = socket.peer()?;
        require_user(users, peer.user)?;
        let (bytes, fds) = receive(&socket, end, timeout)?;
        let exporter = match Message::decode(&bytes)? {
            Message::Hello { protocol: PROTOCOL, exporter } => told_apart(exporter, peer.process),
            Message::Hello { protocol, .. } => {
                return refuse!(DEVX_VERSION, "the exporter speaks version {protocol}, this library {PROTOCOL}");
            }
            Message::Refused { status, text, .. } => return Err(refused(status, text)),
            other => return refuse!(DEVX_INVALID_ARGUMENT, "an exporter does not begin with {other:?}"),
        };
        let changes = fds.into_iter().next().map(Watched::open).transpose()?;
        let (request, late, holds, process) = (Mutex::new(0), Mutex::default(), Holds::default(), std::process::id());
        Ok(Self(Arc::new(Connection { socket, timeout, exporter, request, late, changes, holds, process })))
    }

    /// Imports the tensor that is offered under a name, zero-copy. The exporter keeps its memory until the last
    /// reference is gone here, and all work that was named with [`Tensor::used_on`] is done. While that is held and the
    /// exporter has not changed its offers, another import over this connection shares it and asks nobody.
    ///
    /// # Errors
    /// `DEVX_CLOSED` if the exporter is gone, what the exporter says, and as [`import_tensor`].
    pub fn import_tensor(&self, name: &str) -> Result<Tensor> {
        self.import(name)
    }

    /// As [`Client::import_tensor`], for a batch.
    ///
    /// # Errors
    /// As [`Client::import_tensor`].
    pub fn import_batch(&self, name: &str) -> Result<Batch> {
        self.import(name)
    }

    fn import<T: Importable>(&self, name: &str) -> Result<T> {
        check_name(name)?;
        let this = &self.0;
        if this.process != std::process::id() {
            return refuse!(DEVX_UNSUPPORTED, "the connection is of process {}, of which this is a fork", this.process);
        }
        // Read before asking: what changes after that makes the next import ask.
        let changes = this.changes.as_ref().map(Watched::read);
        let held = changes.and_then(|changes| this.holds.find(name, changes)).map(Held::new);
        // An exporter that is gone is left to the asking to refuse.
        if let Some(held) = held.filter(|_| this.socket.is_connected()) {
            return held.import();
        }
        let (lease, descriptor, fds) = self.get(name)?;
        let number = lease.lease;
        let held = Held::open::<T>(&descriptor, fds, Peer { id: this.exporter, keep: Owner::boxed(lease) })?;
        if let Some(changes) = changes {
            this.holds.note(name, number, changes, held.opened());
        }
        held.import()
    }

    fn get(&self, name: &str) -> Result<(Lease, Vec<u8>, Vec<OwnedFd>)> {
        let this = &self.0;
        let mut last = this.request.lock().unwrap_or_else(PoisonError::into_inner);
        *last += 1;
        let (request, end) = (*last, deadline(this.timeout));
        let message = Message::Get { request, name }.encode()?;
        loop {
            match this.socket.send(&message, &[])? {
                Sent::Yes => break,
                Sent::End => return Err(gone()),
                Sent::Full if this.socket.wait(PollFlags::OUT, end)? => {}
                Sent::Full => return Err(late(this.timeout)),
            }
        }
        loop {
            let (bytes, mut fds) = receive(&this.socket, end, this.timeout)?;
            match Message::decode(&bytes)? {
                Message::Given { request: of, lease, descriptor } => {
                    // From here on the lease is given up, whatever happens.
                    let lease = Lease { connection: Arc::clone(this), lease, name: name.into() };
                    // An answer that came too late for its request.
                    if of != request {
                        continue;
                    }
                    let descriptor = match descriptor {
                        Some(bytes) => collected(bytes.iter().copied().map(Ok))?,
                        None if fds.is_empty() => {
                            return refuse!(
                                DEVX_INVALID_ARGUMENT,
                                "the descriptor should be in a file, but there is none"
                            );
                        }
                        None => read_all(fds.remove(0).as_fd(), MAX_BYTES)?,
                    };
                    return Ok((lease, descriptor, fds));
                }
                Message::Refused { request: of, status, text } if of == request || of == 0 => {
                    return Err(refused(status, text));
                }
                Message::Refused { .. } => {}
                other => return refuse!(DEVX_INVALID_ARGUMENT, "an exporter does not answer with {other:?}"),
            }
        }
    }
}

fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or_else(|| now + Duration::from_secs(1 << 30))
}

fn gone() -> Error {
    Error::new(DEVX_CLOSED, "the exporter is gone")
}

fn late(timeout: Duration) -> Error {
    Error::new(DEVX_SYSTEM, format_args!("the exporter did not answer within {timeout:?}"))
}

/// The next message. Whoever sends without end what nobody asked for is late, too.
fn receive(socket: &Socket, end: Instant, timeout: Duration) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    loop {
        match socket.receive()? {
            Received::End => return Err(gone()),
            _ if Instant::now() >= end => return Err(late(timeout)),
            Received::Message(bytes, fds) => return Ok((bytes, fds)),
            Received::Nothing if socket.wait(PollFlags::IN, end)? => {}
            Received::Nothing => return Err(late(timeout)),
        }
    }
}

/// What tells an exporter from others in this process: the number that it chose, and the process that the system says it
/// is, so that nobody passes for another one whose memory is open here. Mixed in a way that nobody else can foresee.
pub(super) fn told_apart(chosen: u64, process: i32) -> u64 {
    static MIX: OnceLock<RandomState> = OnceLock::new();
    MIX.get_or_init(RandomState::new).hash_one((chosen, process))
}

/// Something that the exporter keeps for this process, until this is dropped.
struct Lease {
    connection: Arc<Connection>,
    lease: u64,
    /// Under which it was asked for.
    name: Box<str>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.connection.process == std::process::id() {
            self.connection.holds.forget(&self.name, self.lease);
            Connection::release(&self.connection, self.lease);
        }
    }
}

impl Connection {
    /// Tells the exporter, without waiting: if the socket has no room now, a thread does it when there is.
    fn release(this: &Arc<Self>, lease: u64) {
        let mut late = this.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.leases.push(lease);
        if late.waiting || this.tell(&mut late.leases) {
            return;
        }
        let own = Arc::clone(this);
        let thread = std::thread::Builder::new().name("devexchange-ipc-release".into());
        // Without a thread, the next release tries again, and the end of the connection releases all.
        late.waiting = thread.spawn(move || own.tell_later()).is_ok();
    }

    /// Tells the exporter as much as there is room for; whether that was all. An exporter that is gone needs no
    /// telling.
    fn tell(&self, leases: &mut Vec<u64>) -> bool {
        while !leases.is_empty() {
            let some = leases.get(..leases.len().min(MAX_RELEASES)).unwrap_or_default().to_vec();
            let count = some.len();
            // Without memory for it there is as little room as without room in the socket.
            let Ok(message) = (Message::Release { leases: some }).encode() else { return false };
            match self.socket.send(&message, &[]) {
                Ok(Sent::Yes) => drop(leases.drain(..count)),
                Ok(Sent::Full) => return false,
                Ok(Sent::End) | Err(_) => leases.clear(),
            }
        }
        true
    }

    fn tell_later(&self) {
        loop {
            let _ = self.socket.wait(PollFlags::OUT, deadline(TIMEOUT));
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            if self.tell(&mut late.leases) {
                late.waiting = false;
                return;
            }
        }
    }
}
