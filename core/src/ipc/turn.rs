//! A value for one thread at a time, for which others wait. Such a wait can be broken off ([`interrupt`]).

#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::interrupt;
use crate::error::{Result, refuse};
use crate::thread::Caller;

#[derive(Debug)]
pub(super) struct Turn<T> {
    /// Whose turn it is.
    whose: Mutex<Option<Caller>>,
    over: Condvar,
    /// Locked by the one whose turn it is.
    value: Mutex<T>,
}

/// The value, until the turn is over.
pub(super) struct Taken<'a, T> {
    value: MutexGuard<'a, T>,
    _over: Over<'a, T>,
}

struct Over<'a, T>(&'a Turn<T>);

impl<T> Turn<T> {
    pub(super) fn new(value: T) -> Self {
        Self { whose: Mutex::new(None), over: Condvar::new(), value: Mutex::new(value) }
    }

    /// Waits for the value.
    ///
    /// # Errors
    /// `DEVX_BUSY` if this thread has it, in a call that this one comes from; `DEVX_SYSTEM` if the wait is broken off.
    pub(super) fn take(&self) -> Result<Taken<'_, T>> {
        let this = Caller::me();
        loop {
            let mut whose = self.whose();
            match *whose {
                None => *whose = Some(this),
                Some(other) if other == this => {
                    return refuse!(DEVX_BUSY, "the connection waits for an answer already");
                }
                Some(_) => {
                    // With the lock given up, as who is asked may do anything.
                    drop(self.over.wait_timeout(whose, interrupt::slice(Duration::MAX)));
                    interrupt::look()?;
                    continue;
                }
            }
            drop(whose);
            let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(Taken { value, _over: Over(self) });
        }
    }

    fn whose(&self) -> MutexGuard<'_, Option<Caller>> {
        self.whose.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Over<'_, T> {
    fn drop(&mut self) {
        *self.0.whose() = None;
        // All of them: the one that is woken may be broken off and leave.
        self.0.over.notify_all();
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
