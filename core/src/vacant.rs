//! A box before there is anything to put in.

use std::mem::MaybeUninit;

/// Memory for one `T`, before there is anything to put in: so what was taken over cannot be lost for want of memory.
#[derive(Debug)]
pub struct Vacant<T>(Box<MaybeUninit<T>>);

impl<T> Vacant<T> {
    /// `None` if there is no memory.
    pub(crate) fn find() -> Option<Self> {
        let mut one = Vec::new();
        one.try_reserve_exact(1).ok()?;
        one.push(MaybeUninit::uninit());
        let one: *mut [MaybeUninit<T>] = Box::into_raw(one.into_boxed_slice());
        // SAFETY: a slice of one is laid out as that one, and the box belongs to nobody else.
        Some(Self(unsafe { Box::from_raw(one.cast()) }))
    }

    /// The box with a value in it.
    pub fn fill(self, value: T) -> Box<T> {
        Box::write(self.0, value)
    }
}
