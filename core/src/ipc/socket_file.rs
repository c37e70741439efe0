//! The file of a socket in a directory. It is removed with the socket, even if the program has changed its directory. No other
//! file that has taken its place is removed.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, Stat};

use crate::error::{Error, Result};
use crate::memory::string;

#[derive(Debug)]
pub(super) struct SocketFile {
    directory: OwnedFd,
    name: String,
    /// Device and number of the file. While the socket is open, no other file has both.
    is: (u64, u64),
}

impl SocketFile {
    /// Finds the file of a socket that was just bound to this path. If that fails, the file is removed.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, `DEVX_SYSTEM`.
    pub(super) fn bound(path: &str) -> Result<Self> {
        Self::find(path).inspect_err(|_| {
            let _ = fs::unlink(path);
        })
    }

    fn find(path: &str) -> Result<Self> {
        let (directory, name) = match path.rsplit_once('/') {
            Some(("", name)) => ("/", name),
            Some(both) => both,
            None => (".", path),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let said = |call| move |errno| Error::system(call, errno).within(format_args!("address {path:?}: "));
        let directory = fs::openat(CWD, directory, flags, Mode::empty()).map_err(said("open"))?;
        let name = string(name)?;
        let found = fs::statat(&directory, &*name, AtFlags::SYMLINK_NOFOLLOW).map_err(said("stat"))?;
        Ok(Self { directory, name, is: which(&found) })
    }

    /// Removes the file if it is still there. Call it while the socket is open.
    pub(super) fn remove(&self) {
        let found = fs::statat(&self.directory, &*self.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| which(&found) == self.is) {
            let _ = fs::unlinkat(&self.directory, &*self.name, AtFlags::empty());
        }
    }
}

fn which(found: &Stat) -> (u64, u64) {
    (found.st_dev, found.st_ino)
}
