//! Things that are kept for reuse, each for one kind of use.

#![forbid(unsafe_code)]

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

pub(crate) struct Kept<K, T> {
    pub(crate) all: Mutex<Vec<(K, T)>>,
}

impl<K: PartialEq, T> Kept<K, T> {
    /// Takes one for this kind of use.
    pub(crate) fn take(&self, of: K) -> Option<T> {
        let mut all = self.all();
        let at = all.iter().rposition(|(kind, _)| *kind == of)?;
        Some(all.swap_remove(at).1)
    }

    /// Keeps a thing, or returns it if `most` are kept already, or if there is no memory.
    pub(crate) fn give(&self, of: K, thing: T, most: usize) -> Option<T> {
        let mut all = self.all();
        if all.len() >= most || all.try_reserve(1).is_err() {
            return Some(thing);
        }
        all.push((of, thing));
        None
    }

    /// Takes all things for this kind of use.
    pub(crate) fn forget(&self, of: K) -> Vec<T> {
        self.all().extract_if(.., |(kind, _)| *kind == of).map(|(_, thing)| thing).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, Vec<(K, T)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
