//! Unix sockets that preserve message boundaries (`SOCK_SEQPACKET`) and carry file descriptors. No call here waits longer than
//! it is told to, and the size of what is received is bounded.

#![forbid(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use std::vec::Drain;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self, FileType};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

use super::credentials::Credentials;
use super::descriptor::MAX_REGIONS;
use super::interrupt;
use super::message::MAX_MESSAGE;
use crate::error::{Error, Result, refuse};
use crate::memory::{repeated, vector};

/// Most file descriptors of a message: those of the regions, and the file of a long message.
const MAX_FDS: usize = MAX_REGIONS + 1;

/// The pause between two attempts to connect to an exporter that is busy.
const AGAIN: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

/// Memory for a message, allocated before the message comes.
#[derive(Debug)]
pub(super) struct Room {
    bytes: Vec<u8>,
    used: usize,
    fds: Vec<OwnedFd>,
    fds_lost: bool,
}

impl Room {
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(super) fn new() -> Result<Self> {
        Ok(Self { bytes: repeated(0, MAX_MESSAGE)?, used: 0, fds: vector(MAX_FDS)?, fds_lost: false })
    }

    /// Whether the last message came without its file descriptors, because this process may open no more.
    pub(super) fn lost_fds(&self) -> bool {
        self.fds_lost
    }

    /// Returns the last message and its file descriptors. Descriptors that are not taken are closed.
    pub(super) fn last(&mut self) -> (&[u8], Drain<'_, OwnedFd>) {
        (self.bytes.get(..self.used).unwrap_or_default(), self.fds.drain(..))
    }
}

/// The outcome of receiving.
#[derive(Debug)]
pub(super) enum Received {
    /// Nothing yet.
    Nothing,
    /// The peer is gone.
    End,
    Message,
}

/// The outcome of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    /// The peer does not read fast enough.
    Full,
    /// The peer is gone.
    End,
}

fn fresh() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|errno| Error::system("socket", errno))
}

/// Converts a path, or `@` and a name in the kernel's own ("abstract") name space, to which no file corresponds.
fn address_of(address: &str) -> Result<SocketAddrUnix> {
    /// Linux accepts paths of one byte more, but then without the NUL at the end that other programs expect.
    const MOST: usize = 107;
    let made = match address.strip_prefix('@') {
        Some("") => Err(Errno::INVAL),
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        None if address.is_empty() || address.len() > MOST => Err(Errno::INVAL),
        None => SocketAddrUnix::new(address),
    };
    match made {
        Ok(made) => Ok(made),
        Err(_) => {
            refuse!(
                DEVX_INVALID_ARGUMENT,
                "address is {address:?}: it must be a path, or '@' and a name, of at most {MOST} bytes"
            )
        }
    }
}

/// Returns what to say of the file that is in the way of a socket. Its type is checked first, because connecting to any other
/// kind of file is refused in the same way.
fn in_the_way(address: &str, at: &SocketAddrUnix) -> &'static str {
    if address.starts_with('@') {
        return "";
    }
    let kind = fs::stat(address).map(|found| FileType::from_raw_mode(found.st_mode));
    if kind.is_ok_and(|kind| kind != FileType::Socket) {
        return "there is a file that is no socket: ";
    }
    let is_left = fresh().is_ok_and(|socket| net::connect(&socket, at) == Err(Errno::CONNREFUSED));
    if is_left { "the file is left of a program that is gone, and has to be removed: " } else { "" }
}

impl Socket {
    pub(super) fn listen(address: &str) -> Result<Self> {
        let (socket, at) = (fresh()?, address_of(address)?);
        let said = |call| move |errno| Error::system(call, errno).within(format_args!("address {address:?}: "));
        net::bind(&socket, &at).map_err(|errno| match errno {
            Errno::ADDRINUSE => said("bind")(errno).within(in_the_way(address, &at)),
            _ => said("bind")(errno),
        })?;
        net::listen(&socket, 64).map_err(said("listen"))?;
        Ok(Self(socket))
    }

    /// Accepts the next peer that wants to connect, if there is one.
    pub(super) fn accept(&self) -> Result<Option<Self>> {
        match net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => Ok(Some(Self(socket))),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(Error::system("accept", errno)),
        }
    }

    /// # Errors
    /// `DEVX_NOT_READY` if as many as can wait for the listener wait already; `DEVX_SYSTEM`, `DEVX_INVALID_ARGUMENT`.
    pub(super) fn connect(address: &str, end: Instant) -> Result<Self> {
        let (socket, at) = (fresh()?, address_of(address)?);
        loop {
            match net::connect(&socket, &at) {
                Ok(()) => return Ok(Self(socket)),
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < end => {
                    interrupt::look()?;
                    std::thread::sleep(AGAIN);
                }
                Err(Errno::AGAIN) => {
                    return Err(Error::late(format_args!(
                        "address {address:?}: the exporter accepted no connection in time"
                    )));
                }
                Err(errno) => return Err(Error::system("connect", errno).within(format_args!("address {address:?}: "))),
            }
        }
    }

    /// Closes the connection for the peers, too: as long as a fork of this process has it open, they would not notice that it
    /// is closed here.
    pub(super) fn shut(&self) {
        let _ = net::shutdown(&self.0, Shutdown::Both);
    }

    /// Returns the credentials of the process at the other end.
    pub(super) fn peer(&self) -> Result<Credentials> {
        Credentials::of(self.0.as_fd())
    }

    /// Waits until there is something to receive (or, for sending, room), and returns whether there is.
    ///
    /// # Errors
    /// `DEVX_SYSTEM`, also if the wait is broken off ([`interrupt`]).
    pub(super) fn wait(&self, flags: PollFlags, end: Instant) -> Result<bool> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(&self.0, flags)];
            match poll(&mut fds, Some(&timespec(interrupt::slice(left)))) {
                Ok(0) if Instant::now() >= end => return Ok(false),
                Ok(0) | Err(Errno::INTR) => interrupt::look()?,
                Ok(_) => return Ok(true),
                Err(errno) => return Err(Error::system("poll", errno)),
            }
        }
    }

    /// Whether the peer is still there. Does not wait.
    pub(super) fn is_connected(&self) -> bool {
        // The peer's end is reported without a flag for it.
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        poll(&mut fds, Some(&timespec(Duration::ZERO))) == Ok(0)
    }

    /// Sends a whole message or nothing. Does not wait.
    ///
    /// # Errors
    /// `DEVX_SYSTEM`. With file descriptors, also if too many of this user's are in transit between processes; a message
    /// without any can still be sent then.
    pub(super) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Sent> {
        self.send_parts(&[IoSlice::new(bytes)], fds)
    }

    /// Like [`Socket::send`], but for a message in parts.
    pub(super) fn send_parts(&self, parts: &[IoSlice<'_>], fds: &[BorrowedFd<'_>]) -> Result<Sent> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return refuse!(DEVX_UNSUPPORTED, "{} file descriptors cannot be sent at once: {MAX_FDS} can", fds.len());
        }
        loop {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            return match net::sendmsg(&self.0, parts, &mut control, flags) {
                Ok(_) => Ok(Sent::Yes),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(Sent::Full),
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Ok(Sent::End),
                Err(errno) => Err(Error::system("sendmsg", errno)),
            };
        }
    }

    /// Receives a message into `room`. Does not wait. The file descriptors of a refused message are closed; if there is no room
    /// for all of them, all are.
    pub(super) fn receive(&self, room: &mut Room) -> Result<Received> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let Room { bytes, used, fds, fds_lost } = room;
        fds.clear();
        let got = loop {
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            match net::recvmsg(&self.0, &mut [IoSliceMut::new(bytes)], &mut control, flags) {
                Ok(got) => break got,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::CONNRESET | Errno::NOTCONN) => return Ok(Received::End),
                Err(errno) => return Err(Error::system("recvmsg", errno)),
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                // No more than there is room for, which is the same in the control data.
                fds.extend(rights.take(MAX_FDS - fds.len()));
            }
        }
        // Descriptors were lost because there were too many, or this process may open no more. The message still counts, above
        // all if it gives a lease.
        *fds_lost = got.flags.contains(ReturnFlags::CTRUNC) && fds.len() < MAX_FDS;
        if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) || got.bytes == 0 {
            fds.clear();
        }
        if got.flags.contains(ReturnFlags::TRUNC) {
            return refuse!(DEVX_INVALID_ARGUMENT, "a message has more than {MAX_MESSAGE} bytes");
        }
        // An empty packet is not a message, so this is the end.
        if got.bytes == 0 {
            return Ok(Received::End);
        }
        *used = got.bytes;
        Ok(Received::Message)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), tv_nsec: duration.subsec_nanos().into() }
}
