//! What each thread keeps for itself, so that an exchange writes to no memory that threads share: its part of the ledger,
//! the blocks that it gave back and takes again, and the releases that wait for others.

pub(crate) mod blocks;
pub(crate) mod lines;
mod list;
mod nesting;
mod slot;

use core::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sync::atomic::AtomicPtr;
use blocks::{Blocks, Returned};
use lines::Lines;
use list::List;
pub(crate) use list::Place;
pub(crate) use nesting::Nesting;

/// What one thread keeps for itself. When the thread ends, the next new thread takes it over. It is never freed, so that its
/// part of the ledger can be read at any time.
pub(crate) struct Local {
    pub(crate) lines: Lines,
    /// Only the thread that has taken this touches it.
    pub(crate) blocks: Blocks,
    /// Only the thread that has taken this touches it.
    pub(crate) nesting: Nesting,
    /// Blocks that other threads have given back to this one.
    pub(crate) returned: Returned,
}

// SAFETY: `lines` and `returned` are atomics. Of `blocks`, other threads read only what never changes; only the thread that
// has taken this touches the rest.
unsafe impl Sync for Local {}

impl Local {
    /// Frees all blocks that are kept. Called by the thread that has taken this.
    pub(crate) fn free_blocks(&self) {
        self.blocks.free();
        // SAFETY: nobody uses a block that was given back.
        self.returned.take(|block, size| unsafe { blocks::release(block, size) });
    }
}

static ALL: List<Local> = List { head: AtomicPtr::new(ptr::null_mut()) };

thread_local!(
    static END: End = const { End };
    /// Without a destructor, so that it is there when `END` is gone. Nothing is left in it when no release is in progress.
    static LAST: ManuallyDrop<Nesting> = const { ManuallyDrop::new(Nesting::new()) };
);

/// What the calling thread keeps; `None` if the thread is about to end.
#[inline]
pub(crate) fn here() -> Option<&'static Place<Local>> {
    match kept() {
        None => begin(),
        local => local,
    }
}

/// What the calling thread keeps; `None` if there is nothing yet, or nothing any more.
#[inline]
pub(crate) fn kept() -> Option<&'static Place<Local>> {
    // SAFETY: NULL, or the address that `begin` put there, which is never freed.
    unsafe { slot::get().cast::<Place<Local>>().as_ref() }
}

/// The releases of a thread that is about to end, and keeps nothing any more.
#[cold]
pub(crate) fn last_releases() -> &'static Nesting {
    // SAFETY: it has no destructor, and only this thread can use the result, which is neither `Send` nor `Sync`.
    LAST.with(|last| unsafe { &*ptr::from_ref::<Nesting>(last) })
}

/// What all threads keep, ended ones included.
pub(crate) fn all() -> impl Iterator<Item = &'static Local> {
    ALL.all()
}

#[cold]
fn begin() -> Option<&'static Place<Local>> {
    // Makes sure that `End` is dropped when the thread ends; fails after that.
    END.try_with(|_| ()).ok()?;
    let local = ALL.take(|| Local {
        lines: Lines::new(),
        blocks: Blocks::new(),
        nesting: Nesting::new(),
        returned: Returned::new(),
    });
    slot::set(ptr::from_ref(local).cast());
    end_with_key();
    Some(local)
}

/// Its drop is the end of a thread.
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

/// Has this thread end by the destructor of a POSIX key, too. Such destructors run after those of thread-local variables; if
/// one of them begins to use this library, `END` is not dropped any more.
fn end_with_key() {
    /// The key, plus 1; 0 before there is one.
    static KEY: AtomicU64 = AtomicU64::new(0);
    extern "C" fn end(_: *mut c_void) {
        drop(End);
    }
    let mut known = KEY.load(Relaxed);
    if known == 0 {
        let mut key = 0;
        // SAFETY: room for a key, and a function that takes any value and does not unwind.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } != 0 {
            return;
        }
        let made = u64::from(key) + 1;
        known = KEY.compare_exchange(0, made, Relaxed, Relaxed).map_or_else(
            |first| {
                // SAFETY: made here, and no thread has a value for it.
                unsafe { libc::pthread_key_delete(key) };
                first
            },
            |_| made,
        );
    }
    // Without memory for it, `END` alone has to do.
    // SAFETY: a key that is never deleted, and a value that nobody looks at.
    unsafe { libc::pthread_setspecific((known - 1) as libc::pthread_key_t, ptr::dangling()) };
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

    /// The destructors of POSIX keys run after those of thread-local variables. A library may give up there what its thread
    /// never did anything else with.
    #[test]
    fn a_thread_that_begins_at_its_end_leaves_as_well() {
        extern "C" fn last(_: *mut c_void) {
            assert!(here().is_some());
        }
        let mut key = 0;
        // SAFETY: room for a key, and a function that takes any value.
        assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(last)) }, 0);
        let before = all().count();
        for _ in 0..100 {
            // SAFETY: the key was made above, and its value is not looked at.
            let set = move || unsafe { libc::pthread_setspecific(key, ptr::dangling()) };
            assert_eq!(std::thread::spawn(set).join().expect("a thread"), 0);
        }
        assert!(all().count() < before + 50);
    }
}
