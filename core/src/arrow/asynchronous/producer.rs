//! The producer struct that a consumer sees: a small block of memory with `request` and `cancel`.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};

use super::bell::{Belled, Bells, Ring};
use super::writing::Writing;
use super::{MetadataBlock, Wake, shielded};
use crate::abi::arrow_async::ArrowAsyncProducer;
use crate::error::Result;
use crate::memory::{Slab, TailSize};

/// How many producers are kept after their stream has ended, the latest ones. The contract forbids a consumer to call
/// `request` or `cancel` then, but some do: with these producers, such a call does nothing.
pub const QUARANTINE: usize = 256;

static ENDED: Mutex<Ended> = Mutex::new(Ended { blocks: [const { None }; QUARANTINE], oldest: 0 });

/// A ring of places that exist from the start, so that keeping a producer needs no memory.
struct Ended {
    blocks: [Option<Slab<Block>>; QUARANTINE],
    oldest: usize,
}

impl Ended {
    /// Puts a block in the place of the oldest one, which is returned.
    fn push(&mut self, block: Slab<Block>) -> Option<Slab<Block>> {
        let place = self.blocks.get_mut(self.oldest)?;
        self.oldest = (self.oldest + 1) % QUARANTINE;
        place.replace(block)
    }
}

/// The state that writer and consumer share. The consumer holds no reference: the writer does, and afterwards the
/// quarantine.
pub(super) struct Block {
    producer: UnsafeCell<ArrowAsyncProducer>,
    pub(super) state: Belled<Writing>,
    /// The bytes that `additional_metadata` points to.
    _metadata: Option<MetadataBlock>,
}

// SAFETY: the struct is written once, before its address is known to anybody; the state synchronises itself.
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

    /// The struct for the consumer.
    pub(super) fn producer(&self) -> *mut ArrowAsyncProducer {
        self.producer.get()
    }

    /// Keeps the block for a while after the end of its stream.
    pub(super) fn retire(block: Slab<Self>) {
        let oldest = ENDED.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        // Dropped after the lock is released.
        drop(oldest);
    }

    /// Runs a call from the consumer. It only changes the state and wakes the user; it never calls back into the
    /// consumer.
    ///
    /// # Safety
    /// `producer` is a producer of this library that still exists.
    unsafe fn call(producer: *mut ArrowAsyncProducer, step: impl FnOnce(&mut Writing)) {
        // SAFETY: the caller's contract.
        let raw = unsafe { (*producer).private_data };
        // SAFETY: this is the address that `new` wrote, and the block still exists; the reference stays with the
        // writer.
        let block = ManuallyDrop::new(unsafe { Slab::<Self>::from_raw(raw) });
        shielded((), || {
            let ring = block.header().state.turn(|writing, bells| {
                step(writing);
                ring(writing, bells)
            });
            // The wake callback may drop the block.
            if let Some(ring) = ring {
                ring.tell();
            }
        });
    }
}

/// Returns whom to tell, if there is something new for the user.
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Whether a producer is still there shows from outside only by a use after free.
    #[test]
    fn the_latest_producers_are_kept_and_the_oldest_goes() {
        let mut ended = Ended { blocks: [const { None }; QUARANTINE], oldest: 0 };
        let mut kept = VecDeque::new();
        for n in 0..3 * QUARANTINE {
            let block = Block::new(1, None, None).unwrap();
            kept.push_back(block.as_raw());
            let gone = ended.push(block).map(|block| block.as_raw());
            assert_eq!(gone, if n < QUARANTINE { None } else { kept.pop_front() }, "after {n} others");
        }
    }
}
