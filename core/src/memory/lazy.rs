//! A box that is allocated by the first thread that needs it, and is NULL until then.

use std::ptr::null_mut;

use super::boxed;
use crate::error::Result;
use crate::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire};
use crate::sync::with_mut;

/// Made by one thread; any thread may use or drop it.
pub(crate) struct Lazy<T: Send + Sync>(AtomicPtr<T>);

impl<T: Send + Sync> Default for Lazy<T> {
    #[inline]
    fn default() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }
}

impl<T: Send + Sync> Lazy<T> {
    /// A box that is made already.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(crate) fn new(value: T) -> Result<Self> {
        Ok(Self(AtomicPtr::new(Box::into_raw(boxed(value)?))))
    }

    /// Returns the value, making it if necessary. Threads that do so at once all get the same one.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> Result<&T> {
        let made = self.0.load(Acquire);
        let made = if made.is_null() { self.make(make())? } else { made };
        // SAFETY: from a box, which lives as long as this.
        Ok(unsafe { &*made })
    }

    fn make(&self, value: T) -> Result<*mut T> {
        let mine = Box::into_raw(boxed(value)?);
        Ok(match self.0.compare_exchange(null_mut(), mine, AcqRel, Acquire) {
            Ok(_) => mine,
            Err(theirs) => {
                // SAFETY: from a box, and nobody else has seen it.
                drop(unsafe { Box::from_raw(mine) });
                theirs
            }
        })
    }

    /// The value, if it was made.
    pub(crate) fn made(&self) -> Option<&T> {
        // SAFETY: NULL, or from a box, which lives as long as this.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// Like [`Lazy::made`], but for exclusive access.
    pub(crate) fn made_mut(&mut self) -> Option<&mut T> {
        // SAFETY: NULL, or from a box, which lives as long as this; nobody else refers to it.
        with_mut(&mut self.0, |made| unsafe { made.as_mut() })
    }

    /// Whether the value was made.
    #[inline]
    pub(crate) fn is_made(&mut self) -> bool {
        with_mut(&mut self.0, |made| !made.is_null())
    }

    /// Takes the value out, if it was made; then the box is empty again.
    pub(crate) fn take(&mut self) -> Option<T> {
        let made = with_mut(&mut self.0, |made| std::mem::replace(made, null_mut()));
        // SAFETY: from a box, and nobody refers to it any more.
        (!made.is_null()).then(|| *unsafe { Box::from_raw(made) })
    }
}

impl<T: Send + Sync> Drop for Lazy<T> {
    #[inline]
    fn drop(&mut self) {
        if self.is_made() {
            drop(self.take());
        }
    }
}
