//! What a binding looks at and does not own.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// A thing that is looked at through a reference of somebody else's, who keeps it: there is no `&mut` to what is borrowed,
/// through which it could be taken away.
#[derive(Debug)]
pub struct Borrowed<'a, T> {
    value: ManuallyDrop<T>,
    _holder: PhantomData<&'a T>,
}

impl<T> Borrowed<'_, T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), _holder: PhantomData }
    }

    /// For methods that leave a thing of the same reference behind.
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
