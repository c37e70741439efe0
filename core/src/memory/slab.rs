//! Reference-counted blocks of memory: a header, and a tail whose parts are laid out by the block's maker.
//! A whole exchange (tensor, schema, array tree) is one such block.

use core::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

use super::blocks::{self, ALIGN, Origin};
use super::nesting;
use crate::error::{Refused, Result, refuse};
use crate::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// More references than this are a leak in a loop, not use; the count must not wrap.
const MAX_REFS: usize = isize::MAX as usize;

/// The bit of the count that is set while somebody has the claim; see [`Slab::claim`].
const CLAIM: usize = 1 << (usize::BITS - 2);

/// The beginning of a block. It is aligned to [`ALIGN`], like everything that is carved from the tail.
#[repr(C, align(16))]
struct Block<H> {
    head: Head,
    header: H,
}

struct Head {
    refs: AtomicUsize,
    origin: Origin,
}

/// A counted reference to a block; the last one drops the header and frees the block.
pub(crate) struct Slab<H> {
    block: NonNull<Block<H>>,
    _owns: PhantomData<Block<H>>,
}

// SAFETY: the count is atomic, and shared access gives `&H` only. The tail belongs to the header's type,
// which vouches for it by being `Send + Sync`.
unsafe impl<H: Send + Sync> Send for Slab<H> {}
// SAFETY: as above.
unsafe impl<H: Send + Sync> Sync for Slab<H> {}

impl<H> Slab<H> {
    /// Allocates room for a block, before there is a header to put in.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    #[inline(always)]
    pub(crate) fn room(tail: TailSize) -> Result<Room<H>> {
        const { assert!(align_of::<Block<H>>() == ALIGN) };
        match size_of::<Block<H>>().checked_add(tail.0).and_then(blocks::allocate) {
            Some((block, origin)) => {
                let block = block.cast::<Block<H>>();
                // SAFETY: allocated for a `Block` and more, with its alignment.
                let place = unsafe { &raw mut (*block.as_ptr()).head.origin };
                // SAFETY: as above. The count is written when the room is filled.
                unsafe { place.write(origin) };
                Ok(Room { block })
            }
            None => refuse!(DEVX_OUT_OF_MEMORY, "{} bytes could not be allocated", tail.0),
        }
    }

    /// Makes a block with one reference. The tail is uninitialised; carve it with [`Slab::tail`].
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, with the header given back.
    pub(crate) fn new(header: H, tail: TailSize) -> std::result::Result<Self, Refused<H>> {
        match Self::room(tail) {
            Ok(room) => Ok(room.fill(header)),
            Err(error) => Err(Refused { error, returned: header }),
        }
    }

    #[inline]
    pub(crate) fn header(&self) -> &H {
        // SAFETY: a reference is held, so the block is alive; headers are only changed through `unique`.
        unsafe { &(*self.block.as_ptr()).header }
    }

    /// Exclusive access to the header, as long as there is no second reference.
    #[inline]
    pub(crate) fn unique(&mut self) -> Option<&mut H> {
        let block = self.block.as_ptr();
        // SAFETY: a reference is held, so the block is alive.
        let refs = unsafe { &(*block).head.refs }.load(Acquire);
        // SAFETY: this is the only reference, and it stays borrowed. The `&mut` is made only after that check.
        (refs == 1).then(|| unsafe { &mut (*block).header })
    }

    /// The address of a part of the header, valid as long as the block is alive. An address taken from a reference is
    /// valid only until the next [`Slab::unique`].
    #[inline]
    pub(crate) fn lasting<T>(&self, part: *const T) -> *const T {
        self.block.as_ptr().cast_const().with_addr(part.addr()).cast()
    }

    /// The tail, to be carved in the order in which [`TailSize`] was summed up.
    pub(crate) fn tail(&self) -> Tail {
        // SAFETY: the block is alive.
        let origin = unsafe { (*self.block.as_ptr()).head.origin };
        tail_of(self.block, origin)
    }

    /// Adds `n` references, to be given up through [`Slab::release_raw`].
    #[inline]
    pub(crate) fn add_refs(&self, n: usize) {
        // SAFETY: a reference is held, so the block is alive.
        let old = unsafe { &(*self.block.as_ptr()).head.refs }.fetch_add(n, Relaxed);
        if old > MAX_REFS || n > MAX_REFS {
            // The count would wrap into a use after free; nothing can be returned from here.
            std::process::abort();
        }
    }

    /// Claims what the header has only one of, and adds a reference that goes with the claim; `false` if somebody else
    /// has it. The holder sees everything that was done under earlier claims, and gives the claim up, with one
    /// reference, through [`Slab::release_claimed`].
    #[inline]
    pub(crate) fn claim(&self) -> bool {
        self.claim_adding(1)
    }

    /// Like [`Slab::claim`], but this reference itself goes with the claim; on success the caller forgets it.
    #[inline]
    pub(crate) fn claim_whole(&mut self) -> bool {
        // SAFETY: a reference is held, so the block is alive.
        let refs = unsafe { &(*self.block.as_ptr()).head.refs };
        if refs.load(Acquire) == 1 {
            // The only reference, and it stays borrowed: nobody else can change the count meanwhile.
            refs.store(CLAIM + 1, Relaxed);
            return true;
        }
        self.claim_adding(0)
    }

    #[inline]
    fn claim_adding(&self, n: usize) -> bool {
        // SAFETY: a reference is held, so the block is alive.
        let refs = unsafe { &(*self.block.as_ptr()).head.refs };
        let mut old = refs.load(Relaxed);
        loop {
            if old & CLAIM != 0 || old > MAX_REFS / 4 {
                return false;
            }
            match refs.compare_exchange_weak(old, old + CLAIM + n, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
    }

    /// Gives up the claim and one reference.
    ///
    /// # Safety
    /// `raw` is the address of a living block of this type, and the caller has its claim and a reference.
    #[inline]
    pub(crate) unsafe fn release_claimed(raw: *mut c_void) {
        // SAFETY: the caller's contract; the claim is counted like so many references.
        unsafe { Self::release_raw(raw, CLAIM + 1) }
    }

    /// Turns this reference into the address of the block.
    #[inline]
    pub(crate) fn into_raw(self) -> *mut c_void {
        ManuallyDrop::new(self).block.as_ptr().cast()
    }

    /// The address of the block; this reference stays as it is.
    #[inline]
    pub(crate) fn as_raw(&self) -> *mut c_void {
        self.block.as_ptr().cast()
    }

    /// Takes a reference back from its address.
    ///
    /// # Safety
    /// `raw` is from [`Slab::into_raw`] of the same type, and this reference is taken back once.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: *mut c_void) -> Self {
        // SAFETY: `into_raw` gave the address of a block.
        Self { block: unsafe { NonNull::new_unchecked(raw.cast()) }, _owns: PhantomData }
    }

    /// Gives up `n` references at once.
    ///
    /// # Safety
    /// `raw` is the address of a living block of this type, and the caller holds `n` of its references.
    #[inline]
    pub(crate) unsafe fn release_raw(raw: *mut c_void, n: usize) {
        let block = raw.cast::<Block<H>>();
        // SAFETY: alive by the caller's references.
        let refs = unsafe { &(*block).head.refs };
        // If the caller holds all references, nobody else can add or give up one, so there is no need to count.
        if refs.load(Acquire) == n || refs.fetch_sub(n, Release) == n {
            // Acts as a fence, but one that the thread sanitizer sees: all earlier releases come before this.
            refs.load(Acquire);
            // SAFETY: those were the last references, and all earlier uses come before this.
            unsafe { free::<H>(raw) }
        }
    }
}

/// Drops the header and gives the block back, now or later. Not inlined into [`Slab::release_raw`], which is in many places,
/// and usually does not give up the last reference.
///
/// # Safety
/// `raw` is the address of a block of this type, and nobody refers to it any more.
#[inline(never)]
unsafe fn free<H>(raw: *mut c_void) {
    // SAFETY: the caller's contract.
    let Some(inside) = (unsafe { nesting::begin(raw, free::<H>) }) else { return };
    // SAFETY: the address of a block.
    let block = unsafe { NonNull::new_unchecked(raw.cast::<Block<H>>()) };
    // Its drop gives the block back if the header's drop panics.
    let room = Room { block };
    // SAFETY: the header is dropped once, here.
    unsafe { room.header().drop_in_place() };
    std::mem::forget(room);
    // SAFETY: the block is ours alone. Read only now, so that no register has to keep it during the drop.
    let origin = unsafe { (*block.as_ptr()).head.origin };
    // SAFETY: from `room`, with this origin.
    unsafe { blocks::free_here(block.cast(), origin, inside.here()) }
}

/// A block in which only the header is missing. What is carved from its tail stays where it is.
pub(crate) struct Room<H> {
    block: NonNull<Block<H>>,
}

impl<H> Room<H> {
    /// The address that the block will have.
    #[inline]
    pub(crate) fn as_raw(&self) -> *mut c_void {
        self.block.as_ptr().cast()
    }

    /// The tail; see [`Slab::tail`].
    #[inline]
    pub(crate) fn tail(&self) -> Tail {
        // SAFETY: written by `room`.
        let origin = unsafe { (*self.block.as_ptr()).head.origin };
        tail_of(self.block, origin)
    }

    /// Where the tail begins.
    #[inline]
    pub(crate) fn start(&self) -> *mut c_void {
        // SAFETY: the block is one allocation that starts with a `Block`.
        unsafe { self.block.add(1) }.as_ptr().cast()
    }

    /// Puts the header in; the block has one reference.
    #[inline]
    pub(crate) fn fill(self, header: H) -> Slab<H> {
        // SAFETY: allocated for a `Block` and more, with its alignment.
        unsafe { self.header().write(header) };
        // SAFETY: the header was written just now.
        unsafe { self.filled(1) }
    }

    /// Where the header goes; see `fill_in`.
    #[inline]
    pub(crate) fn header(&self) -> *mut H {
        // SAFETY: allocated for a `Block` and more, with its alignment.
        unsafe { &raw mut (*self.block.as_ptr()).header }
    }

    /// Returns the block, with `refs` references. All but one of them are to be given up through [`Slab::release_raw`].
    ///
    /// # Safety
    /// The header was written.
    #[inline]
    pub(crate) unsafe fn filled(self, refs: usize) -> Slab<H> {
        let room = ManuallyDrop::new(self);
        // SAFETY: allocated for a `Block` and more, with its alignment.
        let counter = unsafe { &raw mut (*room.block.as_ptr()).head.refs };
        // SAFETY: as above.
        unsafe { counter.write(AtomicUsize::new(refs)) };
        Slab { block: room.block, _owns: PhantomData }
    }
}

impl<H> Drop for Room<H> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: from `room`, and not used.
        unsafe { give_back(self.block) }
    }
}

/// Gives back a block without its header. It is out of line and takes a value, so that a room stays in a register on the
/// usual path.
///
/// # Safety
/// `block` is from [`Slab::room`], and nobody uses it any more.
#[cold]
#[inline(never)]
unsafe fn give_back<H>(block: NonNull<Block<H>>) {
    // SAFETY: written by `room`.
    let origin = unsafe { (*block.as_ptr()).head.origin };
    // SAFETY: the caller's contract.
    unsafe { blocks::free(block.cast(), origin) }
}

#[inline]
fn tail_of<H>(block: NonNull<Block<H>>, origin: Origin) -> Tail {
    // SAFETY: the block is one allocation that starts with a `Block`.
    let start = unsafe { block.add(1) }.cast::<u8>();
    Tail { next: start, left: origin.bytes() - size_of::<Block<H>>() }
}

impl<H> Clone for Slab<H> {
    #[inline]
    fn clone(&self) -> Self {
        self.add_refs(1);
        Self { block: self.block, _owns: PhantomData }
    }
}

impl<H> Drop for Slab<H> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this value is one reference, given up here.
        unsafe { Self::release_raw(self.as_raw(), 1) }
    }
}

impl<H: fmt::Debug> fmt::Debug for Slab<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header().fmt(f)
    }
}

/// The size of a tail, summed up part by part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TailSize(usize);

impl TailSize {
    /// Room for a few values of `T`; their number has been checked already.
    #[inline]
    pub(crate) fn of<T>(n: usize) -> Self {
        Self(aligned(size_of::<T>() * n))
    }

    /// Adds room for another part. [`Slab::room`] refuses a sum that cannot be addressed.
    #[inline]
    pub(crate) fn with(self, part: Self) -> Self {
        Self(self.0.saturating_add(part.0))
    }

    /// Adds room for `n` values of `T`.
    #[inline]
    pub(crate) fn and<T>(self, n: usize) -> Result<Self> {
        let part = size_of::<T>().checked_mul(n).and_then(|bytes| bytes.checked_next_multiple_of(ALIGN));
        match part.and_then(|part| self.0.checked_add(part)) {
            Some(total) => Ok(Self(total)),
            None => refuse!(DEVX_OUT_OF_MEMORY, "{n} times {} bytes cannot be allocated", size_of::<T>()),
        }
    }
}

/// Rounds up to the next multiple of [`ALIGN`]. The size must be small enough for that not to overflow.
#[inline]
const fn aligned(bytes: usize) -> usize {
    (bytes + (ALIGN - 1)) & !(ALIGN - 1)
}

/// The part of a tail that is not carved yet.
pub(crate) struct Tail {
    next: NonNull<u8>,
    left: usize,
}

impl Tail {
    /// Room for the next `n` numbers, for use while the tail is being carved.
    pub(crate) fn scratch(&mut self, n: usize) -> &mut [MaybeUninit<usize>] {
        let first = self.carve::<MaybeUninit<usize>>(n);
        // SAFETY: room for `n` numbers, carved for this alone; the borrow of the tail keeps the block in use.
        unsafe { std::slice::from_raw_parts_mut(first, n) }
    }

    /// Carves the next `n` values of `T`, uninitialised. For zero values, the room may be dangling.
    #[inline]
    pub(crate) fn carve<T>(&mut self, n: usize) -> *mut T {
        const { assert!(align_of::<T>() <= ALIGN) };
        let bytes = aligned(size_of::<T>() * n);
        assert!(bytes <= self.left, "a tail was carved beyond its size");
        let part = self.next;
        // SAFETY: `bytes` of the block are left from `next` on.
        self.next = unsafe { part.add(bytes) };
        self.left -= bytes;
        part.as_ptr().cast()
    }
}
