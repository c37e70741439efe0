//! Tells an event loop that there may be something new, from threads that know nothing of Python.

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

/// A file descriptor that can be read from a ring on until the bell is cleared. To ring takes no GIL and waits for nothing:
/// it is one write that does not block, or none if the bell was rung already.
#[pyclass(frozen, module = "devexchange._native")]
pub(crate) struct Bell(Counted<Ring>);

struct Ring {
    /// Closed with the last who rings or listens. No loop watches it then: one that does has the bell.
    fd: OwnedFd,
    /// Since it was cleared last. What rings after that looks here first.
    rung: AtomicBool,
    /// Whose file it is: a child of `fork` that listens to its parent's would take rings from it.
    process: Lock<Process>,
}

impl Ring {
    fn ring(&self) {
        if !self.rung.swap(true, AcqRel) {
            self.write();
        }
    }

    fn write(&self) {
        // It is full only if nobody has cleared it for 2⁶⁴ rings.
        let _ = write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Who looks after this sees what rang before.
    fn clear(&self) {
        let mut count = [0; 8];
        // There may be nothing: another thread was first.
        let _ = read(&self.fd, &mut count);
        // Last: what rings in between has written already, or sees this.
        self.rung.swap(false, AcqRel);
    }

    /// In a child of `fork`, puts a file of its own in the place of its parent's, under the same number.
    fn own(&self) -> std::result::Result<(), Errno> {
        let mut process = self.process.lock();
        if !process.is_here() {
            let fresh = silent()?;
            // SAFETY: the number is that of a file which is open as long as this; it is not closed here.
            let mut place = mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.fd.as_raw_fd()) });
            dup3(&fresh, &mut place, DupFlags::CLOEXEC)?;
            *process = Process::here();
            // What rang meanwhile may have rung the other file.
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
    /// Rings it.
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

    /// What a loop watches, of this process.
    fn fileno(&self) -> PyResult<i32> {
        self.0.own().map_err(raised)?;
        Ok(self.0.fd.as_raw_fd())
    }

    fn ring(&self) {
        self.0.ring();
    }

    /// To be called before one looks for what rang.
    fn clear(&self) {
        self.0.clear();
    }
}
