//! The releases that a thread is in, and those that wait until it has left them.

use core::ffi::c_void;
use std::cell::Cell;

use crate::error::caught;
use crate::trace;

/// The most releases that are nested: few enough for a small stack, including what foreign releases need of it.
const DEEPEST: usize = 32;

/// The releases that a thread is in. Only that thread touches it.
pub(crate) struct Nesting {
    depth: Cell<usize>,
    waiting: Cell<Vec<Waiting>>,
    /// Whether any release waits; each release checks this.
    any_wait: Cell<bool>,
}

/// A release that waits until the outermost one is done.
struct Waiting {
    block: *mut c_void,
    release: unsafe fn(*mut c_void),
}

impl Nesting {
    pub(super) const fn new() -> Self {
        Self { depth: Cell::new(0), waiting: Cell::new(Vec::new()), any_wait: Cell::new(false) }
    }

    /// Whether another nested release would be too deep.
    #[inline]
    pub(crate) fn is_deepest(&self) -> bool {
        self.depth.get() >= DEEPEST
    }

    /// Begins a release.
    #[inline]
    pub(crate) fn enter(&self) {
        self.depth.set(self.depth.get() + 1);
    }

    /// Ends a release; the outermost one runs those that wait.
    #[inline]
    pub(crate) fn leave(&self) {
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0 && self.any_wait.get() {
            self.catch_up();
        }
    }

    /// Puts a release off: the outermost one will call `release` with the block. Returns `false` if there is no memory
    /// to note it.
    ///
    /// # Safety
    /// `release` may be called with `block`, once, by this thread.
    #[cold]
    pub(crate) unsafe fn put_off(&self, block: *mut c_void, release: unsafe fn(*mut c_void)) -> bool {
        let mut waiting = self.waiting.take();
        let is_room = waiting.try_reserve(1).is_ok();
        if is_room {
            waiting.push(Waiting { block, release });
            self.any_wait.set(true);
        }
        self.waiting.set(waiting);
        is_room
    }

    /// Runs what still waits at the end of a thread. That end can come within a release, if the release calls `exit`.
    /// (`pthread_exit` would unwind the release, which aborts the process.)
    pub(super) fn end(&self) {
        self.depth.set(0);
        self.catch_up();
    }

    /// Runs the releases that wait, including those that are added meanwhile.
    #[cold]
    fn catch_up(&self) {
        // Otherwise each of these releases would be an outermost one, and would come here itself.
        self.enter();
        while let Some(Waiting { block, release }) = self.next() {
            // No owner further up the stack would stop a panic.
            let released = caught(|| {
                // SAFETY: the contract of `put_off`.
                unsafe { release(block) };
                Ok(())
            });
            if let Err(error) = released {
                trace::say(format_args!("a release panicked ({error}); the panic ends here"));
            }
        }
        self.leave();
    }

    /// Takes the newest waiting release. After the last one, the list gives its memory back.
    fn next(&self) -> Option<Waiting> {
        let mut waiting = self.waiting.take();
        let next = waiting.pop();
        self.any_wait.set(!waiting.is_empty());
        if next.is_some() {
            self.waiting.set(waiting);
        }
        next
    }
}
