//! Our reader and our writer, each with a user that can do anything at any time.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::Poll;

use devexchange_core::DeviceType;
use devexchange_core::abi::types::DEVX_NOT_READY;
use devexchange_core::arrow::asynchronous::{AsyncReader, AsyncWriter, ReaderOptions};

use crate::batches::{make, type_of_batches};
use crate::wake::{InWake, Woken, wake_of};
use crate::{Rng, STEPS, explore};

struct World {
    reader: RefCell<Option<Arc<AsyncReader>>>,
    writer: RefCell<Option<Arc<AsyncWriter>>>,
    rng: Rng,
    in_wake: InWake,
    manual: bool,
    total: usize,
    fails: bool,
    sent: RefCell<Vec<Arc<AtomicU32>>>,
    seen: RefCell<Vec<i64>>,
    errors: RefCell<Vec<String>>,
    ended: Cell<bool>,
    cancelled: Cell<bool>,
    complete: Cell<bool>,
}

impl Woken for World {
    fn rng(&self) -> &Rng {
        &self.rng
    }

    fn in_wake(&self) -> &InWake {
        &self.in_wake
    }

    fn act(&self) {
        self.step(true);
    }
}

impl World {
    /// One of the two does something. Without `mischief`, both only work towards the end.
    fn step(&self, mischief: bool) -> bool {
        if self.rng.one_in(2) { self.read(mischief) } else { self.write(mischief) }
    }

    fn read(&self, mischief: bool) -> bool {
        let Some(reader) = self.reader.borrow().clone() else { return false };
        match self.rng.below(if mischief { 40 } else { 20 }) {
            39 => {
                self.cancelled.set(true);
                let given_up = self.reader.borrow_mut().take();
                drop(given_up);
            }
            38 => {
                self.cancelled.set(true);
                reader.cancel();
            }
            0..8 if self.manual => reader.request(self.rng.choose(&[1, 2, 3])).unwrap(),
            _ => match reader.try_batch() {
                Poll::Pending => return false,
                Poll::Ready(None) => self.ended.set(true),
                Poll::Ready(Some(Ok((batch, metadata)))) => {
                    assert_eq!(metadata.is_some(), batch.length() % 2 == 1);
                    self.seen.borrow_mut().push(batch.length());
                }
                Poll::Ready(Some(Err(error))) => self.errors.borrow_mut().push(error.message().to_owned()),
            },
        }
        true
    }

    fn write(&self, mischief: bool) -> bool {
        let Some(writer) = self.writer.borrow().clone() else { return false };
        if mischief && self.rng.one_in(60) {
            let given_up = self.writer.borrow_mut().take();
            drop(given_up);
            return true;
        }
        let sent = self.sent.borrow().len();
        if sent == 0 && writer.start(&type_of_batches()).is_ok() {
            return true;
        }
        if sent == self.total {
            let ended = if self.fails { writer.fail(5, "no luck", None) } else { writer.finish() };
            self.complete.set(self.complete.get() || ended.is_ok());
            return ended.is_ok();
        }
        if !matches!(writer.try_ready(), Poll::Ready(Ok(()))) {
            return false;
        }
        let (batch, released) = make(sent as i64);
        self.sent.borrow_mut().push(released);
        let metadata = devexchange_core::arrow::metadata::encode(&[(b"key", b"value")]).unwrap();
        match writer.try_send(batch, (sent % 2 == 1).then_some(&metadata)) {
            Ok(()) => true,
            Err(refused) => {
                assert_ne!(refused.error.status(), DEVX_NOT_READY, "it was ready");
                self.sent.borrow_mut().pop();
                false
            }
        }
    }
}

#[test]
fn reader_against_writer() {
    type_of_batches();
    explore("both", schedule);
}

fn schedule(seed: u64) {
    let rng = Rng::new(seed);
    let world = Box::new(World {
        reader: RefCell::default(),
        writer: RefCell::default(),
        rng: Rng::new(seed ^ 0x777),
        in_wake: InWake::new(rng.choose(&[0, 1, 3])),
        manual: rng.one_in(2),
        total: rng.below(8) + 1,
        fails: rng.one_in(4),
        sent: RefCell::default(),
        seen: RefCell::default(),
        errors: RefCell::default(),
        ended: Cell::default(),
        cancelled: Cell::default(),
        complete: Cell::default(),
    });
    // SAFETY: the world outlives both sides.
    let (reads, writes) = unsafe { (wake_of(&raw const *world), wake_of(&raw const *world)) };
    let options = ReaderOptions { limit: if world.manual { 0 } else { rng.choose(&[1, 3]) }, abi_h_metadata: true };
    let reader = AsyncReader::new(options, Some(reads)).unwrap();
    let handler = reader.handler().unwrap();
    world.reader.replace(Some(Arc::new(reader)));
    // SAFETY: just handed out, for this writer.
    let writer = unsafe { AsyncWriter::new(handler, DeviceType::CPU, None, Some(writes)) }.unwrap();
    world.writer.replace(Some(Arc::new(writer)));

    for _ in 0..40 {
        world.step(true);
    }
    let both_there = world.reader.borrow().is_some() && world.writer.borrow().is_some();
    if both_there && rng.one_in(2) {
        let mut turns = 0;
        while !world.ended.get() {
            // From here on only the wakes can do mischief.
            world.step(false);
            turns += 1;
            assert!(turns < STEPS, "there is no end to it");
            if world.reader.borrow().is_none() || world.writer.borrow().is_none() {
                break;
            }
        }
    }
    if world.ended.get() && !world.cancelled.get() && world.complete.get() {
        assert_eq!(world.errors.borrow().len(), usize::from(world.fails), "{:?}", world.errors);
        assert_eq!(world.seen.borrow().len(), world.total);
    }
    let seen = world.seen.borrow().clone();
    assert!(!world.in_wake.is_never() || seen.iter().enumerate().all(|(at, length)| at as i64 == *length), "{seen:?}");
    assert!(world.errors.borrow().len() <= 1, "{:?}", world.errors);
    if rng.one_in(2) {
        world.reader.take();
        world.writer.take();
    } else {
        world.writer.take();
        world.reader.take();
    }
    for released in world.sent.borrow().iter() {
        assert_eq!(released.load(Relaxed), 1, "a batch is released once");
    }
}
