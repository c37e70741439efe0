//! The releases that a thread is in, and those that wait until it is out of them.

use core::ffi::c_void;
use std::cell::Cell;

use crate::error::caught;
use crate::trace;

/// So many are released one within the other: few enough for a small stack, with what foreign releases need of it.
const DEEPEST: usize = 32;

/// The releases that a thread is in. Touched by that thread only.
pub(crate) struct Nesting {
    depth: Cell<usize>,
    waiting: Cell<Vec<Waiting>>,
    /// Whether any wait, which each release asks.
    any_wait: Cell<bool>,
}

/// A release that waits.
struct Waiting {
    block: *mut c_void,
    release: unsafe fn(*mut c_void),
}

impl Nesting {
    pub(super) fn new() -> Self {
        Self { depth: Cell::new(0), waiting: Cell::new(Vec::new()), any_wait: Cell::new(false) }
    }

    /// Whether one more release would be one too many.
    #[inline]
    pub(crate) fn is_deepest(&self) -> bool {
        self.depth.get() >= DEEPEST
    }

    /// Begins a release.
    #[inline]
    pub(crate) fn enter(&self) {
        self.depth.set(self.depth.get() + 1);
    }

    /// Ends a release; the outermost one does what waits.
    #[inline]
    pub(crate) fn leave(&self) {
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0 && self.any_wait.get() {
            self.catch_up();
        }
    }

    /// Has the outermost release call `release` with the block; `false` if there is no memory to note it.
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

    /// The end of a thread, which comes within a release that calls `exit`: so that what waits for that is released all the
    /// same. (`pthread_exit` would unwind the release, and aborts the process.)
    pub(super) fn end(&self) {
        self.depth.set(0);
        self.catch_up();
    }

    /// Releases what waits, and what comes to wait meanwhile.
    #[cold]
    fn catch_up(&self) {
        // So that what is released is not the outermost, which comes here.
        self.enter();
        while let Some(Waiting { block, release }) = self.next() {
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
        self.leave();
    }

    /// The one that came last; after the last one the list gives its memory back.
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
