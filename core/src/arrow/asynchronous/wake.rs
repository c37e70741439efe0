//! Whom to tell that there is something to poll for.

use core::ffi::c_void;
use std::fmt;

use crate::abi::types::{DevxOwner, DevxWake};
use crate::error::Result;
use crate::memory::{Owner, Slab, TailSize, boxed};

/// Called, on any thread, when there is something to poll for; it wakes whoever polls and does nothing else. Cloning
/// shares it; it is given up with the last clone.
#[derive(Clone)]
pub struct Wake(Slab<Target>);

enum Target {
    Function(Box<dyn Fn() + Send + Sync>),
    Record { wake: Option<unsafe extern "C" fn(*mut c_void)>, context: *mut c_void, owner: Owner },
}

// SAFETY: a record is the contract of `devx_wake`: its functions may be called on any thread, also at once.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Wake {
    /// A function of the caller's, which is dropped without memory for it.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Result<Self> {
        let room = Slab::room(TailSize::default())?;
        Ok(Self(room.fill(Target::Function(boxed(wake)?))))
    }

    /// Takes over a C record: what a binding was given.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`; then the record is the caller's as before.
    ///
    /// # Safety
    /// The functions of the record may be called, as `devx_wake` says.
    pub unsafe fn from_raw(record: DevxWake) -> Result<Self> {
        let room = Slab::room(TailSize::default())?;
        let DevxWake { wake, context, release } = record;
        // SAFETY: the caller hands the record over.
        let owner = unsafe { Owner::from_raw(DevxOwner { context, release }) };
        Ok(Self(room.fill(Target::Record { wake, context, owner })))
    }

    /// Gives a record back that nobody has taken: if this is the last clone, its release is not called.
    pub fn give_back(mut self) {
        if let Some(Target::Record { owner, .. }) = self.0.unique() {
            std::mem::replace(owner, Owner::none()).into_raw();
        }
    }

    /// Tells whoever polls.
    pub fn call(&self) {
        match self.0.header() {
            Target::Function(wake) => wake(),
            // SAFETY: the record is not released before its owner.
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
