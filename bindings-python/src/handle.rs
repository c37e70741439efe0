//! What Python holds: a counted reference that can be closed before the object is gone.

use std::sync::{Mutex, PoisonError};

use crate::error::{Result, refuse};
use crate::queue;

/// A reference to a thing of the core's, or none once it is closed.
pub(crate) struct Handle<T> {
    thing: Mutex<Option<T>>,
    what: &'static str,
}

impl<T: Clone> Handle<T> {
    pub(crate) fn new(what: &'static str, thing: T) -> Self {
        Self { thing: Mutex::new(Some(thing)), what }
    }

    /// A handle that is closed until it is filled.
    pub(crate) fn closed(what: &'static str) -> Self {
        Self { thing: Mutex::new(None), what }
    }

    /// Opens a closed handle.
    pub(crate) fn fill(&self, thing: T) {
        *self.thing.lock().unwrap_or_else(PoisonError::into_inner) = Some(thing);
    }

    /// A reference of one's own: a call that goes on while another thread closes the handle keeps the thing.
    pub(crate) fn get(&self) -> Result<T> {
        match &*self.thing.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(thing) => Ok(thing.clone()),
            None => refuse!(DEVX_CLOSED, "the {} is closed", self.what),
        }
    }
}

impl<T> Handle<T> {
    /// Gives the reference up. Closing again does nothing.
    pub(crate) fn close(&self) {
        // The lock is given up before the thing is: its release may run Python.
        drop(self.take());
        queue::drain();
    }

    /// What is held, if it is not closed; it is now.
    pub(crate) fn take(&self) -> Option<T> {
        self.thing.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // Nobody else has it, so there is nobody to lock out.
        drop(self.thing.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        queue::drain();
    }
}
