//! Things that are kept for reuse, each for one kind of use.

#![forbid(unsafe_code)]

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

pub(crate) struct Kept<K, T> {
    pub(crate) all: Mutex<Vec<(K, T)>>,
}

impl<K: PartialEq + Copy, T> Kept<K, T> {
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

    /// Takes the things that are kept for this kind of use, and passes each of them to `end` with no lock held. One at a time,
    /// because a list of them would need memory; no more than there are, because others may be given meanwhile.
    pub(crate) fn forget(&self, of: K, end: impl FnMut(T)) {
        (0..self.len()).map_while(|_| self.take(of)).for_each(end);
    }

    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, Vec<(K, T)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
