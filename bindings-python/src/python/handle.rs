//! What Python holds: a counted reference that can be closed before the object is gone.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::thread::yield_now;

use pyo3::prelude::*;

use crate::python::error::{Result, refuse};
use crate::python::{aside, queue};

/// A reference to a thing of the core's, or none once it is closed.
pub(crate) struct Handle<T> {
    thing: UnsafeCell<Option<T>>,
    /// Held only for as long as it takes to count the thing, to lend it, to put it in or to take it out; no foreign code runs
    /// meanwhile. So nobody waits long, and an exchange has one locked instruction here, where a mutex has two.
    locked: AtomicBool,
    what: &'static str,
}

// SAFETY: the thing is touched by who holds the lock, or has the handle alone.
unsafe impl<T: Send> Sync for Handle<T> {}

impl<T> Handle<T> {
    pub(crate) const fn new(what: &'static str, thing: T) -> Self {
        Self { thing: UnsafeCell::new(Some(thing)), locked: AtomicBool::new(false), what }
    }

    /// A handle that is closed until it is filled.
    pub(crate) const fn closed(what: &'static str) -> Self {
        Self { thing: UnsafeCell::new(None), locked: AtomicBool::new(false), what }
    }

    /// Gives the reference up. Closing again does nothing.
    pub(crate) fn close(&self) {
        // The lock is given up before the thing is: its release may run Python.
        drop(self.take());
        queue::drain();
    }

    /// As [`Handle::close`], for a release that may take its time: other threads run Python meanwhile. They have to wait for the
    /// GIL before that, so that none of them forks with the lock taken.
    pub(crate) fn close_apart(&self, py: Python<'_>)
    where
        T: Send,
    {
        let thing = self.take();
        py.detach(|| drop(thing));
        queue::drain();
    }

    /// What is held, if it is not closed; it is now.
    pub(crate) fn take(&self) -> Option<T> {
        self.locked(Option::take)
    }

    /// Opens a closed handle, without the lock.
    ///
    /// # Safety
    /// Nobody else has the handle.
    pub(crate) unsafe fn fill_alone(&self, thing: T) {
        // SAFETY: the caller's contract.
        unsafe { *self.thing.get() = Some(thing) };
    }

    /// As [`Handle::take`], without the lock.
    ///
    /// # Safety
    /// Nobody else has the handle.
    pub(crate) unsafe fn take_alone(&self) -> Option<T> {
        // SAFETY: the caller's contract.
        unsafe { (*self.thing.get()).take() }
    }

    #[inline]
    fn locked<R>(&self, act: impl FnOnce(&mut Option<T>) -> R) -> R {
        struct Unlock<'a>(&'a AtomicBool);
        impl Drop for Unlock<'_> {
            fn drop(&mut self) {
                self.0.store(false, Release);
            }
        }
        while self.locked.swap(true, Acquire) {
            yield_now();
        }
        let _unlock = Unlock(&self.locked);
        // SAFETY: the lock is held.
        act(unsafe { &mut *self.thing.get() })
    }

    /// Does something with the thing that calls nothing foreign, with a GIL without the lock. None if it is closed.
    ///
    /// # Safety
    /// Whoever uses this handle is attached to the interpreter.
    #[inline]
    pub(crate) unsafe fn with_attached<R>(&self, _py: Python<'_>, act: impl FnOnce(&T) -> R) -> Option<R> {
        if cfg!(Py_GIL_DISABLED) {
            return self.locked(|thing| thing.as_ref().map(act));
        }
        // SAFETY: by the caller's contract the others wait for the GIL, also those with the lock.
        unsafe { &*self.thing.get() }.as_ref().map(act)
    }

    /// Changes the thing. What changes it calls nothing foreign.
    #[inline]
    pub(crate) fn change<R>(&self, act: impl FnOnce(&mut T) -> R) -> Result<R> {
        match self.locked(|thing| thing.as_mut().map(act)) {
            Some(done) => Ok(done),
            None => refuse!(DEVX_CLOSED, "the {} is closed", self.what),
        }
    }
}

impl<T: Clone> Handle<T> {
    /// A reference of one's own: a call that goes on while another thread closes the handle keeps the thing.
    #[inline]
    pub(crate) fn get(&self) -> Result<T> {
        self.change(|thing| thing.clone())
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // Nobody else has it, so there is nobody to lock out.
        if let Some(thing) = self.thing.get_mut().take() {
            aside::quietly(|_| drop(thing));
        }
        queue::drain();
    }
}

/// A thing of the core's that an object has until its end: it cannot be closed.
pub(crate) struct Kept<T>(ManuallyDrop<T>);

impl<T> Kept<T> {
    pub(crate) const fn new(thing: T) -> Self {
        Self(ManuallyDrop::new(thing))
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this.
        let thing = unsafe { ManuallyDrop::take(&mut self.0) };
        aside::quietly(|_| drop(thing));
    }
}
