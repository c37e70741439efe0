//! The process at the other end of a socket, as the system reports it.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::{Error, Result, refuse};

/// A process, as it was when it connected or listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) user: u32,
    /// 0 for a process that this one cannot see, for example in another container. (The type for it in rustix cannot be 0.)
    pub(super) process: i32,
}

impl Credentials {
    /// # Errors
    /// `DEVX_SYSTEM`.
    pub(super) fn of(socket: BorrowedFd<'_>) -> Result<Self> {
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        let out = (&raw mut found).cast();
        // SAFETY: there is room for that many bytes, and any bytes are a valid `ucred`.
        match unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, out, &mut bytes) } {
            0 => Ok(Self { user: found.uid, process: found.pid }),
            _ => Err(Error::system("getsockopt", super::memory::errno_of(&std::io::Error::last_os_error()))),
        }
    }

    /// # Errors
    /// `DEVX_SYSTEM` if the user is not that of this process.
    pub(super) fn require_own_user(self) -> Result<()> {
        let own = rustix::process::geteuid().as_raw();
        if self.user == own {
            return Ok(());
        }
        refuse!(DEVX_SYSTEM, "the peer is a process of user {}, not of user {own}", self.user)
    }
}
