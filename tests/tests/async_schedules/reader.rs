//! Our reader, with a user that can do anything at any time, against a producer that may break the contract.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;

use devexchange_core::Batch;
use devexchange_core::abi::types::DEVX_CLOSED;
use devexchange_core::arrow::asynchronous::{AsyncReader, ReaderOptions};

use crate::batches::type_of_batches;
use crate::producer::{FAULTS, Fault, Producer};
use crate::wake::{InWake, Woken, wake_of};
use crate::{Rng, STEPS, explore};

/// What the user of the reader does and sees.
struct User {
    reader: RefCell<Option<Arc<AsyncReader>>>,
    rng: Rng,
    manual: bool,
    cancels: bool,
    in_wake: InWake,
    cancelled: Cell<bool>,
    kept: RefCell<Vec<Batch>>,
    seen: RefCell<Vec<i64>>,
    errors: Cell<u32>,
    ended: Cell<bool>,
}

impl Woken for User {
    fn rng(&self) -> &Rng {
        &self.rng
    }

    fn in_wake(&self) -> &InWake {
        &self.in_wake
    }

    fn act(&self) {
        let Some(reader) = self.reader() else { return };
        match self.rng.below(24) {
            0 if self.cancels => {
                self.cancelled.set(true);
                reader.cancel();
            }
            1 if self.cancels => {
                self.cancelled.set(true);
                let given_up = self.reader.borrow_mut().take();
                drop(given_up);
            }
            2..=8 if self.manual => reader.request(self.rng.choose(&[1, 1, 2, 3])).unwrap(),
            9 => assert!(reader.request(self.rng.choose(&[0, -1, i64::MIN])).is_err()),
            10 => {
                // An error before the schema is reported only to a caller that asks for the schema.
                if matches!(reader.try_schema(), Poll::Ready(Err(error)) if error.status() != DEVX_CLOSED) {
                    self.errors.set(1);
                }
            }
            11 => self.kept.borrow_mut().clear(),
            _ => {
                self.take(&reader);
            }
        }
    }
}

impl User {
    fn reader(&self) -> Option<Arc<AsyncReader>> {
        self.reader.borrow().clone()
    }

    /// Takes what has come. Returns whether there was something.
    fn take(&self, reader: &AsyncReader) -> bool {
        match reader.try_batch() {
            Poll::Pending => false,
            Poll::Ready(None) => {
                self.ended.set(true);
                false
            }
            Poll::Ready(Some(Ok((batch, _)))) => {
                // A batch that was taken within a callback of this very call is recorded first.
                if self.in_wake.is_never() {
                    assert!(!self.ended.get() && self.errors.get() == 0, "a batch after the end");
                }
                self.seen.borrow_mut().push(batch.length());
                assert_eq!(batch.root().values::<u8>().unwrap()[0], 7);
                self.kept.borrow_mut().push(batch);
                true
            }
            Poll::Ready(Some(Err(error))) => {
                assert_ne!(error.message(), "");
                self.errors.set(self.errors.get() + 1);
                true
            }
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    done: u32,
    told: u32,
    clean: u32,
    stopped: u32,
    cancelled: u32,
}

#[test]
fn reader_against_any_producer() {
    let tally: RefCell<BTreeMap<Fault, Tally>> = RefCell::default();
    type_of_batches();
    explore("reader", |seed| schedule(seed, &mut tally.borrow_mut()));
    if std::env::var_os("DEVX_ASYNC_SEED").is_some() || std::env::var_os("DEVX_ASYNC_SCHEDULES").is_some() {
        return;
    }
    for fault in FAULTS {
        let tally = tally.borrow();
        let Tally { done, told, clean, stopped, cancelled } = tally[fault];
        assert!(done > 50 || *fault == Fault::None, "{fault:?} was hardly done: {:?}", tally[fault]);
        assert!(
            told + clean > 50 && stopped > 50 && cancelled > 50,
            "{fault:?} was hardly explored: {:?}",
            tally[fault]
        );
    }
}

fn schedule(seed: u64, tally: &mut BTreeMap<Fault, Tally>) {
    let rng = Rng::new(seed);
    let fault = rng.choose(FAULTS);
    let user = Box::new(User {
        reader: RefCell::default(),
        rng: Rng::new(seed ^ 0xabcd),
        manual: rng.one_in(2),
        cancels: rng.one_in(3),
        in_wake: InWake::new(rng.choose(&[0, 1, 4])),
        cancelled: Cell::default(),
        kept: RefCell::default(),
        seen: RefCell::default(),
        errors: Cell::default(),
        ended: Cell::default(),
    });
    let options =
        ReaderOptions { limit: if user.manual { 0 } else { rng.choose(&[1, 2, 5]) }, abi_h_metadata: rng.one_in(2) };
    // SAFETY: the user outlives the reader.
    let wake = unsafe { wake_of(&raw const *user) };
    let reader = AsyncReader::new(options, Some(wake)).unwrap();
    let handler = reader.handler().unwrap();
    assert!(reader.handler().is_err());
    user.reader.replace(Some(Arc::new(reader)));
    let producer = Producer::new(handler, Rng::new(seed ^ 0x1234), fault, rng.below(7) + 1, rng.one_in(5));
    // A producer that stops does so for good.
    let stops_at = if rng.one_in(4) { rng.below(14) } else { usize::MAX };
    let reads_on = rng.one_in(2);

    let mut steps = 0;
    let mut idle = 0;
    for turn in 0.. {
        assert!(turn < STEPS, "there is no end to it");
        let produces = rng.one_in(2);
        if produces && steps < stops_at {
            steps += usize::from(producer.step());
        } else if turn < 30 {
            user.act();
        }
        // From then on a user that still reads takes everything that comes.
        if turn >= 30 {
            let Some(reader) = user.reader().filter(|_| reads_on) else { break };
            let _ = reader.request(1).map_err(|error| panic!("{error}"));
            let took = user.take(&reader);
            let stepped = steps < stops_at && producer.step();
            steps += usize::from(stepped);
            idle = if took || stepped { 0 } else { idle + 1 };
            if idle > 20 {
                break;
            }
        }
    }

    let read_all = user.reader().is_some() && reads_on && stops_at == usize::MAX;
    if read_all {
        assert!(producer.is_over(), "a producer that moves releases: {fault:?} idle {idle}");
        assert!(user.ended.get(), "a producer that moves comes to an end");
        if user.reader().is_some() {
            producer.after_release();
        }
    }
    assert!(user.errors.get() <= 1, "an error is told once");
    assert!(user.seen.borrow().is_sorted_by(|a, b| a < b) || !user.in_wake.is_never(), "in order: {:?}", user.seen);
    let entry = tally.entry(fault).or_default();
    entry.done += u32::from(producer.has_done_it());
    if user.cancelled.get() {
        entry.cancelled += 1;
    } else if stops_at != usize::MAX {
        entry.stopped += 1;
    } else if read_all {
        let expected = producer.has_done_it() && fault.is_told() || producer.fails;
        let nested = fault == Fault::TaskInRequest;
        if !nested {
            assert_eq!(user.errors.get() == 1, expected, "{fault:?} told: {}", user.errors.get());
        }
        if user.errors.get() == 0 {
            entry.clean += 1;
            assert!(user.seen.borrow().len() >= producer.total, "all batches come");
        } else {
            entry.told += 1;
        }
    }

    // The remaining sides are dropped, in any order; the owner of a stopped producer ends it.
    let reader_first = rng.one_in(2);
    if reader_first {
        user.reader.take();
        producer.check_tasks();
    }
    if !producer.is_over() {
        producer.release();
    }
    user.reader.take();
    producer.check_tasks();
    let kept = user.kept.take();
    producer.check_arrays(true);
    drop(kept);
    producer.check_arrays(false);
}
