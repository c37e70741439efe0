//! A box without a value yet.

use std::mem::MaybeUninit;

/// A box for one `T`, allocated before there is a value: so a value that is taken over cannot be lost for lack of memory.
#[derive(Debug)]
pub struct Vacant<T>(Box<MaybeUninit<T>>);

impl<T> Vacant<T> {
    /// Allocates the box; `None` if there is no memory.
    pub(crate) fn find() -> Option<Self> {
        let mut one = Vec::new();
        one.try_reserve_exact(1).ok()?;
        one.push(MaybeUninit::uninit());
        let one: *mut [MaybeUninit<T>] = Box::into_raw(one.into_boxed_slice());
        // SAFETY: a slice of one element has the layout of the element, and the box belongs to nobody else.
        Some(Self(unsafe { Box::from_raw(one.cast()) }))
    }

    /// Puts a value into the box.
    pub fn fill(self, value: T) -> Box<T> {
        Box::write(self.0, value)
    }
}
