//! Releases within releases. Memory that goes out and comes back in, again and again, is a chain: each import keeps an
//! export, which keeps the import before. Released one within the other, a long one would need more stack than there is.
//! So only the first few are; what comes below them waits until the outermost of these is done, and is released by it. Who
//! waits in a release for what is below waits for ever then. It is not handed to another thread instead: a release function
//! does not wait (docs/design.md, rule 5), and a thread is nothing that every release can have, in a fork for example.

use core::ffi::c_void;
use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::blocks::{self, Origin};
use crate::error::caught;
use crate::local::{self, Local, Place};
use crate::trace;

/// So many are released one within the other: few enough for a small stack, with what foreign releases need of it.
const DEEPEST: usize = 32;

/// The releases that a thread is in.
pub(crate) struct Nesting {
    depth: Cell<usize>,
    waiting: Cell<*mut Waiting>,
}

/// Something that waits, in a block of its own: all of the block that is to be released is still in use.
struct Waiting {
    next: *mut Waiting,
    origin: Origin,
    block: *mut c_void,
    release: unsafe fn(*mut c_void),
}

impl Nesting {
    pub(crate) fn new() -> Self {
        Self { depth: Cell::new(0), waiting: Cell::new(ptr::null_mut()) }
    }

    /// Has the outermost release call `release` with the block; `false` if there is no memory to note it.
    ///
    /// # Safety
    /// `release` may be called with `block`, once, by this thread.
    #[cold]
    unsafe fn put_off(&self, block: *mut c_void, release: unsafe fn(*mut c_void)) -> bool {
        let Some((room, origin)) = blocks::allocate(size_of::<Waiting>()) else { return false };
        let room = room.cast::<Waiting>().as_ptr();
        // SAFETY: allocated for it; blocks are aligned for anything.
        unsafe { room.write(Waiting { next: self.waiting.get(), origin, block, release }) };
        self.waiting.set(room);
        true
    }

    /// The end of a thread, which comes within a release that calls `exit`: so that what waits for that is released all the same.
    /// (`pthread_exit` would unwind the release, and aborts the process.)
    pub(crate) fn end(here: &'static Place<Local>) {
        here.nesting.depth.set(0);
        Self::catch_up(here);
    }

    /// Releases what waits, and what comes to wait meanwhile.
    #[cold]
    fn catch_up(here: &'static Place<Local>) {
        // So that what is released is not the outermost, which comes here.
        let _outermost = Inside::of(Some(here));
        let waiting = &here.nesting.waiting;
        while let Some(first) = NonNull::new(waiting.get()) {
            // SAFETY: written by `put_off`, and taken off the list here.
            let Waiting { next, origin, block, release } = unsafe { first.read() };
            waiting.set(next);
            // SAFETY: allocated by `put_off`, and read for the last time.
            unsafe { blocks::free(first.cast(), origin) };
            // There is no owner above it that would stop a panic.
            let released = caught(|| {
                // SAFETY: `put_off` was promised that.
                unsafe { release(block) };
                Ok(())
            });
            if let Err(error) = released {
                trace::say(format_args!("a release panicked ({error}); the panic ends here"));
            }
        }
    }
}

/// Begins the release of a block, which goes on until the result is dropped. `None` if it would be too deep: then `release`
/// is going to be called with the block.
///
/// # Safety
/// `release` may be called with `block`, once, by this thread.
#[inline]
pub(super) unsafe fn begin(block: *mut c_void, release: unsafe fn(*mut c_void)) -> Option<Inside> {
    let here = local::kept();
    if let Some(here) = here
        && here.nesting.depth.get() >= DEEPEST
        // SAFETY: the caller's contract.
        && unsafe { here.nesting.put_off(block, release) }
    {
        return None;
    }
    Some(Inside::of(here))
}

/// A release that is going on; on a thread that is about to end, which has nothing to count it in, nothing.
pub(super) struct Inside(Option<&'static Place<Local>>);

impl Inside {
    #[inline]
    fn of(here: Option<&'static Place<Local>>) -> Self {
        if let Some(here) = here {
            here.nesting.depth.set(here.nesting.depth.get() + 1);
        }
        Self(here)
    }

    /// What the thread has, which is asked for once.
    #[inline]
    pub(super) fn here(&self) -> Option<&'static Place<Local>> {
        self.0
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        let Some(here) = self.0 else { return };
        let depth = here.nesting.depth.get() - 1;
        here.nesting.depth.set(depth);
        if depth == 0 && !here.nesting.waiting.get().is_null() {
            Nesting::catch_up(here);
        }
    }
}
