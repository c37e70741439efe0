//! What each thread keeps for itself, so that an exchange writes to no memory that threads share: its part of the ledger,
//! and blocks that it gave back and will take again.

pub(crate) mod blocks;
pub(crate) mod lines;
mod list;
mod nesting;
mod slot;

use std::ptr;

use crate::sync::atomic::AtomicPtr;
use blocks::{Blocks, Returned};
use lines::Lines;
use list::List;
pub(crate) use list::Place;
use nesting::Nesting;

/// What one thread has. When the thread ends, the next one that begins takes it over: it is never freed, so that its part
/// of the ledger can be read at any time.
pub(crate) struct Local {
    pub(crate) lines: Lines,
    /// Touched by the thread that has taken this only.
    pub(crate) blocks: Blocks,
    /// As above.
    pub(crate) nesting: Nesting,
    /// Blocks on their way back here, from any thread.
    pub(crate) returned: Returned,
}

// SAFETY: `lines` and `returned` are atomics; of `blocks` other threads read only what never changes, the rest is touched by
// the thread that has taken this.
unsafe impl Sync for Local {}

impl Local {
    /// Frees all blocks that it keeps. By its thread.
    pub(crate) fn free_blocks(&self) {
        self.blocks.free();
        // SAFETY: nobody uses what was given back.
        self.returned.take(|block, size| unsafe { blocks::release(block, size) });
    }
}

static ALL: List<Local> = List { head: AtomicPtr::new(ptr::null_mut()) };

thread_local!(static END: End = const { End });

/// What the calling thread has; `None` for a thread that is about to end.
#[inline]
pub(crate) fn here() -> Option<&'static Place<Local>> {
    match kept() {
        None => begin(),
        local => local,
    }
}

/// What the calling thread has, if it has anything yet, or still.
#[inline]
pub(crate) fn kept() -> Option<&'static Place<Local>> {
    // SAFETY: NULL, or what `begin` put there, which is never freed.
    unsafe { slot::get().cast::<Place<Local>>().as_ref() }
}

/// What every thread has or had.
pub(crate) fn all() -> impl Iterator<Item = &'static Local> {
    ALL.all()
}

#[cold]
fn begin() -> Option<&'static Place<Local>> {
    // Sees to it that the end of the thread is noticed; fails after that.
    END.try_with(|_| ()).ok()?;
    let local = ALL.take(|| Local {
        lines: Lines::new(),
        blocks: Blocks::new(),
        nesting: Nesting::new(),
        returned: Returned::new(),
    });
    slot::set(ptr::from_ref(local).cast());
    Some(local)
}

/// The end of a thread.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        if let Some(local) = kept() {
            local.nesting.end();
            slot::set(ptr::null());
            local.free_blocks();
            local.leave();
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
