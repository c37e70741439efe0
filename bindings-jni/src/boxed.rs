//! What Java holds that is no counted reference of the core's: a thing in a box, which knows by itself what it is
//! called and how it is given up.

use core::ffi::c_void;

use devexchange_core::memory::Vacant;
use jni::sys::jlong;

use crate::error::{Result, refuse};
use crate::handle::{give, take};

/// Something that Java holds in a box. Any thread may use it.
pub(crate) trait Held: Send + Sync + 'static {
    /// The class in Java.
    const CLASS: &'static str;
    /// What it is called in texts.
    const NOUN: &'static str;
}

/// The address leaves room for a tag.
#[repr(C, align(16))]
struct Boxed<T> {
    /// First, so that it is found whatever the thing is.
    head: Head,
    thing: T,
}

struct Head {
    class: &'static str,
    drop: unsafe fn(*mut c_void),
}

/// Memory for a thing, before there is one.
pub(crate) struct Room<T>(Vacant<Boxed<T>>);

impl<T: Held> Room<T> {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Vacant::new()?))
    }

    /// A handle for a thing.
    pub(crate) fn hold(self, thing: T) -> jlong {
        let head = Head { class: T::CLASS, drop: drop_boxed::<T> };
        give(Box::into_raw(self.0.fill(Boxed { head, thing })))
    }
}

/// A handle for a thing, which is dropped without memory for it.
pub(crate) fn hold<T: Held>(thing: T) -> Result<jlong> {
    Ok(Room::new()?.hold(thing))
}

/// # Safety
/// `raw` is from [`hold`] of this type, and is used no more.
unsafe fn drop_boxed<T>(raw: *mut c_void) {
    // SAFETY: the caller's contract.
    drop(unsafe { Box::from_raw(raw.cast::<Boxed<T>>()) });
}

/// What Java holds.
///
/// # Safety
/// `handle` is 0 or a living handle of such a thing, which is not given up while the result is used.
pub(crate) unsafe fn held<'a, T: Held>(handle: jlong) -> Result<&'a T> {
    // SAFETY: the caller's contract.
    match unsafe { take::<Boxed<T>>(handle).as_ref() } {
        Some(boxed) => Ok(&boxed.thing),
        None => refuse!(DEVX_CLOSED, "the {} is closed", T::NOUN),
    }
}

/// The class of what Java holds.
///
/// # Safety
/// `raw` is from [`hold`], of any type.
pub(crate) unsafe fn class(raw: *mut c_void) -> &'static str {
    // SAFETY: the head is the first member of every box.
    unsafe { &*raw.cast::<Head>() }.class
}

/// Gives up what Java holds.
///
/// # Safety
/// `raw` is from [`hold`], of any type, and is used no more.
pub(crate) unsafe fn give_up(raw: *mut c_void) {
    // SAFETY: as in `class`.
    let drop = unsafe { &*raw.cast::<Head>() }.drop;
    // SAFETY: the caller's contract; the function is that of its type.
    unsafe { drop(raw) }
}
