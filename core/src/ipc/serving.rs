//! The thread of a server: admits importers, gives them what is offered, and keeps it until they release it or are gone.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

use super::changes::Changes;
use super::export::Exported;
use super::memory::file_of;
use super::message::{MAX_MESSAGE, Message, PROTOCOL};
use super::offers::Shared;
use super::socket::{Received, Room, Sent, Socket, timespec};
use super::wire::Writer;
use crate::abi::types::{DEVX_CLOSED, DEVX_INVALID_ARGUMENT};
use crate::error::{Error, Result, refuse};
use crate::fork::{Lock, Process};
use crate::ledger::Entry;
use crate::memory::{Slab, Sorted, collected, push, string, vector};
use crate::trace;

/// Most importers at a time.
const MAX_CONNECTIONS: usize = 512;
/// What the thread waits for besides importers: to be woken, and new connections.
const OTHER_FDS: usize = 2;
const MOST_FDS: usize = MAX_CONNECTIONS + OTHER_FDS;
/// Most requests of one importer that wait for room for their answers. It has one at a time, besides those that it gave up.
const MAX_WAITING: usize = 64;
/// Most leases that one importer can hold at a time.
const MAX_LEASES: usize = 1 << 16;
/// Most bytes of a message besides its descriptor.
const HEAD: usize = 64;
/// How long the thread pauses after the system failed.
const PAUSE: Duration = Duration::from_millis(20);

/// Returns a number that distinguishes this process from others, also from its forks, whatever their process ids.
///
/// # Errors
/// `DEVX_SYSTEM`.
fn exporter() -> Result<u64> {
    static EXPORTER: Lock<Option<(Process, u64)>> = Lock::new(None);
    let mut known = EXPORTER.lock();
    if let Some((_, number)) = known.filter(|(process, _)| process.is_here()) {
        return Ok(number);
    }
    // Not from the hashes of std, which forks of one process seed alike.
    let mut bytes = [0; 8];
    retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))
        .map_err(|errno| Error::system("getrandom", errno))?;
    let number = u64::from_ne_bytes(bytes);
    *known = Some((Process::here(), number));
    Ok(number)
}

thread_local! {
    /// The server whose thread this is, by the address of its [`Shared`]; 0 on any other thread.
    static SERVING: Cell<usize> = const { Cell::new(0) };
}

/// Whether this is the thread of a server.
pub(super) fn is_thread_of(server: &Shared) -> bool {
    SERVING.get() == std::ptr::from_ref(server).addr()
}

/// The state of the thread. It has all it needs for messages from the start, so that it can answer without memory.
pub(super) struct Loop {
    shared: Slab<Shared>,
    /// `None` before the thread listens and after it stopped.
    listener: Option<Socket>,
    connections: Vec<Connection>,
    /// Always empty here, but with room for waiting on all of them.
    fds: Vec<PollFd<'static>>,
    /// For a message from an importer.
    room: Room,
    /// For a message to an importer.
    out: Writer,
}

struct Connection {
    socket: Socket,
    /// What the importer holds, by the numbers of its requests.
    leases: Sorted<u64, Lease>,
    /// The number of the last request.
    last: u64,
    /// Requests for whose answers there was no room, because the importer has not read earlier ones yet: it may have given
    /// them up.
    waiting: Vec<Asked>,
    shared: Slab<Shared>,
}

struct Asked {
    request: u64,
    name: String,
}

/// Something that an importer holds.
struct Lease {
    _exported: Slab<Exported>,
    _entry: Entry,
}

impl Loop {
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(super) fn new(shared: Slab<Shared>) -> Result<Self> {
        let (fds, room, out) = (vector(OTHER_FDS)?, Room::new()?, Writer::with_room(MAX_MESSAGE)?);
        Ok(Self { shared, listener: None, connections: Vec::new(), fds, room, out })
    }

    pub(super) fn run(mut self, listener: Socket) {
        self.listener = Some(listener);
        SERVING.set(std::ptr::from_ref(self.shared.header()).addr());
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
            listener.shut();
            // A fork of this process may have the listener, too, so that these importers would not notice its end.
            while let Ok(Some(waiting)) = listener.accept() {
                waiting.shut();
            }
            drop(listener);
            let shared = self.shared.header();
            *shared.listening.lock().unwrap_or_else(PoisonError::into_inner) = false;
            shared.changed.notify_all();
        }
    }

    fn turn(&mut self) -> Result<()> {
        let Self { shared, listener, connections, fds, room, out } = self;
        let shared = shared.header();
        let mut asked: Vec<PollFd<'_>> = std::mem::take(fds);
        // Room was reserved on admission; if it was lost, the next turn may find some.
        let all = connections.len() + OTHER_FDS;
        asked.try_reserve(all).map_err(|_| Error::no_memory(all * size_of::<PollFd<'_>>()))?;
        asked.push(PollFd::new(&shared.wake, PollFlags::IN));
        asked.extend(connections.iter().map(|connection| PollFd::new(&connection.socket, connection.waits_for())));
        asked.extend(listener.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        let polled = poll(&mut asked, Some(&timespec(Duration::from_secs(60))));
        let mut happened = [false; MOST_FDS];
        happened.iter_mut().zip(&asked).for_each(|(happened, fd)| *happened = !fd.revents().is_empty());
        *fds = emptied(asked);
        match polled {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(Error::system("poll", errno)),
        }
        let mut happened = happened.into_iter();
        if happened.next() == Some(true) {
            let _ = rustix::io::read(&shared.wake, &mut [0_u8; 8]);
        }
        connections.retain_mut(|connection| happened.next() != Some(true) || connection.serve(room, out));
        if happened.next() == Some(true) { self.admit() } else { Ok(()) }
    }

    fn admit(&mut self) -> Result<()> {
        let Some(socket) = self.listener.as_ref().map_or(Ok(None), Socket::accept)? else {
            return Ok(());
        };
        let (shared, out) = (self.shared.header(), &mut self.out);
        let welcome = if self.connections.len() >= MAX_CONNECTIONS {
            refuse!(DEVX_BUSY, "there are {MAX_CONNECTIONS} importers already")
        } else {
            let user = socket.peer().and_then(|peer| peer.require_own_user());
            let all = self.connections.len() + 1 + OTHER_FDS;
            let reserved = self.connections.try_reserve(1).and_then(|()| self.fds.try_reserve(all));
            user.and_then(|()| reserved.map_err(|_| Error::no_memory(size_of::<Connection>())))
        };
        let greeted = welcome.and_then(|()| {
            let hello = Message::Hello { protocol: PROTOCOL, exporter: exporter()? };
            let changes = shared.changes.as_ref().map(Changes::as_fd);
            say(&socket, out, &hello, changes.as_slice())
        });
        match greeted {
            Ok(Sent::Yes) => {
                let shared = self.shared.clone();
                let (leases, waiting) = (Sorted::new(), Vec::new());
                self.connections.push(Connection { socket, leases, last: 0, waiting, shared });
            }
            Ok(Sent::Full | Sent::End) => {}
            Err(error) => {
                say_why(&socket, out, 0, &error)?;
            }
        }
        Ok(())
    }
}

/// Returns the same, empty vector without its borrows. Collecting no values allocates nothing.
fn emptied(mut fds: Vec<PollFd<'_>>) -> Vec<PollFd<'static>> {
    fds.clear();
    fds.into_iter().map_while(|_| None).collect()
}

/// Sends a message from the buffer `out`.
fn say(socket: &Socket, out: &mut Writer, message: &Message<'_>, fds: &[BorrowedFd<'_>]) -> Result<Sent> {
    out.clear();
    message.write(out);
    socket.send(out.bytes()?, fds)
}

/// Refuses a request.
fn say_why(socket: &Socket, out: &mut Writer, request: u64, error: &Error) -> Result<Sent> {
    say(socket, out, &Message::Refused { request, status: error.status().0, text: error.message() }, &[])
}

impl Connection {
    fn waits_for(&self) -> PollFlags {
        if self.waiting.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    /// Answers what waits, and then one message. Returns whether the connection goes on.
    fn serve(&mut self, room: &mut Room, out: &mut Writer) -> bool {
        self.catch_up(out) && self.take(room, out)
    }

    fn catch_up(&mut self, out: &mut Writer) -> bool {
        while !self.waiting.is_empty() {
            let asked = self.waiting.remove(0);
            match self.answer(asked.request, &asked.name, out) {
                Sent::Yes => {}
                Sent::Full => {
                    self.waiting.insert(0, asked);
                    return true;
                }
                Sent::End => return false,
            }
        }
        true
    }

    fn take(&mut self, room: &mut Room, out: &mut Writer) -> bool {
        match self.socket.receive(room) {
            Ok(Received::Nothing) => return true,
            Ok(Received::End) => return false,
            Ok(Received::Message) => {}
            Err(error) => return self.expel(&error),
        }
        let (message, fds) = room.last();
        // Importers' messages have no file descriptors: any that came are closed.
        drop(fds);
        match Message::decode(message) {
            Ok(Message::Release { leases }) => {
                leases.iter().for_each(|lease| self.release(u64::from_le_bytes(*lease)));
                true
            }
            Ok(Message::Get { request, .. }) if request <= self.last => {
                let what = format_args!("request is {request}, after {}", self.last);
                self.expel(&Error::new(DEVX_INVALID_ARGUMENT, what))
            }
            Ok(Message::Get { request, name }) => {
                self.last = request;
                // Answers keep the order of their requests.
                let sent = if self.waiting.is_empty() { self.answer(request, name, out) } else { Sent::Full };
                match sent {
                    Sent::Yes => true,
                    Sent::Full => self.wait(request, name).map_or_else(|error| self.expel(&error), |()| true),
                    Sent::End => false,
                }
            }
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

    /// Answers a request. `Sent::Full` if there is no room for the answer: nothing was given.
    fn answer(&mut self, request: u64, name: &str, out: &mut Writer) -> Sent {
        let sent = self.give(request, name, out).or_else(|error| say_why(&self.socket, out, request, &error));
        sent.unwrap_or(Sent::End)
    }

    /// Keeps a request until there is room for its answer.
    ///
    /// # Errors
    /// `DEVX_BUSY` if too many wait, `DEVX_OUT_OF_MEMORY`.
    fn wait(&mut self, request: u64, name: &str) -> Result<()> {
        if self.waiting.len() >= MAX_WAITING {
            return refuse!(DEVX_BUSY, "{MAX_WAITING} requests wait for the importer to read their answers");
        }
        push(&mut self.waiting, Asked { request, name: string(name)? })
    }

    fn release(&mut self, lease: u64) {
        self.waiting.retain(|asked| asked.request != lease);
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
        let files = exported.files().iter().map(|fd| fd.as_fd());
        let fds: Vec<BorrowedFd<'_>> = collected(file.iter().map(AsFd::as_fd).chain(files).map(Ok))?;
        let descriptor = file.is_none().then_some(descriptor);
        let free = self.leases.room()?;
        // Counted before the importer can know of it, so that nobody who has it sees a count without it.
        shared.leases.fetch_add(1, SeqCst);
        let sent = say(&self.socket, out, &Message::Given { request, descriptor }, &fds);
        if sent != Ok(Sent::Yes) {
            shared.leases.fetch_sub(1, SeqCst);
            return sent;
        }
        let entry = exported.entry();
        free.insert(request, Lease { _exported: offer, _entry: entry });
        sent
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        let count = leases.len() as i64;
        drop(leases);
        // Counted until the leases are really given up.
        self.shared.header().leases.fetch_sub(count, SeqCst);
        self.socket.shut();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::exporter;
    use crate::fork::tests::with_children;

    /// The number that a fork of this process has as an exporter.
    fn of_fork() -> u64 {
        let (mut from, to) = std::io::pipe().expect("a pipe");
        // SAFETY: the child writes a few bytes and ends without running handlers.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "a child");
        if pid == 0 {
            let number = exporter().expect("a number");
            let written = rustix::io::write(&to, &number.to_ne_bytes());
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(written != Ok(8))) };
        }
        drop(to);
        let mut number = [0; 8];
        from.read_exact(&mut number).expect("written");
        // SAFETY: a child of this process.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
        u64::from_ne_bytes(number)
    }

    #[test]
    fn each_fork_is_another_exporter() {
        let _children = with_children();
        let before = [of_fork(), of_fork()];
        let own = exporter().expect("a number");
        assert_eq!(exporter(), Ok(own));
        let mut all = [before[0], before[1], own, of_fork(), of_fork()];
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] != two[1]), "{all:?}");
    }
}
