//! A box that is made by whoever needs it first; until then it is a NULL.

use std::ptr::null_mut;

use super::boxed;
use crate::error::Result;
use crate::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire};
use crate::sync::with_mut;

/// Made by one thread, used by any, dropped by another one.
pub(crate) struct Lazy<T: Send + Sync>(AtomicPtr<T>);

impl<T: Send + Sync> Default for Lazy<T> {
    #[inline]
    fn default() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }
}

impl<T: Send + Sync> Lazy<T> {
    /// One that is made already.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(crate) fn new(value: T) -> Result<Self> {
        Ok(Self(AtomicPtr::new(Box::into_raw(boxed(value)?))))
    }

    /// What was made first; of several who make it at once, one has made it for all.
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

    /// What was made, if it was.
    pub(crate) fn made(&self) -> Option<&T> {
        // SAFETY: NULL, or from a box, which lives as long as this.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// As [`Lazy::made`], for who has it alone.
    pub(crate) fn made_mut(&mut self) -> Option<&mut T> {
        // SAFETY: NULL, or from a box, which lives as long as this; nobody else refers to it.
        with_mut(&mut self.0, |made| unsafe { made.as_mut() })
    }

    /// Whether it was made.
    #[inline]
    pub(crate) fn is_made(&mut self) -> bool {
        with_mut(&mut self.0, |made| !made.is_null())
    }

    /// What was made, if it was; then it is as at first.
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
