//! A value that one thread uses at a time while others wait. Such a wait can be broken off ([`interrupt`]).

#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::interrupt;
use crate::error::{Result, refuse};
use crate::thread::Caller;

#[derive(Debug)]
pub(super) struct Turn<T> {
    /// The thread whose turn it is.
    whose: Mutex<Option<Caller>>,
    over: Condvar,
    /// Locked by the thread whose turn it is.
    value: Mutex<T>,
}

/// The value, until the turn ends.
pub(super) struct Taken<'a, T> {
    value: MutexGuard<'a, T>,
    _over: Over<'a, T>,
}

struct Over<'a, T>(&'a Turn<T>);

impl<T> Turn<T> {
    pub(super) fn new(value: T) -> Self {
        Self { whose: Mutex::new(None), over: Condvar::new(), value: Mutex::new(value) }
    }

    /// Waits until it is this thread's turn to use the value; `None` if it is not by then.
    ///
    /// # Errors
    /// `DEVX_BUSY` if this thread has the value already, in a call that led to this one; `DEVX_SYSTEM` if the wait is broken
    /// off.
    pub(super) fn take(&self, end: Instant) -> Result<Option<Taken<'_, T>>> {
        let this = Caller::me();
        loop {
            let mut whose = self.whose();
            match *whose {
                None => *whose = Some(this),
                Some(other) if other == this => {
                    return refuse!(DEVX_BUSY, "the connection waits for an answer already");
                }
                Some(_) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    // The lock is released first, because `look` calls the program's function, which can do anything.
                    drop(self.over.wait_timeout(whose, interrupt::slice(left)));
                    interrupt::look()?;
                    continue;
                }
            }
            drop(whose);
            let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(Some(Taken { value, _over: Over(self) }));
        }
    }

    fn whose(&self) -> MutexGuard<'_, Option<Caller>> {
        self.whose.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Over<'_, T> {
    fn drop(&mut self) {
        *self.0.whose() = None;
        // All are woken, because a single woken thread may break off its wait and leave.
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
