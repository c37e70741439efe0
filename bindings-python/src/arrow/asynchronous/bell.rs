//! The bell, with which threads that know nothing of Python tell an event loop that there may be something new.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::{io, mem};

use devexchange_core::arrow::asynchronous::Wake;
use devexchange_core::fork::{Lock, Process};
use devexchange_core::memory::Counted;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{DupFlags, Errno, dup3, read, write};

use crate::python::error::Result;

/// A file descriptor that is readable from a ring until the bell is cleared. Ringing takes no GIL and waits for nothing: it
/// is one write that does not block, or none if the bell was rung already.
#[pyclass(frozen, module = "devexchange._native")]
pub(crate) struct Bell(Counted<Ring>);

struct Ring {
    /// Closed with the last reference of a ringer or listener. No loop watches it then, because a loop that does keeps the
    /// bell.
    fd: OwnedFd,
    /// Whether it was rung since it was last cleared. A ring looks here first.
    rung: AtomicBool,
    /// The process that the file belongs to: a child of `fork` that listened to its parent's file would take its rings.
    process: Lock<Process>,
}

impl Ring {
    fn ring(&self) {
        if !self.rung.swap(true, AcqRel) {
            self.write();
        }
    }

    fn write(&self) {
        // The eventfd is full only if nobody has cleared it for 2⁶⁴ rings.
        let _ = write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Clears the bell. A look after this sees the cause of every ring before it.
    fn clear(&self) {
        let mut count = [0; 8];
        // There may be nothing to read: another thread was first.
        let _ = read(&self.fd, &mut count);
        // Last: a ring in between has written already, or sees this.
        self.rung.swap(false, AcqRel);
    }

    /// In a child of `fork`, replaces the parent's file with its own under the same number.
    fn own(&self) -> std::result::Result<(), Errno> {
        let mut process = self.process.lock();
        if !process.is_here() {
            let fresh = silent()?;
            // SAFETY: the number is that of a file which stays open as long as `self`; it is not closed here.
            let mut place = mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.fd.as_raw_fd()) });
            dup3(&fresh, &mut place, DupFlags::CLOEXEC)?;
            *process = Process::here();
            // A ring in the meantime may have gone to the parent's file.
            self.write();
        }
        Ok(())
    }
}

fn silent() -> std::result::Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

fn raised(errno: Errno) -> PyErr {
    io::Error::from(errno).into()
}

impl Bell {
    /// A wake that rings the bell.
    pub(crate) fn wake(&self) -> Result<Wake> {
        let ring = self.0.clone();
        Ok(Wake::new(move || ring.ring())?)
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> Result<Self> {
        let room = Counted::room()?;
        let fd = silent().map_err(raised)?;
        let process = Lock::new(Process::here());
        Ok(Self(room.fill(Ring { fd, rung: AtomicBool::new(false), process })))
    }

    /// The file descriptor for a loop of this process to watch.
    fn fileno(&self) -> PyResult<i32> {
        self.0.own().map_err(raised)?;
        Ok(self.0.fd.as_raw_fd())
    }

    fn ring(&self) {
        self.0.ring();
    }

    /// Clears the bell; to be called before looking for what rang.
    fn clear(&self) {
        self.0.clear();
    }
}
