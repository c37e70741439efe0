//! The producer as a consumer sees it: a small block of memory with `request` and `cancel`.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::bell::{Belled, Bells, Ring, Wake};
use super::shielded;
use super::writing::Writing;
use crate::abi::arrow_async::ArrowAsyncProducer;

/// So many producers are kept after their stream has ended, the latest ones. The contract forbids a consumer to call
/// `request` or `cancel` then, but some do: of these producers, such a call does nothing.
pub const QUARANTINE: usize = 256;

static ENDED: Mutex<VecDeque<Arc<Block>>> = Mutex::new(VecDeque::new());

/// What writer and consumer share. The consumer holds no reference: the writer does, and then the quarantine.
pub(super) struct Block {
    producer: UnsafeCell<ArrowAsyncProducer>,
    pub(super) state: Belled<Writing>,
    /// What `additional_metadata` points to.
    _metadata: Option<Box<[u8]>>,
}

// SAFETY: the struct is written once, before anybody is told where it is; the state is synchronised by itself.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub(super) fn new(device_type: i32, metadata: Option<Box<[u8]>>, wake: Option<Wake>) -> Arc<Self> {
        let additional_metadata = metadata.as_ref().map_or(std::ptr::null(), |block| block.as_ptr().cast());
        Arc::new_cyclic(|block: &Weak<Self>| Self {
            producer: UnsafeCell::new(ArrowAsyncProducer {
                device_type,
                request: Some(request),
                cancel: Some(cancel),
                additional_metadata,
                private_data: block.as_ptr().cast_mut().cast(),
            }),
            state: Belled::new(Writing::new(), wake),
            _metadata: metadata,
        })
    }

    /// For the consumer.
    pub(super) fn producer(&self) -> *mut ArrowAsyncProducer {
        self.producer.get()
    }

    /// Keeps the block for a while.
    pub(super) fn retire(self: &Arc<Self>) {
        let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = if ended.len() < QUARANTINE { None } else { ended.pop_front() };
        ended.push_back(Arc::clone(self));
        drop(ended);
        drop(oldest);
    }

    /// Runs a call of the consumer's. It only changes the state and wakes the user: no callback comes from within it.
    ///
    /// # Safety
    /// `producer` is one of ours that is not gone.
    unsafe fn call(producer: *mut ArrowAsyncProducer, step: impl FnOnce(&mut Writing)) {
        // SAFETY: the caller's contract.
        let block = unsafe { (*producer).private_data }.cast::<Self>().cast_const();
        shielded((), || {
            // SAFETY: made by `new`, and not gone.
            let ring = unsafe { &*block }.state.turn(|writing, bells| {
                step(writing);
                ring(writing, bells)
            });
            // The block may go within the wake callback.
            if let Some(ring) = ring {
                ring.tell();
            }
        });
    }
}

/// Tells the user, if there is something to tell.
pub(super) fn ring(writing: &mut Writing, bells: &mut Bells) -> Option<Ring> {
    if writing.news() { bells.ring() } else { None }
}

unsafe extern "C" fn request(producer: *mut ArrowAsyncProducer, n: i64) {
    // SAFETY: a consumer passes the producer that it was given.
    unsafe { Block::call(producer, |writing| writing.request(n)) }
}

unsafe extern "C" fn cancel(producer: *mut ArrowAsyncProducer) {
    // SAFETY: a consumer passes the producer that it was given.
    unsafe { Block::call(producer, Writing::cancel) }
}
