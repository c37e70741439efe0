//! Wake callbacks, which say that there is something to poll for.

use core::ffi::c_void;
use std::fmt;

use crate::abi::types::{DevxOwner, DevxWake};
use crate::error::{Result, caught};
use crate::memory::{Owner, Shielded, Slab, TailSize, boxed};
use crate::trace;

/// A callback for when there is something to poll for. It is called on any thread, and must only wake whoever polls.
/// Cloning shares it; it is given up with the last clone.
#[derive(Clone)]
pub struct Wake(Slab<Target>);

enum Target {
    Function(Shielded<Box<dyn Fn() + Send + Sync>>),
    Record { wake: Option<unsafe extern "C" fn(*mut c_void)>, context: *mut c_void, owner: Owner },
}

// SAFETY: the contract of `devx_wake` is that the functions of a record can be called on any thread, several at once.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Wake {
    /// Makes a callback out of a function. If there is no memory, the function is dropped. A panic in it, or in its drop, is
    /// caught and traced: the peer may be the one that wakes.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Result<Self> {
        let room = Slab::room(TailSize::default())?;
        Ok(Self(room.fill(Target::Function(Shielded::new("a wake callback", boxed(wake)?)))))
    }

    /// Takes over a C record that a binding received.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`; then the record stays with the caller.
    ///
    /// # Safety
    /// The functions of the record can be called as `devx_wake` says.
    pub unsafe fn from_raw(record: DevxWake) -> Result<Self> {
        let room = Slab::room(TailSize::default())?;
        let DevxWake { wake, context, release } = record;
        // SAFETY: the caller hands the record over.
        let owner = unsafe { Owner::from_raw(DevxOwner { context, release }) };
        Ok(Self(room.fill(Target::Record { wake, context, owner })))
    }

    /// Gives back a record that was not taken after all: if this is the last clone, its release is not called.
    pub fn give_back(mut self) {
        if let Some(Target::Record { owner, .. }) = self.0.unique() {
            std::mem::replace(owner, Owner::none()).into_raw();
        }
    }

    /// Calls the callback.
    pub fn call(&self) {
        match self.0.header() {
            Target::Function(wake) => {
                let called = caught(|| {
                    wake();
                    Ok(())
                });
                if let Err(error) = called {
                    trace::say(format_args!("a wake callback panicked ({error}); the panic ends here"));
                }
            }
            // SAFETY: the record is released with its owner, not before.
            Target::Record { wake: Some(wake), context, .. } => unsafe { wake(*context) },
            Target::Record { wake: None, .. } => {}
        }
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake").finish_non_exhaustive()
    }
}
