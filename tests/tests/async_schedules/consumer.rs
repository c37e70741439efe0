//! A consumer as somebody else would write it: correct, or breaking the contract in one way.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

use devexchange_core::abi::arrow_async::{ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask};
use devexchange_core::abi::arrow_data::ArrowSchema;
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::arrow::release_schema;

use crate::Rng;

listed! {
    /// What the consumer does within a callback.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Habit in HABITS {
        /// Makes valid requests from time to time.
        Good,
        /// Requests 0, a negative number, or more than can be counted.
        BadRequest,
        /// Cancels.
        Cancels,
        /// Returns an error, whether or not it extracted the task.
        Refuses,
        RefusesExtracted,
        /// Extracts twice.
        ExtractsTwice,
        /// Calls `request` and `cancel` after the release.
        CallsLate,
    }
}

/// The consumer, and what it received.
pub(crate) struct Consumer {
    pub(crate) handler: ArrowAsyncDeviceStreamHandler,
    rng: Rng,
    habit: Habit,
    busy: Cell<bool>,
    pub(crate) schemas: Cell<u32>,
    pub(crate) came: Cell<i64>,
    /// The number of batches requested and not yet received.
    due: Cell<i64>,
    pub(crate) bad_request: Cell<bool>,
    pub(crate) cancelled: Cell<bool>,
    pub(crate) refused: Cell<bool>,
    pub(crate) ended: Cell<bool>,
    pub(crate) errors: RefCell<Vec<(c_int, String)>>,
    pub(crate) releases: Cell<u32>,
    /// Tasks that are kept, each with whether it was extracted.
    pub(crate) tasks: RefCell<Vec<(ArrowAsyncTask, bool)>>,
    pub(crate) arrays: RefCell<Vec<ArrowDeviceArray>>,
    pub(crate) lengths: RefCell<Vec<i64>>,
}

impl Consumer {
    /// A consumer in its own box, with a handler that refers to it.
    pub(crate) fn new(rng: Rng, habit: Habit) -> *mut Self {
        let place = Box::into_raw(Box::new(Self {
            handler: ArrowAsyncDeviceStreamHandler {
                on_schema: Some(on_schema),
                on_next_task: Some(on_next_task),
                on_error: Some(on_error),
                release: Some(release),
                producer: null_mut(),
                private_data: null_mut(),
            },
            rng,
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
        // SAFETY: just made.
        unsafe { (*place).handler.private_data = place.cast() };
        place
    }

    unsafe fn of<'a>(handler: *mut ArrowAsyncDeviceStreamHandler) -> &'a Self {
        // SAFETY: set by `Consumer::new`, whose caller keeps the consumer.
        unsafe { &*(*handler).private_data.cast::<Self>() }
    }

    fn producer(&self) -> *mut ArrowAsyncProducer {
        // The producer writes this field.
        // SAFETY: it is a field of this struct.
        unsafe { (&raw const self.handler.producer).read_volatile() }
    }

    /// Checks what holds for every callback.
    fn enter(&self, name: &str) {
        assert!(!self.busy.replace(true), "{name} within another callback");
        assert_eq!(self.releases.get(), 0, "{name} after release");
        if name != "release" {
            assert!(!self.refused.get(), "{name} after an error was returned");
            assert!(!self.ended.get() && self.errors.borrow().is_empty(), "{name} after the last word");
            assert!(name == "on_error" || name == "on_schema" || self.schemas.get() == 1, "{name} before the schema");
        }
    }

    /// Requests more batches.
    pub(crate) fn request(&self, n: i64) {
        if !self.cancelled.get() && !self.bad_request.get() {
            match self.due.get().checked_add(n) {
                Some(sum) if n > 0 => self.due.set(sum),
                _ => self.bad_request.set(true),
            }
        }
        let producer = self.producer();
        // SAFETY: the producer is valid until the release, and in quarantine after it.
        unsafe { (*producer).request.unwrap()(producer, n) }
    }

    /// Cancels the stream.
    pub(crate) fn cancel(&self) {
        self.cancelled.set(true);
        let producer = self.producer();
        // SAFETY: as above.
        unsafe { (*producer).cancel.unwrap()(producer) }
    }

    /// What a consumer does by itself, within callbacks and between them.
    pub(crate) fn act(&self) {
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

    /// Extracts a task, which may have been extracted before.
    pub(crate) fn extract(&self, task: &mut ArrowAsyncTask, extracted: bool) {
        let mut array = ArrowDeviceArray::RELEASED;
        let unwanted = self.rng.one_in(4);
        let out = if unwanted { null_mut() } else { &raw mut array };
        // SAFETY: a valid task of the producer.
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
        // SAFETY: the consumer must release it; if it does not, it stays with the producer.
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
        // SAFETY: valid during the call, and can be copied.
        let mut copy = unsafe { *task };
        if refuses && consumer.habit == Habit::RefusesExtracted {
            consumer.extract(&mut copy, false);
            consumer.tasks.borrow_mut().push((copy, true));
        } else if refuses {
            // Not extracted, and given back with the error: a later extraction gives nothing.
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
