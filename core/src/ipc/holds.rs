//! What this process holds of an exporter, by the name under which it was offered. While it is held, another import under that
//! name needs no lease of its own.

#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::import::Opened;
use crate::error::Result;
use crate::memory::{Counted, Sorted, Weak, string};

#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<Sorted<String, Hold>>);

#[derive(Debug)]
struct Hold {
    lease: u64,
    /// The number of changes that was read before the request.
    changes: u64,
    opened: Weak<Opened>,
}

impl Holds {
    /// Returns what is held under a name, if no offer has changed since it was requested.
    pub(super) fn find(&self, name: &str, changes: u64) -> Option<Counted<Opened>> {
        self.all().get(name).filter(|hold| hold.changes == changes)?.opened.upgrade()
    }

    /// Notes what was given under a name, in place of what was given before.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`; then the next import under that name has a lease of its own.
    pub(super) fn note(&self, name: &str, lease: u64, changes: u64, opened: &Counted<Opened>) -> Result<()> {
        let name = string(name)?;
        self.all().room()?.insert(name, Hold { lease, changes, opened: opened.downgrade() });
        Ok(())
    }

    /// Forgets a lease that is given up, unless its name has another lease by now.
    pub(super) fn forget(&self, name: &str, lease: u64) {
        let mut all = self.all();
        if all.get(name).is_some_and(|hold| hold.lease == lease) {
            all.remove(name);
        }
    }

    /// Locks the entries. The lock is never held while something is given up: that may be the last reference to an entry here.
    fn all(&self) -> MutexGuard<'_, Sorted<String, Hold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
