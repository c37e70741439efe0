//! Handles: counted references that Python objects hold, and that can be closed before the object is gone.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::thread::yield_now;

use pyo3::prelude::*;

use crate::python::error::{Result, refuse};
use crate::python::{aside, queue};

/// A reference to an object of the core, or nothing once it is closed.
pub(crate) struct Handle<T> {
    thing: UnsafeCell<Option<T>>,
    /// A lock that is held only to count the thing, to lend it, to put it in or to take it out; no foreign code runs
    /// meanwhile. So nobody waits long, and an exchange executes one locked instruction here, where a mutex has two.
    locked: AtomicBool,
    what: &'static str,
}

// SAFETY: the thing is touched only under the lock, or by the only holder of the handle, or, with a GIL, by attached threads
// that call nothing foreign meanwhile.
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
        // The lock is released before the thing is dropped: dropping it may run Python.
        drop(self.take());
        queue::drain();
    }

    /// Like [`Handle::close`], but for a release that may take long: other threads run Python meanwhile. Until then they wait
    /// for the GIL, so none of them can fork while the lock is held.
    pub(crate) fn close_apart(&self, py: Python<'_>)
    where
        T: Send,
    {
        let thing = self.take();
        py.detach(|| drop(thing));
        queue::drain();
    }

    /// Takes out the thing and closes the handle; `None` if it is closed already.
    pub(crate) fn take(&self) -> Option<T> {
        self.locked(Option::take)
    }

    /// Fills a closed handle, without the lock.
    ///
    /// # Safety
    /// Nobody else has the handle.
    pub(crate) unsafe fn fill_alone(&self, thing: T) {
        // SAFETY: the caller's contract.
        unsafe { *self.thing.get() = Some(thing) };
    }

    /// Like [`Handle::take`], but without the lock.
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

    /// Calls `act` with the thing; `None` if the handle is closed. `act` calls nothing foreign. If there is a GIL, no lock is
    /// taken.
    ///
    /// # Safety
    /// Every thread that uses this handle is attached to the interpreter.
    #[inline]
    pub(crate) unsafe fn with_attached<R>(&self, _py: Python<'_>, act: impl FnOnce(&T) -> R) -> Option<R> {
        if cfg!(Py_GIL_DISABLED) {
            return self.locked(|thing| thing.as_ref().map(act));
        }
        // SAFETY: by the caller's contract, other users of the handle wait for the GIL, even one that holds the lock.
        unsafe { &*self.thing.get() }.as_ref().map(act)
    }

    /// Changes the thing. `act` calls nothing foreign.
    #[inline]
    pub(crate) fn change<R>(&self, act: impl FnOnce(&mut T) -> R) -> Result<R> {
        match self.locked(|thing| thing.as_mut().map(act)) {
            Some(done) => Ok(done),
            None => refuse!(DEVX_CLOSED, "the {} is closed", self.what),
        }
    }
}

impl<T: Clone> Handle<T> {
    /// Another reference to the thing, so that a call keeps it even if another thread closes the handle meanwhile.
    #[inline]
    pub(crate) fn get(&self) -> Result<T> {
        self.change(|thing| thing.clone())
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // Nobody else has the handle, so there is nobody to lock out.
        if let Some(thing) = self.thing.get_mut().take() {
            aside::quietly(|_| drop(thing));
        }
        queue::drain();
    }
}

/// An object of the core that a Python object keeps until its end; it cannot be closed.
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
        // SAFETY: nobody uses the thing after this.
        let thing = unsafe { ManuallyDrop::take(&mut self.0) };
        aside::quietly(|_| drop(thing));
    }
}
