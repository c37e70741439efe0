//! Our writer, and a consumer as somebody else would write it: by the letter, or breaking it in one way.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use devexchange_core::abi::arrow_async::{ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask};
use devexchange_core::abi::arrow_data::ArrowSchema;
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::types::DEVX_NOT_READY;
use devexchange_core::arrow::asynchronous::{AsyncWriter, Wake};
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::{release_array, release_schema};
use devexchange_core::{Batch, Device, DeviceType, Owner};

use crate::producer::type_of_batches;
use crate::{Rng, explore};

static VALUES: [u8; 16] = [7; 16];

/// What the consumer does within a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// Requests now and then.
    Good,
    /// Requests 0, a negative number, or more than can be counted.
    BadRequest,
    /// Cancels.
    Cancels,
    /// Returns an error, after it extracted the task or not.
    Refuses,
    RefusesExtracted,
    /// Extracts twice.
    ExtractsTwice,
    /// Calls `request` and `cancel` after the release.
    CallsLate,
}

const HABITS: [Habit; 7] = [
    Habit::Good,
    Habit::BadRequest,
    Habit::Cancels,
    Habit::Refuses,
    Habit::RefusesExtracted,
    Habit::ExtractsTwice,
    Habit::CallsLate,
];

/// The batch and how often it was released.
type Made = (i64, Arc<AtomicU32>);

pub(crate) fn make(length: i64) -> (Batch, Arc<AtomicU32>) {
    let released = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&released);
    let buffers: [*const c_void; 2] = [null(), VALUES.as_ptr().cast()];
    let nodes = [NodeDesc { length, null_count: 0, offset: 0, buffers: &buffers }];
    let owner = Owner::on_release(move || {
        count.fetch_add(1, Relaxed);
    });
    // SAFETY: the values are static, and no batch is longer.
    let batch = unsafe { Batch::from_raw_parts(&type_of_batches(), Device::CPU, &nodes, owner) };
    (batch.map_err(|refused| refused.error).unwrap(), released)
}

struct Consumer {
    handler: ArrowAsyncDeviceStreamHandler,
    rng: Rng,
    habit: Habit,
    busy: Cell<bool>,
    schemas: Cell<u32>,
    came: Cell<i64>,
    /// Requested, and not come.
    due: Cell<i64>,
    bad_request: Cell<bool>,
    cancelled: Cell<bool>,
    refused: Cell<bool>,
    ended: Cell<bool>,
    errors: RefCell<Vec<(c_int, String)>>,
    releases: Cell<u32>,
    /// Tasks that are kept, and whether they were extracted.
    tasks: RefCell<Vec<(ArrowAsyncTask, bool)>>,
    arrays: RefCell<Vec<ArrowDeviceArray>>,
    lengths: RefCell<Vec<i64>>,
}

impl Consumer {
    unsafe fn of<'a>(handler: *mut ArrowAsyncDeviceStreamHandler) -> &'a Self {
        // SAFETY: set by `schedule`, which keeps the consumer.
        unsafe { &*(*handler).private_data.cast::<Self>() }
    }

    fn producer(&self) -> *mut ArrowAsyncProducer {
        // The producer writes this field.
        // SAFETY: it is a field of this.
        unsafe { (&raw const self.handler.producer).read_volatile() }
    }

    /// What holds for every callback.
    fn enter(&self, name: &str) {
        assert!(!self.busy.replace(true), "{name} within another callback");
        assert_eq!(self.releases.get(), 0, "{name} after release");
        if name != "release" {
            assert!(!self.refused.get(), "{name} after an error was returned");
            assert!(!self.ended.get() && self.errors.borrow().is_empty(), "{name} after the last word");
            assert!(name == "on_error" || name == "on_schema" || self.schemas.get() == 1, "{name} before the schema");
        }
    }

    fn request(&self, n: i64) {
        if !self.cancelled.get() && !self.bad_request.get() {
            match self.due.get().checked_add(n) {
                Some(sum) if n > 0 => self.due.set(sum),
                _ => self.bad_request.set(true),
            }
        }
        let producer = self.producer();
        // SAFETY: the producer is there until the release, and in quarantine after it.
        unsafe { (*producer).request.unwrap()(producer, n) }
    }

    fn cancel(&self) {
        self.cancelled.set(true);
        let producer = self.producer();
        // SAFETY: as above.
        unsafe { (*producer).cancel.unwrap()(producer) }
    }

    /// What a consumer does of its own accord, within callbacks and between them.
    fn act(&self) {
        if self.schemas.get() == 0 {
            return;
        }
        let over = self.ended.get() || !self.errors.borrow().is_empty() || self.releases.get() > 0;
        match self.rng.below(12) {
            0 if self.habit == Habit::Cancels && !over => self.cancel(),
            1 if self.habit == Habit::BadRequest && !over => {
                self.request(self.rng.choose(&[0, -1, -5, i64::MIN, i64::MAX]));
            }
            2..=4 => self.extract_one(),
            _ if !over => self.request(self.rng.choose(&[1, 1, 2, 4])),
            _ => {}
        }
    }

    fn extract_one(&self) {
        let mut tasks = self.tasks.borrow_mut();
        if tasks.is_empty() {
            return;
        }
        let at = self.rng.below(tasks.len());
        let (mut task, extracted) = tasks[at];
        let again = self.habit == Habit::ExtractsTwice;
        if extracted && !again {
            return;
        }
        tasks[at].1 = true;
        drop(tasks);
        self.extract(&mut task, extracted);
    }

    fn extract(&self, task: &mut ArrowAsyncTask, extracted: bool) {
        let mut array = ArrowDeviceArray::RELEASED;
        let unwanted = self.rng.one_in(4);
        let out = if unwanted { null_mut() } else { &raw mut array };
        // SAFETY: a task of the producer's.
        let code = unsafe { task.extract_data.unwrap()(task, out) };
        if extracted {
            assert_eq!(code, libc::EINVAL, "a second extraction gives nothing");
            assert!(array.array.release.is_none());
            return;
        }
        assert_eq!(code, 0);
        assert_eq!(array.array.release.is_some(), !unwanted);
        if !unwanted {
            self.lengths.borrow_mut().push(array.array.length);
            self.arrays.borrow_mut().push(array);
        }
    }
}

unsafe extern "C" fn on_schema(handler: *mut ArrowAsyncDeviceStreamHandler, schema: *mut ArrowSchema) -> c_int {
    // SAFETY: the writer passes the handler that it was given.
    let consumer = unsafe { Consumer::of(handler) };
    consumer.enter("on_schema");
    assert!(!consumer.producer().is_null());
    consumer.schemas.set(consumer.schemas.get() + 1);
    assert_eq!(consumer.schemas.get(), 1);
    if !consumer.rng.one_in(3) {
        // SAFETY: the consumer's to release; if it forgets, it stays the producer's.
        unsafe { release_schema(schema) };
    }
    let code = if matches!(consumer.habit, Habit::Refuses) && consumer.rng.one_in(3) { 12 } else { 0 };
    if code == 0 {
        consumer.act();
    }
    consumer.refused.set(code != 0);
    consumer.busy.set(false);
    code
}

unsafe extern "C" fn on_next_task(
    handler: *mut ArrowAsyncDeviceStreamHandler,
    task: *mut ArrowAsyncTask,
    _metadata: *const c_char,
) -> c_int {
    // SAFETY: as above.
    let consumer = unsafe { Consumer::of(handler) };
    consumer.enter("on_next_task");
    let refuses = matches!(consumer.habit, Habit::Refuses | Habit::RefusesExtracted) && consumer.rng.one_in(4);
    if task.is_null() {
        consumer.ended.set(true);
    } else {
        consumer.came.set(consumer.came.get() + 1);
        consumer.due.set(consumer.due.get() - 1);
        assert!(consumer.due.get() >= 0, "more than requested");
        // SAFETY: valid during the call, and may be copied.
        let mut copy = unsafe { *task };
        if refuses && consumer.habit == Habit::RefusesExtracted {
            consumer.extract(&mut copy, false);
            consumer.tasks.borrow_mut().push((copy, true));
        } else if refuses {
            // Not extracted, and given back with the error: what is extracted later gives nothing.
            consumer.tasks.borrow_mut().push((copy, true));
        } else if consumer.rng.one_in(3) {
            consumer.extract(&mut copy, false);
            consumer.tasks.borrow_mut().push((copy, true));
        } else {
            consumer.tasks.borrow_mut().push((copy, false));
        }
        if !refuses {
            consumer.act();
        }
    }
    consumer.refused.set(refuses);
    consumer.busy.set(false);
    if refuses { 13 } else { 0 }
}

unsafe extern "C" fn on_error(
    handler: *mut ArrowAsyncDeviceStreamHandler,
    code: c_int,
    message: *const c_char,
    _metadata: *const c_char,
) {
    // SAFETY: as above.
    let consumer = unsafe { Consumer::of(handler) };
    consumer.enter("on_error");
    assert!(!consumer.cancelled.get(), "on_error after cancel");
    // SAFETY: the writer gives a text.
    let message = unsafe { CStr::from_ptr(message) }.to_str().unwrap().to_owned();
    consumer.errors.borrow_mut().push((code, message));
    consumer.busy.set(false);
}

unsafe extern "C" fn release(handler: *mut ArrowAsyncDeviceStreamHandler) {
    // SAFETY: as above.
    let consumer = unsafe { Consumer::of(handler) };
    consumer.enter("release");
    consumer.releases.set(1);
    // SAFETY: the consumer's own struct.
    unsafe { (*handler).release = None };
    consumer.busy.set(false);
}

/// What the user of the writer does.
struct User {
    writer: RefCell<Option<Arc<AsyncWriter>>>,
    rng: Rng,
    in_wake: usize,
    depth: Cell<u32>,
    started: Cell<bool>,
    /// Sent with success, and all that were made.
    sent: RefCell<Vec<i64>>,
    made: RefCell<Vec<Made>>,
    failed: Cell<bool>,
    finished: Cell<bool>,
}

struct Woken(*const User);
// SAFETY: the schedules run on one thread.
unsafe impl Send for Woken {}
// SAFETY: as above.
unsafe impl Sync for Woken {}

impl Woken {
    fn wake(&self) {
        // SAFETY: the user outlives the writer.
        let user = unsafe { &*self.0 };
        if user.in_wake > 0 && user.depth.get() < 3 && user.rng.one_in(user.in_wake) {
            user.depth.set(user.depth.get() + 1);
            user.act();
            user.depth.set(user.depth.get() - 1);
        }
    }
}

impl User {
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

    fn send(&self, writer: &AsyncWriter) -> bool {
        let length = self.made.borrow().len() as i64 % 16;
        let (batch, released) = make(length);
        self.made.borrow_mut().push((length, released));
        let demand = writer.demand();
        match writer.try_send(batch, None) {
            Ok(()) => {
                assert!(self.in_wake > 0 || demand > 0);
                self.sent.borrow_mut().push(length);
                true
            }
            Err(refused) => {
                assert_eq!(refused.returned.length(), length, "the batch is given back");
                if refused.error.status() == DEVX_NOT_READY {
                    assert!(self.in_wake > 0 || demand == 0);
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
    let habit = rng.choose(&HABITS);
    let place = Box::into_raw(Box::new(Consumer {
        handler: ArrowAsyncDeviceStreamHandler {
            on_schema: Some(on_schema),
            on_next_task: Some(on_next_task),
            on_error: Some(on_error),
            release: Some(release),
            producer: null_mut(),
            private_data: null_mut(),
        },
        rng: Rng::new(seed ^ 0x5678),
        habit,
        busy: Cell::default(),
        schemas: Cell::default(),
        came: Cell::default(),
        due: Cell::default(),
        bad_request: Cell::default(),
        cancelled: Cell::default(),
        refused: Cell::default(),
        ended: Cell::default(),
        errors: RefCell::default(),
        releases: Cell::default(),
        tasks: RefCell::default(),
        arrays: RefCell::default(),
        lengths: RefCell::default(),
    }));
    // SAFETY: made just now, and taken back at the end.
    unsafe { (*place).handler.private_data = place.cast() };
    // SAFETY: as above.
    let consumer = unsafe { &*place };
    let user = Box::new(User {
        writer: RefCell::default(),
        rng: Rng::new(seed ^ 0xdef),
        in_wake: rng.choose(&[0, 1, 4]),
        depth: Cell::default(),
        started: Cell::default(),
        sent: RefCell::default(),
        made: RefCell::default(),
        failed: Cell::default(),
        finished: Cell::default(),
    });
    let woken = Woken(&raw const *user);
    // SAFETY: the handler stays until the end.
    let handler = unsafe { &raw mut (*place).handler };
    // SAFETY: as above.
    let writer =
        unsafe { AsyncWriter::new(handler, DeviceType::CPU, None, Some(Wake::new(move || woken.wake()).unwrap())) }
            .unwrap();
    user.writer.replace(Some(Arc::new(writer)));

    let stops_at = if rng.one_in(4) { rng.below(20) } else { usize::MAX };
    for turn in 0..50 {
        if rng.one_in(2) {
            user.act();
        } else if turn < stops_at {
            consumer.act();
        }
    }

    // Whoever still has a writer ends it, in one way or the other.
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
    if habit == Habit::CallsLate && consumer.schemas.get() == 1 {
        consumer.request(1);
        consumer.cancel();
        consumer.request(-1);
    }

    // What was sent can be extracted after the end, and only once.
    let tasks: Vec<_> = consumer.tasks.take();
    for (mut task, extracted) in tasks {
        consumer.extract(&mut task, extracted);
        consumer.extract(&mut task, true);
    }
    let mut lengths = consumer.lengths.take();
    lengths.sort_unstable();
    assert!(lengths.len() as i64 <= consumer.came.get());
    for mut array in consumer.arrays.take() {
        // SAFETY: extracted, and ours.
        unsafe { release_array(&mut array.array) };
    }
    for (length, released) in user.made.borrow().iter() {
        assert_eq!(released.load(Relaxed), 1, "batch {length} is released once");
    }
    // SAFETY: made above; the writer is gone, and the late calls were made.
    drop(unsafe { Box::from_raw(place) });
}
