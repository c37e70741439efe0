//! Our writer, with a user that can do anything at any time, against a consumer that may break the contract.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use devexchange_core::DeviceType;
use devexchange_core::abi::types::DEVX_NOT_READY;
use devexchange_core::arrow::asynchronous::AsyncWriter;
use devexchange_core::arrow::release_array;

use crate::batches::{make, type_of_batches};
use crate::consumer::{Consumer, HABITS, Habit};
use crate::wake::{InWake, Woken, wake_of};
use crate::{Rng, explore};

/// The length of a batch, and the number of its releases.
type Made = (i64, Arc<AtomicU32>);

/// What the user of the writer does.
struct User {
    writer: RefCell<Option<Arc<AsyncWriter>>>,
    rng: Rng,
    in_wake: InWake,
    started: Cell<bool>,
    /// The batches that were sent successfully, and all that were made.
    sent: RefCell<Vec<i64>>,
    made: RefCell<Vec<Made>>,
    failed: Cell<bool>,
    finished: Cell<bool>,
}

impl Woken for User {
    fn rng(&self) -> &Rng {
        &self.rng
    }

    fn in_wake(&self) -> &InWake {
        &self.in_wake
    }

    fn act(&self) {
        let Some(writer) = self.writer.borrow().clone() else { return };
        match self.rng.below(40) {
            0 => {
                let given_up = self.writer.borrow_mut().take();
                drop(given_up);
            }
            1 if self.started.get() => {
                self.finished.set(self.finished.get() || writer.finish().is_ok());
            }
            2 => self.failed.set(self.failed.get() || writer.fail(4, "no \0 luck", None).is_ok()),
            3 => {
                let _ = writer.try_ready();
            }
            4..=9 => {
                let started = writer.start(&type_of_batches());
                assert!(!(started.is_ok() && self.started.get()), "started twice");
                self.started.set(self.started.get() || started.is_ok());
            }
            _ => {
                self.send(&writer);
            }
        }
    }
}

impl User {
    fn send(&self, writer: &AsyncWriter) -> bool {
        let length = self.made.borrow().len() as i64 % 16;
        let (batch, released) = make(length);
        self.made.borrow_mut().push((length, released));
        let demand = writer.demand();
        match writer.try_send(batch, None) {
            Ok(()) => {
                assert!(!self.in_wake.is_never() || demand > 0);
                self.sent.borrow_mut().push(length);
                true
            }
            Err(refused) => {
                assert_eq!(refused.returned.length(), length, "the batch is given back");
                if refused.error.status() == DEVX_NOT_READY {
                    assert!(!self.in_wake.is_never() || demand == 0);
                }
                false
            }
        }
    }
}

#[test]
fn writer_against_any_consumer() {
    type_of_batches();
    explore("writer", schedule);
}

fn schedule(seed: u64) {
    let rng = Rng::new(seed);
    let habit = rng.choose(HABITS);
    let place = Consumer::new(Rng::new(seed ^ 0x5678), habit);
    // SAFETY: just made, and taken back at the end.
    let consumer = unsafe { &*place };
    let user = Box::new(User {
        writer: RefCell::default(),
        rng: Rng::new(seed ^ 0xdef),
        in_wake: InWake::new(rng.choose(&[0, 1, 4])),
        started: Cell::default(),
        sent: RefCell::default(),
        made: RefCell::default(),
        failed: Cell::default(),
        finished: Cell::default(),
    });
    // SAFETY: the handler stays until the end.
    let handler = unsafe { &raw mut (*place).handler };
    // SAFETY: the user outlives the writer.
    let wake = unsafe { wake_of(&raw const *user) };
    // SAFETY: as for the handler.
    let writer = unsafe { AsyncWriter::new(handler, DeviceType::CPU, None, Some(wake)) }.unwrap();
    user.writer.replace(Some(Arc::new(writer)));

    let stops_at = if rng.one_in(4) { rng.below(20) } else { usize::MAX };
    for turn in 0..50 {
        if rng.one_in(2) {
            user.act();
        } else if turn < stops_at {
            consumer.act();
        }
    }

    // A user that still has a writer ends it, in one way or the other.
    let writer = user.writer.take();
    if let Some(writer) = &writer {
        let _ = writer.try_ready();
        let over = consumer.releases.get() == 1;
        match rng.below(3) {
            0 if user.started.get() => {
                let result = writer.finish();
                assert!(result.is_ok() || over || consumer.refused.get(), "{result:?}");
            }
            1 => {
                let result = writer.fail(4, "no luck", None);
                assert!(result.is_ok() || over, "{result:?}");
            }
            _ => {}
        }
    }
    let unended = !consumer.ended.get()
        && !consumer.cancelled.get()
        && !consumer.refused.get()
        && consumer.errors.borrow().is_empty()
        && consumer.releases.get() == 0;
    drop(writer);
    assert_eq!(consumer.releases.get(), 1, "released once");
    assert!(!unended || consumer.errors.borrow().iter().any(|(code, _)| *code == libc::EPIPE), "the end is told");
    if consumer.bad_request.get() && !consumer.cancelled.get() && !consumer.refused.get() && !consumer.ended.get() {
        let errors = consumer.errors.borrow();
        let (code, _) = errors.first().expect("a bad request is an error");
        assert!(*code == libc::EINVAL || user.failed.get() && *code == 4 || *code == libc::EPIPE, "{errors:?}");
    }
    let cut_short = consumer.cancelled.get() || consumer.refused.get();
    assert!(!user.finished.get() || consumer.ended.get() || cut_short, "an end that was taken is told");
    if habit == Habit::CallsLate && consumer.schemas.get() == 1 {
        consumer.request(1);
        consumer.cancel();
        consumer.request(-1);
    }

    // Sent batches can be extracted after the end, but only once.
    let tasks: Vec<_> = consumer.tasks.take();
    for (mut task, extracted) in tasks {
        consumer.extract(&mut task, extracted);
        consumer.extract(&mut task, true);
    }
    let lengths = consumer.lengths.take();
    assert!(lengths.len() as i64 <= consumer.came.get());
    if !consumer.refused.get() {
        let mut sent = user.sent.take();
        for length in lengths {
            let at = sent.iter().position(|sent| *sent == length).expect("what is extracted was sent");
            sent.remove(at);
        }
    }
    for mut array in consumer.arrays.take() {
        // SAFETY: extracted, so owned here.
        unsafe { release_array(&mut array.array) };
    }
    for (length, released) in user.made.borrow().iter() {
        assert_eq!(released.load(Relaxed), 1, "batch {length} is released once");
    }
    // SAFETY: made above; the writer is gone, and the late calls were made.
    drop(unsafe { Box::from_raw(place) });
}
