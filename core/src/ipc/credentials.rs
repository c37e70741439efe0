//! The process at the other end of a socket, as the system reports it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::{Error, Result, refuse};
use crate::memory::repeated;

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
    /// `DEVX_SYSTEM` if the user is not that of this process, or may be another one that has the same number here.
    pub(super) fn require_own_user(self) -> Result<()> {
        let own = rustix::process::geteuid().as_raw();
        if self.user != own {
            return refuse!(DEVX_SYSTEM, "the peer is a process of user {}, not of user {own}", self.user);
        }
        if is_shared(own)? {
            return refuse!(
                DEVX_SYSTEM,
                "the peer is a process of user {own}, which is what this user namespace calls all users outside of it"
            );
        }
        Ok(())
    }
}

/// Whether this number stands for more than one user: the system reports one and the same number, usually 65534, for all users
/// that have none in the user namespace of this process. If the system does not say, the number is taken to be shared.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`.
fn is_shared(user: u32) -> Result<bool> {
    let mut room = [0; 32];
    let number = read("/proc/sys/kernel/overflowuid", &mut room).and_then(|text| text.trim().parse().ok());
    if user != number.unwrap_or(65534) {
        return Ok(false);
    }
    // The list has at most 340 lines, of 33 bytes each.
    let mut room = repeated(0, 1 << 14)?;
    Ok(!read("/proc/self/uid_map", &mut room).is_some_and(has_all_users))
}

/// Reads a whole file. Unlike std, it allocates nothing; the result is `None` if the file fills the room.
fn read<'a>(path: &str, room: &'a mut [u8]) -> Option<&'a str> {
    let mut file = File::open(path).ok()?;
    let mut filled = 0;
    loop {
        match file.read(room.get_mut(filled..)?) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    let text = room.get(..filled).filter(|text| text.len() < room.len())?;
    std::str::from_utf8(text).ok()
}

/// Whether every user has a number, according to the system's list of ranges: first number inside, first outside, count.
fn has_all_users(map: &str) -> bool {
    let counts = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<u64>() >= u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{has_all_users, read};

    #[test]
    fn a_file_is_read_if_there_is_room_for_it() {
        let whole = std::fs::read_to_string("/proc/sys/kernel/overflowuid").expect("a number");
        let mut room = [0; 32];
        assert_eq!(read("/proc/sys/kernel/overflowuid", &mut room), Some(&*whole));
        for room in [&mut room[..0], &mut [0; 1]] {
            assert_eq!(read("/proc/sys/kernel/overflowuid", room), None);
        }
        assert_eq!(read("/proc/there is no such file", &mut room), None);
    }

    #[test]
    fn users_without_a_number_are_noticed() {
        assert!(has_all_users("         0          0 4294967295\n"));
        assert!(has_all_users("0 1000 1\n1 0 1000\n1001 1001 4294966294\n"));
        for map in ["", "0 0", "0 0 x", "1000 1000 1\n", "0 100000 65536\n65536 1 4294901758\n"] {
            assert!(!has_all_users(map), "{map:?}");
        }
    }
}
