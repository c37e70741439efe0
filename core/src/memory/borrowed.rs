//! Handles that a binding uses without owning them.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// A handle used through another holder's reference, which the holder keeps. It gives no `&mut` access, through which the
/// reference could be taken away.
#[derive(Debug)]
pub struct Borrowed<'a, T> {
    value: ManuallyDrop<T>,
    _holder: PhantomData<&'a T>,
}

impl<T> Borrowed<'_, T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), _holder: PhantomData }
    }

    /// For methods that leave a handle with the same reference behind.
    pub(crate) fn value_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}
