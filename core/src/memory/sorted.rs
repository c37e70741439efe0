//! A map that returns an error if there is no memory: its entries are in a row, sorted by key.

#![forbid(unsafe_code)]

use std::borrow::Borrow;
use std::collections::VecDeque;

use crate::error::{Error, Result};

/// Values by key. Adding or removing an entry moves the entries before it or after it, whichever are fewer.
#[derive(Debug)]
pub(crate) struct Sorted<K, V>(VecDeque<(K, V)>);

/// Room for one more entry.
pub(crate) struct Free<'a, K, V>(&'a mut Sorted<K, V>);

impl<K: Ord, V> Sorted<K, V> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    fn at<Q: Ord + ?Sized>(&self, key: &Q) -> std::result::Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(self.at(key).ok()?).map(|(_, value)| value)
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let at = self.at(key).ok()?;
        self.0.get_mut(at).map(|(_, value)| value)
    }

    /// The value with the greatest key that is not above `key`.
    pub(crate) fn up_to(&self, key: &K) -> Option<&V> {
        let at = self.at(key).map_or_else(|behind| behind.checked_sub(1), Some)?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Allocates room for one more entry, before there is anything to put in.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(crate) fn room(&mut self) -> Result<Free<'_, K, V>> {
        match self.0.try_reserve(1) {
            Ok(()) => Ok(Free(self)),
            Err(_) => Err(Error::no_memory(size_of::<(K, V)>())),
        }
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = self.at(key).ok()?;
        self.0.remove(at).map(|(_, value)| value)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        self.0.retain(|(_, value)| keep(value));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Ord, V> Free<'_, K, V> {
    /// Puts a value in. Returns the value that had this key before.
    pub(crate) fn insert(self, key: K, value: V) -> Option<V> {
        let Self(all) = self;
        match all.at(&key) {
            Ok(at) => all.0.get_mut(at).map(|(_, old)| std::mem::replace(old, value)),
            Err(at) => {
                all.0.insert(at, (key, value));
                None
            }
        }
    }
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(all: &mut Sorted<u32, u32>, key: u32, value: u32) -> Option<u32> {
        all.room().expect("memory").insert(key, value)
    }

    #[test]
    fn it_is_a_map() {
        let mut all = Sorted::new();
        assert!(all.is_empty() && all.up_to(&9).is_none());
        for key in [5, 1, 9, 3, 7] {
            assert_eq!(put(&mut all, key, key * 10), None);
        }
        assert_eq!(put(&mut all, 3, 31), Some(30));
        assert_eq!((all.len(), all.get(&3), all.get(&4)), (5, Some(&31), None));
        assert_eq!(
            [0, 1, 2, 8, 9, 10].map(|key| all.up_to(&key).copied()),
            [None, Some(10), Some(10), Some(70), Some(90), Some(90)]
        );
        *all.get_mut(&9).expect("there") += 1;
        assert!(all.get_mut(&4).is_none());
        assert_eq!((all.remove(&9), all.remove(&9)), (Some(91), None));
        all.retain(|value| *value != 10);
        assert_eq!([1, 3, 5, 7].map(|key| all.get(&key).copied()), [None, Some(31), Some(50), Some(70)]);
    }
}
