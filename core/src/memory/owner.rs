//! The owner: a context and the callback that gives it up.

use core::ffi::c_void;
use std::fmt;

use super::slab::Slab;
use crate::abi::types::DevxOwner;
use crate::error::{Result, caught};
use crate::ledger::{Entry, Kind};
use crate::stream::Stream;
use crate::trace;
use crate::vacant::Vacant;

type Release = unsafe extern "C" fn(*mut c_void);

/// Keeps memory alive. Dropping it calls the release callback once, on the thread that drops it.
///
/// ```
/// use devexchange_core::{DType, Device, Flags, Owner, Result, Tensor, TensorDesc};
///
/// # fn main() -> Result<()> {
/// let pixels = vec![0_u8, 64, 128, 255]; // not a box: moving a box invalidates earlier pointers into it
/// let (data, shape) = (pixels.as_ptr().cast_mut().cast(), [2, 2]);
/// let (device, dtype) = (Device::CPU, DType::UINT8);
/// let desc = TensorDesc { data, device, dtype, shape: &shape, strides: None, byte_offset: 0, flags: Flags::READ_ONLY };
/// // SAFETY: four bytes, which are valid until the vector is dropped, and only read.
/// let tensor = unsafe { Tensor::from_raw_parts(&desc, Owner::new(pixels)) }?;
/// assert_eq!(tensor.as_slice::<u8>()?, [0, 64, 128, 255]);
/// # Ok(())
/// # }
/// ```
pub struct Owner {
    context: *mut c_void,
    release: Option<Release>,
    entry: Option<Entry>,
    /// How the memory is given back in the order of streams, if it is.
    stream: Option<InOrder>,
}

/// How memory is given back in the order of streams.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InOrder {
    /// The release only queues the return of the memory on this stream.
    Asked(Stream),
    /// In the order of this stream, but by somebody else's code, or together with memory of another kind.
    Of(Stream),
    /// Each part in its own order.
    Parts,
}

impl InOrder {
    /// Whether the memory is given back in the order of a stream other than `stream`.
    pub(crate) fn is_of_other(self, stream: Stream) -> bool {
        match self {
            Self::Asked(own) | Self::Of(own) => own != stream,
            Self::Parts => true,
        }
    }

    /// The order of parts that are given back together. Parts that are in no order do not count.
    pub(crate) fn of_all(parts: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        let one = |part| if let Self::Asked(stream) = part { Self::Of(stream) } else { part };
        let both = |one, other| if one == other { one } else { Self::Parts };
        parts.into_iter().flatten().map(one).reduce(both)
    }
}

// SAFETY: by an owner's contract (`from_raw`, `DevxOwner`), its release may be called on any thread;
// nothing else is done with the context.
unsafe impl Send for Owner {}
// SAFETY: a shared `Owner` offers no access to its context.
unsafe impl Sync for Owner {}

impl Owner {
    /// An owner that keeps nothing alive, for memory that outlives everything (static data).
    #[inline]
    pub const fn none() -> Self {
        Self { context: std::ptr::null_mut(), release: None, entry: None, stream: None }
    }

    /// Whether there is nothing to call.
    pub(crate) fn is_none(&self) -> bool {
        self.release.is_none()
    }

    /// Takes over a C owner. The ledger counts it until its release has been called.
    ///
    /// # Safety
    /// `owner.release(owner.context)` may be called once, from any thread, at any later time. The caller
    /// does not call it any more.
    #[inline]
    pub unsafe fn from_raw(owner: DevxOwner) -> Self {
        let entry = owner.release.is_some().then(|| Entry::open(Kind::Owner));
        Self { context: owner.context, release: owner.release, entry, stream: None }
    }

    /// Keeps a Rust value alive. The value is dropped on the thread of its last user, or on a thread of this library if queued
    /// work comes before.
    pub fn new<T: Send + 'static>(value: T) -> Self {
        let mut owner = Self::boxed(value);
        owner.entry = Some(Entry::open(Kind::Owner));
        owner
    }

    /// Like [`Owner::new`], but drops the value if there is no memory, where [`Owner::new`] ends the process.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn try_new<T: Send + 'static>(value: T) -> Result<Self> {
        Ok(Self::keeping(Vacant::new()?, value))
    }

    /// Like [`Owner::new`], but in room that was allocated before.
    pub(crate) fn keeping<T: Send + 'static>(room: Vacant<T>, value: T) -> Self {
        let mut owner = Self::in_room(room, value);
        owner.entry = Some(Entry::open(Kind::Owner));
        owner
    }

    /// The address of the value that [`Owner::keeping`] keeps, which stays the same until the owner is dropped.
    pub(crate) fn kept<T>(&self) -> *const T {
        self.context.cast_const().cast()
    }

    /// Takes the value back that [`Owner::keeping`] keeps.
    ///
    /// # Safety
    /// The value is of this type, and nothing that it lent is used any more.
    pub(crate) unsafe fn into_kept<T>(self) -> T {
        // SAFETY: `of_box` made the context from a box of this type, and the owner does not release it any more.
        *unsafe { Box::from_raw(self.into_raw().context.cast()) }
    }

    /// Calls `release` when nothing refers to the memory any more. A panic in `release` is caught and traced. `release` must
    /// not wait for another release: one that it causes by giving up what it holds may come only after it has returned.
    pub fn on_release(release: impl FnOnce() + Send + 'static) -> Self {
        Self::new(OnDrop(Some(release)))
    }

    /// Like [`Owner::on_release`], but in room that was allocated before. With a `stream`, the memory is given back in its
    /// order.
    pub(crate) fn releasing<F: FnOnce() + Send + 'static>(
        room: Vacant<OnDrop<F>>,
        stream: Option<Stream>,
        release: F,
    ) -> Self {
        let mut owner = Self::in_room(room, OnDrop(Some(release)));
        (owner.entry, owner.stream) = (Some(Entry::open(Kind::Owner)), stream.map(InOrder::Asked));
        owner
    }

    /// The stream that the release queues the return of the memory on, if it does only that.
    pub(crate) fn stream(&self) -> Option<Stream> {
        match self.stream {
            Some(InOrder::Asked(stream)) => Some(stream),
            _ => None,
        }
    }

    /// How the memory is given back in the order of streams, if it is.
    pub(crate) fn in_order(&self) -> Option<InOrder> {
        self.stream
    }

    /// Says how the memory is given back.
    pub(crate) fn given_back(mut self, in_order: Option<InOrder>) -> Self {
        self.stream = in_order;
        self
    }

    /// Like [`Owner::new`], but for a value with its own entry in the ledger.
    pub(crate) fn boxed<T: Send + 'static>(value: T) -> Self {
        Self::of_box(Box::new(value))
    }

    /// Like [`Owner::boxed`], but in room that was allocated before.
    pub(crate) fn in_room<T: Send + 'static>(room: Vacant<T>, value: T) -> Self {
        Self::of_box(room.fill(value))
    }

    fn of_box<T: Send + 'static>(value: Box<T>) -> Self {
        Self { context: Box::into_raw(value).cast(), release: Some(drop_box::<T>), entry: None, stream: None }
    }

    /// Keeps one reference to a slab. The ledger counts what the slab stands for, not this owner.
    pub(crate) fn of_slab<H: Send + Sync>(slab: Slab<H>) -> Self {
        Self { context: slab.into_raw(), release: Some(drop_slab::<H>), entry: None, stream: None }
    }

    /// An owner for a foreign struct, which the ledger counts under `kind`.
    ///
    /// # Safety
    /// Same as [`Owner::from_raw`].
    #[inline]
    pub(crate) unsafe fn counted(context: *mut c_void, release: Release, kind: Kind) -> Self {
        Self { context, release: Some(release), entry: Some(Entry::open(kind)), stream: None }
    }

    /// Gives the raw owner back without calling its release.
    pub fn into_raw(mut self) -> DevxOwner {
        DevxOwner { context: self.context, release: self.release.take() }
    }
}

impl Drop for Owner {
    #[inline]
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: by `from_raw` the callback may be called once, on any thread; a drop is once.
            unsafe { release(self.context) }
        }
        // The entry's own drop then closes it in the ledger.
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("context", &self.context).field("release", &self.release.is_some()).finish()
    }
}

/// Calls its function when dropped.
pub(crate) struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            release();
        }
    }
}

unsafe extern "C" fn drop_box<T>(context: *mut c_void) {
    // SAFETY: `of_box` made the context from a box of this type, and an owner releases once.
    let value = unsafe { Box::from_raw(context.cast::<T>()) };
    let released = caught(|| {
        drop(value);
        Ok(())
    });
    if let Err(error) = released {
        trace::say(format_args!("the release of an owner panicked ({error}); the panic ends here"));
    }
}

unsafe extern "C" fn drop_slab<H>(context: *mut c_void) {
    // SAFETY: `Owner::of_slab` made the context from a slab of this type, and an owner releases once.
    drop(unsafe { Slab::<H>::from_raw(context) });
}
