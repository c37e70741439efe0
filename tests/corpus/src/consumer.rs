//! A consumer of Arrow's asynchronous stream: it requests batches, releases them, and fails when its turn comes.

use core::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use devexchange_core::abi::arrow_async::{ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask};
use devexchange_core::abi::arrow_data::ArrowSchema;
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::types::{DEVX_CALLBACK, DEVX_CLOSED, DEVX_INVALID_ARGUMENT};

use crate::callback::{self, How};
use crate::patience::patient;

type Handler = ArrowAsyncDeviceStreamHandler;

/// The number of batches that it requests, all at once.
const BATCHES: i64 = 8;
/// How long the producer may take until the release.
const PATIENCE: Duration = Duration::from_secs(10);

/// The handler, and what it received.
pub(crate) struct Consumer {
    handler: Handler,
    /// The producer at the first callback.
    producer: AtomicPtr<ArrowAsyncProducer>,
    tasks: AtomicU32,
    taken: AtomicU32,
    /// Ends and errors.
    ends: AtomicU32,
    releases: AtomicU32,
    /// Callbacks after the release or after the end.
    late: AtomicU32,
}

impl Consumer {
    pub(crate) fn new() -> Box<Self> {
        let mut consumer = Box::new(Self {
            handler: Handler {
                on_schema: Some(on_schema),
                on_next_task: Some(on_next_task),
                on_error: Some(on_error),
                release: Some(release),
                producer: std::ptr::null_mut(),
                private_data: std::ptr::null_mut(),
            },
            producer: AtomicPtr::default(),
            tasks: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            ends: AtomicU32::new(0),
            releases: AtomicU32::new(0),
            late: AtomicU32::new(0),
        });
        consumer.handler.private_data = std::ptr::from_ref(&*consumer).cast_mut().cast();
        consumer
    }

    pub(crate) fn handler(&mut self) -> *mut Handler {
        &raw mut self.handler
    }

    /// # Errors
    /// The producer's mistake. The memory is then not given back, because the producer may still call the handler.
    pub(crate) fn end(self: Box<Self>) -> Result<(), String> {
        let end = Instant::now() + patient(PATIENCE);
        while self.releases.load(SeqCst) == 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let [tasks, taken, ends, releases, late] =
            [&self.tasks, &self.taken, &self.ends, &self.releases, &self.late].map(|count| count.load(SeqCst));
        if releases == 1 && ends <= 1 && late == 0 && tasks == taken {
            return Ok(());
        }
        std::mem::forget(self);
        Err(format!(
            "the handler was released {releases} times, with {ends} ends, {late} late callbacks and {taken} of {tasks} \
             tasks taken"
        ))
    }

    /// Handles a callback, which may be the one that fails. Returns its result. A consumer that makes an invalid
    /// request, or cancels, continues; at the end nobody notices.
    fn callback(&self, name: &'static str, is_end: bool) -> c_int {
        if self.ends.load(SeqCst) + self.releases.load(SeqCst) > u32::from(is_end) {
            self.late.fetch_add(1, SeqCst);
        }
        match callback::turn() {
            None => 0,
            Some(How::Code | How::Text) => {
                callback::is_told(DEVX_CALLBACK, name);
                callback::CODE
            }
            Some(_) if is_end => 0,
            Some(How::Wrong) => {
                callback::is_told(DEVX_INVALID_ARGUMENT, "-77 batches were requested");
                self.request(callback::WRONG.into());
                0
            }
            Some(How::Cancel) => {
                callback::is_told(DEVX_CLOSED, "");
                let producer = self.producer.load(SeqCst);
                // SAFETY: the producer is valid until the handler is released.
                let cancel = unsafe { (*producer).cancel }.expect("cancel");
                // SAFETY: as above.
                unsafe { cancel(producer) };
                0
            }
        }
    }

    fn request(&self, n: i64) {
        let producer = self.producer.load(SeqCst);
        // SAFETY: the producer is valid until the handler is released.
        let request = unsafe { (*producer).request }.expect("request");
        // SAFETY: as above.
        unsafe { request(producer, n) }
    }
}

/// # Safety
/// `handler` is one of this module that was not given back.
unsafe fn consumer<'a>(handler: *mut Handler) -> &'a Consumer {
    // SAFETY: the caller's contract.
    let private_data = unsafe { (*handler).private_data };
    // SAFETY: as above.
    unsafe { &*private_data.cast_const().cast::<Consumer>() }
}

unsafe extern "C" fn on_schema(handler: *mut Handler, schema: *mut ArrowSchema) -> c_int {
    // SAFETY: a producer passes the handler that it was given.
    let consumer = unsafe { consumer(handler) };
    // SAFETY: as above; its address is there by now.
    consumer.producer.store(unsafe { (*handler).producer }, SeqCst);
    consumer.request(BATCHES);
    // SAFETY: this consumer must release the schema.
    if let Some(release) = unsafe { (*schema).release } {
        // SAFETY: as above.
        unsafe { release(schema) }
    }
    consumer.callback("on_schema returned 5", false)
}

unsafe extern "C" fn on_next_task(handler: *mut Handler, task: *mut ArrowAsyncTask, _: *const c_char) -> c_int {
    // SAFETY: a producer passes the handler that it was given.
    let consumer = unsafe { consumer(handler) };
    // SAFETY: NULL, or a task that this consumer must extract.
    let Some(task) = (unsafe { task.as_mut() }) else {
        consumer.ends.fetch_add(1, SeqCst);
        return consumer.callback("on_next_task returned 5", true);
    };
    let code = consumer.callback("on_next_task returned 5", false);
    // A refused task stays with the producer.
    if code == 0 {
        consumer.tasks.fetch_add(1, SeqCst);
        let mut array = ArrowDeviceArray::RELEASED;
        let extract = task.extract_data.expect("extract_data");
        // SAFETY: there is room for an array.
        let extracted = unsafe { extract(task, &mut array) };
        if let (0, Some(release)) = (extracted, array.array.release) {
            consumer.taken.fetch_add(1, SeqCst);
            // SAFETY: the array belongs to this consumer now.
            unsafe { release(&mut array.array) }
        }
    }
    code
}

unsafe extern "C" fn on_error(handler: *mut Handler, _: c_int, _: *const c_char, _: *const c_char) {
    // SAFETY: a producer passes the handler that it was given.
    unsafe { consumer(handler) }.ends.fetch_add(1, SeqCst);
}

unsafe extern "C" fn release(handler: *mut Handler) {
    // SAFETY: a producer passes the handler that it was given.
    unsafe { consumer(handler) }.releases.fetch_add(1, SeqCst);
    // SAFETY: as above.
    unsafe { (*handler).release = None };
}
