//! A value of the user's whose drop may panic where nobody could catch that.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use crate::error::caught;
use crate::trace;

/// Holds a value that the user gave. A panic in its drop is traced and ends there, because the drop may come from a consumer in
/// another language.
pub(crate) struct Shielded<T> {
    value: ManuallyDrop<T>,
    /// What the value is, for the trace.
    what: &'static str,
}

impl<T> Shielded<T> {
    pub(crate) fn new(what: &'static str, value: T) -> Self {
        Self { value: ManuallyDrop::new(value), what }
    }
}

impl<T> Deref for Shielded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Shielded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Shielded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for Shielded<T> {
    fn drop(&mut self) {
        let dropped = caught(|| {
            // SAFETY: once, because this is being dropped.
            unsafe { ManuallyDrop::drop(&mut self.value) };
            Ok(())
        });
        if let Err(error) = dropped {
            trace::say(format_args!("the drop of {} panicked ({error}); the panic ends here", self.what));
        }
    }
}
