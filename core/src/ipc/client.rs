//! The importer: requests what an exporter offers, and says when it is done with it.

use std::hash::{BuildHasher, RandomState};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::vec::Drain;

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::changes::Watched;
use super::descriptor::MAX_BYTES;
use super::holds::Holds;
use super::import::{Held, Importable, Peer};
use super::memory::read_all;
use super::message::{MAX_RELEASES, Message, PROTOCOL, RELEASE, check_name, refused};
use super::socket::{Received, Room, Sent, Socket};
use super::turn::Turn;
use crate::abi::types::{DEVX_CLOSED, DEVX_IPC_TIMEOUT_NS};
use crate::arrow::Batch;
use crate::error::{Error, Result, refuse};
use crate::fork::{Lock, Process};
use crate::memory::{Owner, Slab, TailSize, Vacant, collected, string};
use crate::tensor::Tensor;
use crate::thread;

/// How long to wait for an exporter's answer, unless the importer says otherwise.
pub const TIMEOUT: Duration = Duration::from_nanos(DEVX_IPC_TIMEOUT_NS.cast_unsigned());

/// How often a thread tries to send releases that the system does not send, and how long it pauses before the next time.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// A connection to an exporter. Any thread may import; everything that was imported keeps the connection open.
#[derive(Clone, Debug)]
pub struct Client(Slab<Connection>);

crate::memory::held_by_bindings!(Client, "client");

// Whoever takes a lock of it after a panic finds each change done or not begun.
impl UnwindSafe for Client {}
impl RefUnwindSafe for Client {}

#[derive(Debug)]
struct Connection {
    socket: Socket,
    timeout: Duration,
    exporter: u64,
    /// Held until a request is answered.
    asking: Turn<Asking>,
    /// Leases to give up that could not be sent to the exporter yet.
    late: Mutex<Late>,
    /// How often the exporter's offers have changed, if the exporter shares that number.
    changes: Option<Watched>,
    holds: Holds,
    /// The process that connected: a fork must not give up what its parent holds.
    process: Process,
}

#[derive(Debug)]
struct Asking {
    /// The number of the last request.
    last: u64,
    room: Room,
}

/// Leases to give up, each in the form in which it is sent. There is room for every lease that the exporter has given or may
/// still give, so that giving one up needs no memory.
#[derive(Debug, Default)]
struct Late {
    leases: Vec<[u8; 8]>,
    /// Number of leases that are held or requested.
    expected: usize,
    /// Whether a thread is waiting for room on the socket.
    waiting: bool,
}

impl Late {
    /// Makes room for one more lease, before it is requested.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    fn expect(&mut self) -> Result<()> {
        if self.leases.try_reserve(self.expected + 1).is_err() {
            return Err(Error::no_memory(size_of::<[u8; 8]>() * (self.expected + 1)));
        }
        self.expected += 1;
        Ok(())
    }

    /// Undoes [`Late::expect`]: the exporter did not give the lease.
    fn expect_less(&mut self) {
        self.expected = self.expected.saturating_sub(1);
    }

    fn add(&mut self, lease: u64) {
        self.expect_less();
        // There is room: it was made before the request.
        self.leases.push(lease.to_le_bytes());
    }
}

/// Connects to the [`Server`](super::Server) at an address; it must be a process of the same user.
///
/// # Errors
/// `DEVX_SYSTEM` if nobody listens there or the process is another user's, `DEVX_NOT_READY` if there is no answer in time,
/// `DEVX_CLOSED` if the exporter ends meanwhile, `DEVX_BUSY` if it has 512 importers already, `DEVX_VERSION`,
/// `DEVX_INVALID_ARGUMENT` for an invalid address, `DEVX_OUT_OF_MEMORY` (here or in the exporter).
pub fn connect(address: &str) -> Result<Client> {
    Client::connect(address, Some(TIMEOUT))
}

impl Client {
    /// Like [`connect`], but with another timeout for each answer; `None` waits as long as it takes. An import waits as long,
    /// at most, for the answers to other threads that come before its own.
    ///
    /// # Errors
    /// Same as [`connect`].
    pub fn connect(address: &str, timeout: Option<Duration>) -> Result<Self> {
        let timeout = timeout.unwrap_or(Duration::MAX);
        let (block, mut room) = (Slab::room(TailSize::default())?, Room::new()?);
        let end = deadline(timeout);
        let socket = Socket::connect(address, end)?;
        let peer = socket.peer()?;
        peer.require_own_user()?;
        let greeting = receive(&socket, &mut room, end, timeout);
        let (bytes, mut fds, _) = greeting.map_err(|error| error.within(format_args!("address {address:?}: ")))?;
        let exporter = match Message::decode(bytes)? {
            Message::Hello { protocol: PROTOCOL, exporter } => told_apart(exporter, peer.process),
            Message::Hello { protocol, .. } => {
                return refuse!(DEVX_VERSION, "the exporter speaks version {protocol}, this library {PROTOCOL}");
            }
            Message::Refused { status, text, .. } => return Err(refused(status, text)),
            other => return refuse!(DEVX_INVALID_ARGUMENT, "an exporter does not begin with {other:?}"),
        };
        let changes = fds.next().map(Watched::open).transpose()?;
        drop(fds);
        let (asking, late) = (Turn::new(Asking { last: 0, room }), Mutex::default());
        let (holds, process) = (Holds::default(), Process::here());
        Ok(Self(block.fill(Connection { socket, timeout, exporter, asking, late, changes, holds, process })))
    }

    /// Imports the tensor that is offered under a name, zero-copy. The exporter keeps its memory until the last reference here
    /// is gone and all work that was named with [`Tensor::used_on`] is done. Until then, and while the exporter's offers do not
    /// change, further imports over this connection share the first one and do not ask the exporter.
    ///
    /// # Errors
    /// `DEVX_CLOSED` if the exporter is gone, `DEVX_NOT_READY` if it does not answer in time; `DEVX_INVALID_ARGUMENT` for a
    /// name that is empty or too long, `DEVX_INVALID_TEXT` for one with a NUL byte; the exporter's own errors, and those of
    /// [`import_tensor`](super::import_tensor); `DEVX_UNSUPPORTED` in a fork of the process that connected; `DEVX_BUSY` from
    /// within a wait of this connection on this thread ([`super::interruptible`]); `DEVX_SYSTEM` if this process may open no
    /// more files. After `DEVX_OUT_OF_MEMORY` the connection, and everything imported over it, can still be used.
    ///
    /// # Safety
    /// The contract of [`import_tensor`](super::import_tensor) holds: nobody else who can write the memory does so while it is
    /// read here.
    pub unsafe fn import_tensor(&self, name: &str) -> Result<Tensor> {
        self.import(name)
    }

    /// Like [`Client::import_tensor`], but for a batch.
    ///
    /// # Errors
    /// Same as [`Client::import_tensor`].
    ///
    /// # Safety
    /// The contract of [`import_batch`](super::import_batch) holds: the exporter keeps to Arrow's format, and nobody writes the
    /// memory while it is used.
    pub unsafe fn import_batch(&self, name: &str) -> Result<Batch> {
        self.import(name)
    }

    fn import<T: Importable>(&self, name: &str) -> Result<T> {
        check_name(name)?;
        // While this waits for the exporter, another thread may release the handle that `self` was borrowed from.
        let held = self.clone();
        held.import_held(name)
    }

    fn import_held<T: Importable>(&self, name: &str) -> Result<T> {
        let this = self.0.header();
        if !this.process.is_here() {
            return refuse!(DEVX_UNSUPPORTED, "the connection is of process {}, of which this is a fork", this.process);
        }
        let named = |error: Error| error.within(format_args!("name is {name:?}: "));
        // Read before asking: a later change makes the next import ask.
        let changes = this.changes.as_ref().map(Watched::read);
        let held = changes.and_then(|changes| this.holds.find(name, changes)).map(Held::new);
        // If the exporter is gone, the request below fails with the proper error.
        if let Some(held) = held.filter(|_| this.socket.is_connected()) {
            return held.import().map_err(named);
        }
        let Given { lease, peer, descriptor, fds } = self.get(name)?;
        let held = Held::open::<T>(&descriptor, fds, peer).map_err(named)?;
        if let Some(changes) = changes {
            // Without memory for the note, the next import asks, too.
            let _ = this.holds.note(name, lease, changes, held.opened());
        }
        held.import().map_err(named)
    }

    fn get(&self, name: &str) -> Result<Given> {
        let this = self.0.header();
        let Some(mut asking) = this.asking.take(deadline(this.timeout))? else { return Err(late(this.timeout)) };
        let Asking { last, room } = &mut *asking;
        *last += 1;
        let (request, end) = (*last, deadline(this.timeout));
        let message = Message::Get { request, name }.encode()?;
        let (of_lease, own_name) = (Vacant::new()?, string(name)?);
        this.late().expect()?;
        if let Err(error) = this.say(&message, end) {
            this.late().expect_less();
            return Err(error);
        }
        // From now on it is given up whatever happens, even if the exporter gives it only later.
        let mut lease = Lease { connection: self.0.clone(), number: Some(request), name: own_name };
        loop {
            let (bytes, mut fds, lost) = receive(&this.socket, room, end, this.timeout)?;
            match Message::decode(bytes)? {
                // Answers to requests that were given up.
                Message::Given { request: of, .. } if of != request => {}
                Message::Refused { request: of, .. } if of != request && of != 0 => {}
                Message::Given { descriptor, .. } => {
                    let peer = Peer { id: this.exporter, keep: Owner::in_room(of_lease, lease) };
                    if lost {
                        return Err(Error::system("recvmsg", Errno::MFILE).within(format_args!("name is {name:?}: ")));
                    }
                    let descriptor = match descriptor {
                        Some(bytes) => collected(bytes.iter().copied().map(Ok))?,
                        None => match fds.next() {
                            Some(file) => read_all(file.as_fd(), MAX_BYTES)?,
                            None => {
                                return refuse!(
                                    DEVX_INVALID_ARGUMENT,
                                    "the descriptor should be in a file, but there is none"
                                );
                            }
                        },
                    };
                    return Ok(Given { lease: request, peer, descriptor, fds: collected(fds.map(Ok))? });
                }
                Message::Refused { status, text, .. } => {
                    this.late().expect_less();
                    lease.number = None;
                    return Err(refused(status, text));
                }
                other => return refuse!(DEVX_INVALID_ARGUMENT, "an exporter does not answer with {other:?}"),
            }
            // An exporter that keeps sending what nobody requested is late, too.
            if Instant::now() >= end {
                return Err(late(this.timeout));
            }
        }
    }
}

/// An exporter's answer.
struct Given {
    lease: u64,
    /// Gives up the lease when it is released.
    peer: Peer,
    descriptor: Vec<u8>,
    fds: Vec<OwnedFd>,
}

fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or_else(|| now + Duration::from_secs(1 << 30))
}

fn gone() -> Error {
    Error::new(DEVX_CLOSED, "the exporter is gone")
}

fn late(timeout: Duration) -> Error {
    Error::late(format_args!("the exporter did not answer within {timeout:?}"))
}

/// Receives the next message, its file descriptors, and whether those were lost. A message that has arrived is never too late.
fn receive<'a>(
    socket: &Socket,
    room: &'a mut Room,
    end: Instant,
    timeout: Duration,
) -> Result<(&'a [u8], Drain<'a, OwnedFd>, bool)> {
    loop {
        match socket.receive(room)? {
            Received::End => return Err(gone()),
            Received::Message => break,
            Received::Nothing if Instant::now() < end && socket.wait(PollFlags::IN, end)? => {}
            Received::Nothing => return Err(late(timeout)),
        }
    }
    let lost = room.lost_fds();
    let (bytes, fds) = room.last();
    Ok((bytes, fds, lost))
}

/// Returns a number that distinguishes an exporter from others in this process. It combines the number that the exporter chose
/// and the process id that the system reports, so that no exporter can pass for another one whose memory is open here. For a
/// process that the system does not show to this one, only the chosen number counts. The result is mixed in a way that nobody
/// else can foresee.
pub(super) fn told_apart(chosen: u64, process: i32) -> u64 {
    static MIX: Lock<Option<RandomState>> = Lock::new(None);
    MIX.lock().get_or_insert_with(RandomState::new).hash_one((chosen, process))
}

/// Something that the exporter keeps for this process until this value is dropped.
struct Lease {
    connection: Slab<Connection>,
    /// The number of its request; `None` if the exporter refused.
    number: Option<u64>,
    /// The name under which it was requested.
    name: String,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let connection = self.connection.header();
        if let Some(lease) = self.number
            && connection.process.is_here()
        {
            connection.holds.forget(&self.name, lease);
            Connection::release(&self.connection, lease);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A fork has the same socket.
        if self.process.is_here() {
            self.socket.shut();
        }
    }
}

impl Connection {
    fn late(&self) -> MutexGuard<'_, Late> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message as soon as there is room for it.
    fn say(&self, message: &[u8], end: Instant) -> Result<()> {
        loop {
            match self.socket.send(message, &[])? {
                Sent::Yes => return Ok(()),
                Sent::End => return Err(gone()),
                Sent::Full if self.socket.wait(PollFlags::OUT, end)? => {}
                Sent::Full => return Err(late(self.timeout)),
            }
        }
    }

    /// Sends the release of a lease without waiting: if it cannot be sent now, a thread sends it when it can.
    fn release(this: &Slab<Self>, lease: u64) {
        let mut late = this.header().late();
        late.add(lease);
        if late.waiting || this.header().tell(&mut late.leases) == Ok(Sent::Yes) {
            return;
        }
        let own = this.clone();
        // If no thread can start, the next release tries again, and the end of the connection releases everything.
        late.waiting = thread::spawn("devexchange-ipc-release", move || own.header().tell_later()).is_ok();
    }

    /// Sends as many releases as there is room for. An exporter that is gone needs no message.
    ///
    /// # Errors
    /// `DEVX_SYSTEM`, for example without memory in the system.
    fn tell(&self, leases: &mut Vec<[u8; 8]>) -> Result<Sent> {
        while !leases.is_empty() {
            let count = leases.len().min(MAX_RELEASES);
            let some = leases.get(..count).unwrap_or_default().as_flattened();
            match self.socket.send_parts(&[IoSlice::new(&RELEASE), IoSlice::new(some)], &[])? {
                Sent::Yes => drop(leases.drain(..count)),
                Sent::Full => return Ok(Sent::Full),
                Sent::End => leases.clear(),
            }
        }
        Ok(Sent::Yes)
    }

    fn tell_later(&self) {
        let mut failures = 0;
        loop {
            let _ = self.socket.wait(PollFlags::OUT, deadline(TIMEOUT));
            let mut late = self.late();
            let told = self.tell(&mut late.leases);
            failures += u32::from(told.is_err());
            // A system that keeps failing must not keep the connection open: the next release tries again.
            if told == Ok(Sent::Yes) || failures > TRIES {
                late.waiting = false;
                return;
            }
            drop(late);
            if told.is_err() {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::event::{EventfdFlags, eventfd};

    use crate::dlpack::Copying;
    use crate::dtype::DType;
    use crate::ipc::tests::{Importing, address, patient, soon};
    use crate::ipc::{Server, allocate_tensor, connect};

    /// While the system has no memory, for example, no message can be sent.
    #[test]
    fn a_release_that_cannot_be_sent_is_sent_later() {
        let server = Server::bind(&address("later")).expect("bound");
        let tensor = allocate_tensor(DType::UINT8, &[1]).expect("allocated");
        server.offer_tensor("t", &tensor, Copying::Never).expect("offered");
        let client = connect(&address("later")).expect("connected");
        let imported = client.tensor("t").expect("imported");
        let socket = &client.0.header().socket;
        let (fd, kept) = (super::AsFd::as_fd(socket).as_raw_fd(), super::AsFd::as_fd(socket).try_clone_to_owned());
        let (kept, other) = (kept.expect("kept"), eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
        // SAFETY: the socket has the same number again before anybody else looks at it.
        let replace = |with: i32| assert_eq!(unsafe { libc::dup3(with, fd, libc::O_CLOEXEC) }, fd);
        replace(other.as_raw_fd());
        drop(imported);
        std::thread::sleep(patient(50));
        replace(kept.as_raw_fd());
        assert_eq!(server.leases(), 1);
        soon("the release is sent", || server.leases() == 0);
    }
}
