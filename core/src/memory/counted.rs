//! Counted values that can be found without being kept alive: like std's `Arc` and `Weak`, but a lack of memory is an
//! error.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use super::slab::{Room, Slab, TailSize};
use crate::error::Result;
use crate::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// More references than this are a leak in a loop, not use; the count must not wrap.
const MAX_REFS: usize = isize::MAX as usize;

/// A counted reference to a value. The last one drops the value.
///
/// All counted references share one reference to the block, as long as the block holds a value; each `Weak` has its own.
pub struct Counted<T>(ManuallyDrop<Slab<Value<T>>>);

/// A reference to the place where a value is, or was.
pub(crate) struct Weak<T>(Slab<Value<T>>);

/// Room for a value, before there is one.
pub struct CountedRoom<T>(Room<Value<T>>);

struct Value<T> {
    /// The references to the value; the slab counts the references to the block.
    refs: AtomicUsize,
    value: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: the value is only read while there are references to it, and whoever gives up the last one drops it.
unsafe impl<T: Send + Sync> Sync for Value<T> {}

impl<T> Counted<T> {
    /// Allocates room for a value.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn room() -> Result<CountedRoom<T>> {
        Slab::room(TailSize::default()).map(CountedRoom)
    }

    pub(crate) fn downgrade(&self) -> Weak<T> {
        Weak(Slab::clone(&self.0))
    }

    /// Gives this reference up. Returns the value to the caller that has the last one.
    pub(crate) fn into_inner(self) -> Option<T> {
        ManuallyDrop::new(self).give_up()
    }

    /// Gives up this reference, which is not used any more.
    fn give_up(&mut self) -> Option<T> {
        let header = self.0.header();
        if header.refs.fetch_sub(1, Release) != 1 {
            return None;
        }
        // Acts as a fence, but one that the thread sanitizer sees: all uses of the value come before this.
        header.refs.load(Acquire);
        // SAFETY: nobody refers to the value any more, or ever will: a count of zero stays so.
        let value = unsafe { header.value.get().cast::<T>().read() };
        // SAFETY: all references have shared this one, and the last of them gives it up, once.
        unsafe { ManuallyDrop::drop(&mut self.0) };
        Some(value)
    }
}

impl<T> CountedRoom<T> {
    /// Puts a value into the room, with one reference.
    pub fn fill(self, value: T) -> Counted<T> {
        let value = UnsafeCell::new(ManuallyDrop::new(value));
        Counted(ManuallyDrop::new(self.0.fill(Value { refs: AtomicUsize::new(1), value })))
    }
}

impl<T> Weak<T> {
    /// The value, if it is still there.
    pub(crate) fn upgrade(&self) -> Option<Counted<T>> {
        let refs = &self.0.header().refs;
        let mut old = refs.load(Relaxed);
        while old != 0 {
            require_few(old);
            match refs.compare_exchange_weak(old, old + 1, Acquire, Relaxed) {
                Ok(_) => return Some(one_more(&self.0)),
                Err(now) => old = now,
            }
        }
        None
    }

    /// Whether the value is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.header().refs.load(Relaxed) == 0
    }
}

/// A reference that is counted already.
fn one_more<T>(slab: &Slab<Value<T>>) -> Counted<T> {
    // SAFETY: it shares the reference of the existing ones, which is given up with the last of them.
    Counted(ManuallyDrop::new(unsafe { Slab::from_raw(slab.as_raw()) }))
}

fn require_few(refs: usize) {
    if refs > MAX_REFS {
        // The count would wrap into a use after free; nothing can be returned from here.
        std::process::abort();
    }
}

impl<T> Clone for Counted<T> {
    fn clone(&self) -> Self {
        require_few(self.0.header().refs.fetch_add(1, Relaxed));
        one_more(&self.0)
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        drop(self.give_up());
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this reference keeps the value, which nobody changes.
        unsafe { &*self.0.header().value.get() }
    }
}

impl<T> fmt::Debug for CountedRoom<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(CountedRoom)")
    }
}

impl<T: fmt::Debug> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> fmt::Debug for Weak<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Weak)")
    }
}
