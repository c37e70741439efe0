//! The exporter: offers tensors and batches under names, and keeps what it gave alive until the importer releases it or
//! is gone.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::changes::Changes;
use super::export::{Exported, export_batch, export_tensor};
use super::memory::file_of;
use super::message::{MAX_MESSAGE, Message, PROTOCOL, check_name};
use super::socket::{Received, Room, Sent, Socket, timespec};
use super::wire::Writer;
use crate::abi::types::{DEVX_CLOSED, DEVX_INVALID_ARGUMENT};
use crate::arrow::Batch;
use crate::dlpack::Copying;
use crate::error::{Error, Result, refuse};
use crate::ledger::Entry;
use crate::memory::{Slab, Sorted, TailSize, collected};
use crate::tensor::Tensor;
use crate::{text, trace};

/// Most importers at a time.
const MAX_CONNECTIONS: usize = 512;
/// Most things that one importer holds at a time.
const MAX_LEASES: usize = 1 << 16;
/// What a message has besides its descriptor, at most.
const HEAD: usize = 64;
/// How long nobody is let in after the system refused to.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the end of a server waits for its address to be free, if its thread is busy with somebody's release.
const AT_END: Duration = Duration::from_secs(1);

/// Offers tensors and batches to other processes of this machine. A thread of its own answers them.
///
/// Cloning shares it. With the last reference the offers end; what was given stays valid until its importers release
/// it. When this process ends, host memory that was given stays valid, device memory does not.
#[derive(Clone, Debug)]
pub struct Server(Slab<Offering>);

crate::ipc::held_by_bindings!(Server of Offering);

#[derive(Debug)]
struct Offering {
    shared: Slab<Shared>,
    path: Option<String>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    offers: Mutex<Sorted<String, Slab<Exported>>>,
    /// `None` where the system has no memory for it: importers ask each time then.
    changes: Option<Changes>,
    leases: AtomicI64,
    closed: AtomicBool,
    /// Whether the address is in use, and when that changes.
    listening: Mutex<bool>,
    changed: Condvar,
    wake: OwnedFd,
    users: Users,
    process: u32,
}

/// Who may import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Users {
    /// Processes of the same user only.
    #[default]
    Same,
    /// Whoever can connect: for a socket whose directory says who that is.
    Any,
}

impl Server {
    /// Listens at an address: a path, or `@` and a name in the kernel's name space of sockets. For processes of the
    /// same user.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for an address that is none, `DEVX_SYSTEM` if it is in use, for example.
    pub fn bind(address: &str) -> Result<Self> {
        Self::bind_for(address, Users::Same)
    }

    /// As [`Server::bind`], for others as well.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn bind_for(address: &str, users: Users) -> Result<Self> {
        let path = (!address.starts_with('@')).then(|| text::owned(address)).transpose()?;
        let (block, shared) = (Slab::room(TailSize::default())?, Slab::room(TailSize::default())?);
        let (room, out) = (Room::new()?, Writer::with_room(MAX_MESSAGE)?);
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::system("eventfd", errno))?;
        let shared = shared.fill(Shared {
            offers: Mutex::default(),
            changes: Changes::new().ok(),
            leases: AtomicI64::new(0),
            closed: AtomicBool::new(false),
            listening: Mutex::new(true),
            changed: Condvar::new(),
            wake,
            users,
            process: std::process::id(),
        });
        let listener = Some(Socket::listen(address)?);
        // From here on its end frees the address.
        let own = Loop { shared: shared.clone(), listener, connections: Vec::new(), room, out };
        let mut offering = Offering { shared, path, thread: None };
        match std::thread::Builder::new().name("devexchange-ipc".into()).spawn(move || own.run()) {
            Ok(thread) => offering.thread = Some(thread),
            Err(error) => return refuse!(DEVX_SYSTEM, "the thread of the server: {error}"),
        }
        Ok(Self(block.fill(offering)))
    }

    /// Offers a tensor under a name, in place of what had that name. It is shared as it is now: an importer's stream
    /// waits for what the producer has queued until this call.
    ///
    /// # Errors
    /// As [`export_tensor`]; `DEVX_INVALID_ARGUMENT` for a name that is empty or too long.
    pub fn offer_tensor(&self, name: &str, tensor: &Tensor, copying: Copying) -> Result<()> {
        check_name(name)?;
        self.offer(name, export_tensor(tensor, copying)?)
    }

    /// As [`Server::offer_tensor`], for a batch.
    ///
    /// # Errors
    /// As [`Server::offer_tensor`].
    pub fn offer_batch(&self, name: &str, batch: &Batch, copying: Copying) -> Result<()> {
        check_name(name)?;
        self.offer(name, export_batch(batch, copying)?)
    }

    fn offer(&self, name: &str, exported: Exported) -> Result<()> {
        let shared = self.0.header().shared.header();
        let (name, exported) = (text::owned(name)?, Slab::new(exported, TailSize::default())?);
        let before = shared.offers().room()?.insert(name, exported);
        shared.count_change();
        // Its release may be anybody's code: not with the lock held.
        drop(before);
        Ok(())
    }

    /// Ends an offer; whether there was one. What was given of it stays valid.
    pub fn withdraw(&self, name: &str) -> bool {
        let shared = self.0.header().shared.header();
        let before = shared.offers().remove(name);
        before.iter().for_each(|_| shared.count_change());
        before.is_some()
    }

    /// How much was given and is not released yet. What an importer imports again over the same connection while it
    /// holds it counts once, unless an offer has changed.
    pub fn leases(&self) -> i64 {
        self.0.header().shared.header().leases.load(SeqCst)
    }
}

impl Shared {
    /// Before the call that changed the offers returns, so that nobody who knows of it imports what was there before.
    fn count_change(&self) {
        self.changes.iter().for_each(Changes::count);
    }

    fn offers(&self) -> MutexGuard<'_, Sorted<String, Slab<Exported>>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Offering {
    fn drop(&mut self) {
        let shared = self.shared.header();
        // A fork has neither the thread nor the right to end the offers of its parent.
        if shared.process != std::process::id() {
            return;
        }
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
        let offers = std::mem::take(&mut *shared.offers());
        drop(offers);
        shared.closed.store(true, SeqCst);
        shared.count_change();
        let _ = rustix::io::write(&shared.wake, &1_u64.to_ne_bytes());
        // A release may be what drops the server, on its own thread.
        if self.thread.is_some() && !SERVING.get() {
            self.wait();
        }
    }
}

impl Offering {
    /// Waits until the address is free again, and for the thread if it has nothing left to do.
    fn wait(&mut self) {
        let shared = self.shared.header();
        let listening = shared.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = shared.changed.wait_timeout_while(listening, AT_END, |listening| *listening);
        let listening = waited.is_ok_and(|(listening, _)| *listening);
        if !listening
            && shared.leases.load(SeqCst) == 0
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// A number that tells this process from others, whatever their ids.
fn exporter() -> u64 {
    static EXPORTER: OnceLock<u64> = OnceLock::new();
    *EXPORTER.get_or_init(|| RandomState::new().build_hasher().finish())
}

thread_local! {
    /// Whether this is the thread of a server.
    static SERVING: Cell<bool> = const { Cell::new(false) };
}

/// What the thread has.
struct Loop {
    shared: Slab<Shared>,
    /// `None` when the server is closed.
    listener: Option<Socket>,
    connections: Vec<Connection>,
    /// For a message of an importer's.
    room: Room,
    /// For a message to one.
    out: Writer,
}

struct Connection {
    socket: Socket,
    leases: Sorted<u64, Lease>,
    next: u64,
    shared: Slab<Shared>,
}

/// Something that an importer holds.
struct Lease {
    _exported: Slab<Exported>,
    _entry: Entry,
}

impl Loop {
    fn run(mut self) {
        SERVING.set(true);
        loop {
            if self.shared.header().closed.load(SeqCst) {
                self.stop_listening();
                self.connections.retain(|connection| !connection.leases.is_empty());
                if self.connections.is_empty() {
                    return;
                }
            }
            if let Err(error) = self.turn() {
                trace::say(format_args!("sharing with other processes: {error}"));
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn stop_listening(&mut self) {
        if let Some(listener) = self.listener.take() {
            drop(listener);
            let shared = self.shared.header();
            *shared.listening.lock().unwrap_or_else(PoisonError::into_inner) = false;
            shared.changed.notify_all();
        }
    }

    fn turn(&mut self) -> Result<()> {
        let Self { shared, listener, connections, room, out } = self;
        let shared = shared.header();
        // Of a fixed size, so that there is always memory for it.
        let mut fds: [PollFd<'_>; MAX_CONNECTIONS + 2] = std::array::from_fn(|i| match (i, &listener) {
            (0, _) => PollFd::new(&shared.wake, PollFlags::IN),
            (1, Some(listener)) => PollFd::new(listener, PollFlags::IN),
            _ => match i.checked_sub(2).and_then(|i| connections.get(i)) {
                Some(connection) => PollFd::new(&connection.socket, PollFlags::IN),
                None => PollFd::new(&shared.wake, PollFlags::empty()),
            },
        });
        let used = fds.split_at_mut_checked(2 + connections.len()).map_or(&mut [][..], |(used, _)| used);
        match poll(used, Some(&timespec(Duration::from_secs(60)))) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(Error::system("poll", errno)),
        }
        let [woken, arrived, happened @ ..] = fds.map(|fd| !fd.revents().is_empty());
        if woken {
            let _ = rustix::io::read(&shared.wake, &mut [0_u8; 8]);
        }
        let mut happened = happened.iter();
        connections.retain_mut(|connection| happened.next() != Some(&true) || connection.serve(room, out));
        if arrived { self.admit() } else { Ok(()) }
    }

    fn admit(&mut self) -> Result<()> {
        let Some(socket) = self.listener.as_ref().map_or(Ok(None), Socket::accept)? else {
            return Ok(());
        };
        let (shared, out) = (self.shared.header(), &mut self.out);
        let welcome = if self.connections.len() >= MAX_CONNECTIONS {
            refuse!(DEVX_SYSTEM, "there are {MAX_CONNECTIONS} importers already")
        } else {
            let user = socket.peer().and_then(|peer| require_user(shared.users, peer.user));
            user.and_then(|()| match self.connections.try_reserve(1) {
                Ok(()) => Ok(()),
                Err(_) => Err(Error::no_memory(size_of::<Connection>())),
            })
        };
        match welcome {
            Ok(()) => {
                let hello = Message::Hello { protocol: PROTOCOL, exporter: exporter() };
                let changes = shared.changes.as_ref().map(Changes::as_fd);
                if say(&socket, out, &hello, changes.as_slice())? == Sent::Yes {
                    let shared = self.shared.clone();
                    self.connections.push(Connection { socket, leases: Sorted::new(), next: 1, shared });
                }
            }
            Err(error) => {
                say(
                    &socket,
                    out,
                    &Message::Refused { request: 0, status: error.status().0, text: error.message() },
                    &[],
                )?;
            }
        }
        Ok(())
    }
}

/// Sends a message from the room for one.
fn say(socket: &Socket, out: &mut Writer, message: &Message<'_>, fds: &[BorrowedFd<'_>]) -> Result<Sent> {
    out.clear();
    message.write(out);
    socket.send(out.bytes()?, fds)
}

/// # Errors
/// `DEVX_SYSTEM` for a user that is not wanted.
pub(super) fn require_user(users: Users, user: u32) -> Result<()> {
    let own = rustix::process::geteuid().as_raw();
    if users == Users::Any || user == own {
        return Ok(());
    }
    refuse!(DEVX_SYSTEM, "the peer is a process of user {user}, not of user {own}")
}

impl Connection {
    /// Answers one message; whether the connection goes on.
    fn serve(&mut self, room: &mut Room, out: &mut Writer) -> bool {
        match self.socket.receive(room) {
            Ok(Received::Nothing) => return true,
            Ok(Received::End) => return false,
            Ok(Received::Message) => {}
            Err(error) => return self.expel(&error),
        }
        let (message, fds) = room.last();
        // No message of an importer has any: they are closed.
        drop(fds);
        match Message::decode(message) {
            Ok(Message::Release { leases }) => {
                leases.iter().for_each(|lease| self.release(u64::from_le_bytes(*lease)));
                true
            }
            Ok(Message::Get { request, name }) => match self.give(request, name, out) {
                Ok(sent) => sent == Sent::Yes,
                Err(error) => {
                    let refusal = Message::Refused { request, status: error.status().0, text: error.message() };
                    say(&self.socket, out, &refusal, &[]) == Ok(Sent::Yes)
                }
            },
            Ok(other) => {
                let what = format_args!("an importer does not say {other:?}");
                self.expel(&Error::new(DEVX_INVALID_ARGUMENT, what))
            }
            Err(error) => self.expel(&error),
        }
    }

    fn expel(&self, error: &Error) -> bool {
        trace::say(format_args!("an importer is cut off: {error}"));
        false
    }

    fn release(&mut self, lease: u64) {
        if self.leases.remove(&lease).is_some() {
            self.shared.header().leases.fetch_sub(1, SeqCst);
        }
    }

    fn give(&mut self, request: u64, name: &str, out: &mut Writer) -> Result<Sent> {
        let shared = self.shared.header();
        let offer = shared.offers().get(name).cloned();
        let Some(offer) = offer else {
            if shared.closed.load(SeqCst) {
                return Err(Error::new(DEVX_CLOSED, "the server is closed"));
            }
            return refuse!(DEVX_INVALID_ARGUMENT, "name is {name:?}: nothing is offered under it");
        };
        if self.leases.len() >= MAX_LEASES {
            return refuse!(DEVX_BUSY, "this importer holds {MAX_LEASES} things already");
        }
        let exported = offer.header();
        let descriptor = exported.descriptor();
        let file = if descriptor.len() + HEAD > MAX_MESSAGE { Some(file_of(descriptor)?) } else { None };
        let fds: Vec<BorrowedFd<'_>> = collected(file.iter().chain(exported.fds()).map(|fd| Ok(fd.as_fd())))?;
        let lease = self.next;
        let descriptor = file.is_none().then_some(descriptor);
        let free = self.leases.room()?;
        // Counted before the importer can know of it, so that nobody who has it sees a count without it.
        shared.leases.fetch_add(1, SeqCst);
        let sent = say(&self.socket, out, &Message::Given { request, lease, descriptor }, &fds);
        if sent != Ok(Sent::Yes) {
            shared.leases.fetch_sub(1, SeqCst);
            return sent;
        }
        self.next += 1;
        let entry = exported.entry();
        free.insert(lease, Lease { _exported: offer.clone(), _entry: entry });
        sent
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        let count = leases.len() as i64;
        drop(leases);
        // Counted until it is really given up.
        self.shared.header().leases.fetch_sub(count, SeqCst);
    }
}
