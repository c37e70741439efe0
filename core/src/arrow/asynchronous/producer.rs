//! The producer as a consumer sees it: a small block of memory with `request` and `cancel`.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};

use super::bell::{Belled, Bells, Ring};
use super::writing::Writing;
use super::{MetadataBlock, Wake, shielded};
use crate::abi::arrow_async::ArrowAsyncProducer;
use crate::error::Result;
use crate::memory::{Slab, TailSize};

/// So many producers are kept after their stream has ended, the latest ones. The contract forbids a consumer to call
/// `request` or `cancel` then, but some do: of these producers, such a call does nothing.
pub const QUARANTINE: usize = 256;

static ENDED: Mutex<Ended> = Mutex::new(Ended { blocks: [const { None }; QUARANTINE], oldest: 0 });

/// A ring that is there from the start: to keep a producer needs no memory.
struct Ended {
    blocks: [Option<Slab<Block>>; QUARANTINE],
    oldest: usize,
}

impl Ended {
    /// Takes a block in place of the oldest one.
    fn push(&mut self, block: Slab<Block>) -> Option<Slab<Block>> {
        let place = self.blocks.get_mut(self.oldest)?;
        self.oldest = (self.oldest + 1) % QUARANTINE;
        place.replace(block)
    }
}

/// What writer and consumer share. The consumer holds no reference: the writer does, and then the quarantine.
pub(super) struct Block {
    producer: UnsafeCell<ArrowAsyncProducer>,
    pub(super) state: Belled<Writing>,
    /// What `additional_metadata` points to.
    _metadata: Option<MetadataBlock>,
}

// SAFETY: the struct is written once, before anybody is told where it is; the state is synchronised by itself.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub(super) fn new(device_type: i32, metadata: Option<MetadataBlock>, wake: Option<Wake>) -> Result<Slab<Self>> {
        let additional_metadata = metadata.as_ref().map_or(std::ptr::null(), |block| block.as_bytes().as_ptr().cast());
        let room = Slab::room(TailSize::default())?;
        let private_data = room.as_raw();
        Ok(room.fill(Self {
            producer: UnsafeCell::new(ArrowAsyncProducer {
                device_type,
                request: Some(request),
                cancel: Some(cancel),
                additional_metadata,
                private_data,
            }),
            state: Belled::new(Writing::new(), wake),
            _metadata: metadata,
        }))
    }

    /// For the consumer.
    pub(super) fn producer(&self) -> *mut ArrowAsyncProducer {
        self.producer.get()
    }

    /// Keeps the block for a while.
    pub(super) fn retire(block: Slab<Self>) {
        let oldest = ENDED.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        // Not under the lock.
        drop(oldest);
    }

    /// Runs a call of the consumer's. It only changes the state and wakes the user: no callback comes from within it.
    ///
    /// # Safety
    /// `producer` is one of ours that is not gone.
    unsafe fn call(producer: *mut ArrowAsyncProducer, step: impl FnOnce(&mut Writing)) {
        // SAFETY: the caller's contract.
        let raw = unsafe { (*producer).private_data };
        // SAFETY: the address that `new` wrote, of a block that is not gone; the reference stays the writer's.
        let block = ManuallyDrop::new(unsafe { Slab::<Self>::from_raw(raw) });
        shielded((), || {
            let ring = block.header().state.turn(|writing, bells| {
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
