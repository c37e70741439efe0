//! What each thread keeps for itself, so that an exchange writes to no memory that threads share: its part of the ledger,
//! and blocks that it gave back and will take again.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::ledger::Lines;
use crate::memory::{Blocks, Returned, free_all};

/// What one thread has. When the thread ends, the next one that begins takes it over: it is never freed, so that its part
/// of the ledger can be read at any time.
pub(crate) struct Local {
    pub(crate) lines: Lines,
    /// Touched by the thread that has taken this only.
    pub(crate) blocks: Blocks,
    /// Blocks on their way back here, from any thread.
    pub(crate) returned: Returned,
    taken: AtomicBool,
    next: *const Local,
}

impl Local {
    /// Whether a thread has this that is not the calling one; it may end at any time.
    pub(crate) fn is_another_threads(&self) -> bool {
        self.taken.load(Relaxed) && !kept().is_some_and(|here| ptr::eq(here, self))
    }
}

// SAFETY: `lines` and `returned` are atomics and `next` never changes; `blocks` are given out by `here` to the thread that set `taken`.
unsafe impl Sync for Local {}

/// All of them, linked by `next`. It only ever grows, at the head.
static ALL: AtomicPtr<Local> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    /// Without a destructor, so that it can be asked at any time.
    static HERE: Cell<Option<&'static Local>> = const { Cell::new(None) };
    static END: End = const { End };
}

/// What the calling thread has; `None` for a thread that is about to end.
#[inline]
pub(crate) fn here() -> Option<&'static Local> {
    match HERE.get() {
        None => begin(),
        local => local,
    }
}

/// What the calling thread has, if it has anything yet, or still.
#[inline]
pub(crate) fn kept() -> Option<&'static Local> {
    HERE.get()
}

/// What every thread has or had.
pub(crate) fn all() -> impl Iterator<Item = &'static Local> {
    // SAFETY: what is linked is never freed.
    let first = unsafe { ALL.load(Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |local| unsafe { local.next.as_ref() })
}

#[cold]
fn begin() -> Option<&'static Local> {
    // Sees to it that the end of the thread is noticed; fails after that.
    END.try_with(|_| ()).ok()?;
    let local = all().find(|local| !local.taken.swap(true, AcqRel)).unwrap_or_else(add);
    HERE.set(Some(local));
    Some(local)
}

fn add() -> &'static Local {
    let (lines, blocks, returned) = (Lines::new(), Blocks::new(), Returned::new());
    let local = Local { lines, blocks, returned, taken: AtomicBool::new(true), next: ptr::null() };
    let local = Box::leak(Box::new(local));
    let mut head = ALL.load(Relaxed);
    loop {
        local.next = head;
        match ALL.compare_exchange_weak(head, local, Release, Relaxed) {
            Ok(_) => return local,
            Err(other) => head = other,
        }
    }
}

/// The end of a thread.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        if let Some(local) = HERE.take() {
            free_all(local);
            local.taken.store(false, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_takes_over_what_another_one_left() {
        let address = || here().map(|local| ptr::from_ref(local).addr());
        let join = |thread: std::thread::JoinHandle<Option<usize>>| thread.join().expect("a thread");
        assert_eq!(address(), address());
        let before = all().count();
        let left = join(std::thread::spawn(address));
        assert!(left.is_some() && left != address());
        for _ in 0..100 {
            join(std::thread::spawn(address));
        }
        // Other tests have threads, too, but not a hundred at a time.
        assert!(all().count() < before + 50);
    }
}
