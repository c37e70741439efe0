//! Releases that a managed runtime has to do itself: pushed from any thread, drained by a thread of that runtime.

use core::ffi::c_void;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, PoisonError};

use super::boxed;
use crate::abi::types::DevxOwner;
use crate::error::{Result, caught};
use crate::sync::Mutex;
use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use crate::trace;

/// A queue of released tokens.
///
/// A release callback pushes its token: this takes no lock, allocates nothing and cannot fail, because
/// the entry was made when the token was registered. Then it calls `wake`, which must be as harmless
/// (`uv_async_send`, `Thread::unpark`). A panic in `wake` is caught and traced.
pub struct ReleaseQueue {
    head: AtomicPtr<Node>,
    /// Taken from `head`, oldest first, and not delivered yet.
    pending: Mutex<Pending>,
    wake: Box<dyn Fn() + Send + Sync>,
    quiet: AtomicBool,
}

struct Node {
    next: *mut Node,
    token: u64,
    queue: Arc<ReleaseQueue>,
    place: AtomicU8,
}

/// Where a node is: only with its signal; with its signal and in the queue; only in the queue, or about to be put there.
const WITH_SIGNAL: u8 = 0;
const QUEUED: u8 = 1;
const ALONE: u8 = 2;

struct Pending(*mut Node);

// SAFETY: the nodes behind the pointer belong to the queue, not to a thread.
unsafe impl Send for Pending {}

impl ReleaseQueue {
    /// A queue that calls `wake` after each push, on the thread that pushed.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            head: AtomicPtr::new(null_mut()),
            pending: Mutex::new(Pending(null_mut())),
            wake: Box::new(wake),
            quiet: AtomicBool::new(false),
        })
    }

    /// Returns an owner whose release pushes `token`. If nobody takes the owner over, it must go to
    /// [`ReleaseQueue::cancel`].
    pub fn register(self: &Arc<Self>, token: u64) -> DevxOwner {
        Self::owner(Box::new(self.node(token, ALONE)))
    }

    /// Like [`ReleaseQueue::register`], but a lack of memory is an error, not the end of the process.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`; then the token will not come out.
    pub fn try_register(self: &Arc<Self>, token: u64) -> Result<DevxOwner> {
        Ok(Self::owner(boxed(self.node(token, ALONE))?))
    }

    /// Returns a signal that can push `token` any number of times.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn signal(self: &Arc<Self>, token: u64) -> Result<Signal> {
        let node = Box::into_raw(boxed(self.node(token, WITH_SIGNAL))?);
        // SAFETY: from a box.
        Ok(Signal(unsafe { NonNull::new_unchecked(node) }))
    }

    fn node(self: &Arc<Self>, token: u64, place: u8) -> Node {
        Node { next: null_mut(), token, queue: Arc::clone(self), place: AtomicU8::new(place) }
    }

    fn owner(node: Box<Node>) -> DevxOwner {
        DevxOwner { context: Box::into_raw(node).cast(), release: Some(push) }
    }

    /// Pushes a token that was not registered. This is for finalizers, which must not release anything themselves.
    pub fn push(self: &Arc<Self>, token: u64) {
        let owner = self.register(token);
        // SAFETY: the owner was made just now, for this one call.
        unsafe { push(owner.context) }
    }

    /// Takes back an owner that nobody took over; its token will not come out.
    ///
    /// # Safety
    /// `context` is the context of an owner from [`ReleaseQueue::register`] whose release was not and will not be called.
    pub unsafe fn cancel(context: *mut c_void) {
        // SAFETY: `register` made the node, and by the contract it was not pushed, so nobody else has it.
        drop(unsafe { Box::from_raw(context.cast::<Node>()) });
    }

    /// Whether nothing is queued, as far as this thread has seen.
    pub fn is_empty(&self) -> bool {
        self.head.load(Relaxed).is_null() && self.pending.lock().unwrap_or_else(PoisonError::into_inner).0.is_null()
    }

    /// Moves released tokens into `tokens`, oldest first; returns how many. The rest stays for the next call.
    pub fn drain(&self, tokens: &mut [u64]) -> usize {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = 0;
        for slot in tokens {
            if pending.0.is_null() {
                pending.0 = self.take_all();
            }
            if pending.0.is_null() {
                break;
            }
            let first = pending.0;
            // SAFETY: a node in `pending` was pushed, so it belongs to the queue, and now to us.
            let node = unsafe { &*first };
            (pending.0, *slot) = (node.next, node.token);
            taken += 1;
            // From here on, its signal may push the node again.
            if node.place.compare_exchange(QUEUED, WITH_SIGNAL, AcqRel, Acquire).is_err() {
                // SAFETY: from a box, and nobody else has it.
                drop(unsafe { Box::from_raw(first) });
            }
        }
        taken
    }

    /// Stops calling `wake`, for a runtime that is shutting down. Pushes still queue up.
    pub fn silence(&self) {
        self.quiet.store(true, Release);
    }

    /// Takes all nodes that were pushed since the last time, oldest first.
    fn take_all(&self) -> *mut Node {
        let mut newest = self.head.swap(null_mut(), Acquire);
        let mut oldest = null_mut();
        while !newest.is_null() {
            // SAFETY: the swap made the list ours.
            let next = unsafe { std::mem::replace(&mut (*newest).next, oldest) };
            oldest = newest;
            newest = next;
        }
        oldest
    }
}

/// Pushes one token any number of times, without allocating. All pushes before the token comes out count as one. Whoever takes
/// the token out after a push sees everything that was done before that push.
pub struct Signal(NonNull<Node>);

// SAFETY: only the place of the node is accessed, which is atomic, and one thread at a time pushes the node.
unsafe impl Send for Signal {}
// SAFETY: as above.
unsafe impl Sync for Signal {}

impl Signal {
    /// The only part of the node that is accessed: another thread may be writing the rest.
    fn place(&self) -> &AtomicU8 {
        // SAFETY: the node lives as long as its signal.
        unsafe { &(*self.0.as_ptr()).place }
    }

    /// Pushes the token, unless it is in the queue already. As harmless as a release.
    pub fn push(&self) {
        if self.place().swap(QUEUED, AcqRel) == WITH_SIGNAL {
            // SAFETY: it was not in the queue, and nobody else puts it there.
            unsafe { push(self.0.as_ptr().cast()) }
        }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        if self.place().swap(ALONE, AcqRel) == WITH_SIGNAL {
            // SAFETY: from a box, and not in the queue.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").finish_non_exhaustive()
    }
}

unsafe extern "C" fn push(context: *mut c_void) {
    let node = context.cast::<Node>();
    // Held beyond the push: after it, the drainer may free the node, and the node's reference to the queue, at any time.
    // SAFETY: an owner's release is called once, so the node is still ours to read.
    let queue = Arc::clone(unsafe { &(*node).queue });
    let mut head = queue.head.load(Relaxed);
    loop {
        // SAFETY: not published yet, so ours alone to write.
        unsafe { (*node).next = head };
        match queue.head.compare_exchange_weak(head, node, AcqRel, Relaxed) {
            Ok(_) => break,
            Err(seen) => head = seen,
        }
    }
    if !queue.quiet.load(Acquire) {
        let woken = caught(|| {
            (queue.wake)();
            Ok(())
        });
        if let Err(error) = woken {
            trace::say(format_args!("the wake of a release queue panicked ({error}); the panic ends here"));
        }
    }
}

impl Drop for ReleaseQueue {
    fn drop(&mut self) {
        // Every node holds the queue, so neither `head` nor `pending` has any left.
        debug_assert!(self.head.load(Relaxed).is_null());
    }
}

impl fmt::Debug for ReleaseQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseQueue").field("quiet", &self.quiet).finish_non_exhaustive()
    }
}
