//! What Java holds besides counted references of the core: a value in a box that knows its own name and how to give it
//! up.

use core::ffi::c_void;

use devexchange_core::memory::Vacant;
use jni::sys::jlong;

use crate::error::{Result, refuse};
use crate::handle::{give, take};

/// A value that Java holds in a box. Any thread may use it.
pub(crate) trait Held: Send + Sync + 'static {
    /// The class in Java.
    const CLASS: &'static str;
    /// Its name in texts.
    const NOUN: &'static str;
}

/// A box, aligned so that its address has room for a tag.
#[repr(C, align(16))]
struct Boxed<T> {
    /// First, so that it is found whatever the type of the value is.
    head: Head,
    thing: T,
}

struct Head {
    class: &'static str,
    drop: unsafe fn(*mut c_void),
}

/// Memory for a value, allocated before the value exists.
pub(crate) struct Room<T>(Vacant<Boxed<T>>);

impl<T: Held> Room<T> {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Vacant::new()?))
    }

    /// Makes a handle for a value.
    pub(crate) fn hold(self, thing: T) -> jlong {
        let head = Head { class: T::CLASS, drop: drop_boxed::<T> };
        give(Box::into_raw(self.0.fill(Boxed { head, thing })))
    }
}

/// Makes a handle for a value, which is dropped if there is no memory for it.
pub(crate) fn hold<T: Held>(thing: T) -> Result<jlong> {
    Ok(Room::new()?.hold(thing))
}

/// # Safety
/// `raw` is from [`hold`] of this type, and is no longer used.
unsafe fn drop_boxed<T>(raw: *mut c_void) {
    // SAFETY: the caller's contract.
    drop(unsafe { Box::from_raw(raw.cast::<Boxed<T>>()) });
}

/// Borrows the value that Java holds.
///
/// # Safety
/// `handle` is 0 or a living handle of a value of this type, which is not given up while the result is used.
pub(crate) unsafe fn held<'a, T: Held>(handle: jlong) -> Result<&'a T> {
    // SAFETY: the caller's contract.
    match unsafe { take::<Boxed<T>>(handle).as_ref() } {
        Some(boxed) => Ok(&boxed.thing),
        None => refuse!(DEVX_CLOSED, "the {} is closed", T::NOUN),
    }
}

/// The Java class of what a box holds.
///
/// # Safety
/// `raw` is from [`hold`], of any type.
pub(crate) unsafe fn class(raw: *mut c_void) -> &'static str {
    // SAFETY: the head is the first member of every box.
    unsafe { &*raw.cast::<Head>() }.class
}

/// Drops a box and its value.
///
/// # Safety
/// `raw` is from [`hold`], of any type, and is no longer used.
pub(crate) unsafe fn give_up(raw: *mut c_void) {
    // SAFETY: as in `class`.
    let drop = unsafe { &*raw.cast::<Head>() }.drop;
    // SAFETY: the caller's contract; the function is that of the box's type.
    unsafe { drop(raw) }
}
