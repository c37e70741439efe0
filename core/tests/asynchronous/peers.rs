//! What a producer or a consumer in C may do, and the answers it gets.

use core::ffi::{c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use devexchange_core::abi::arrow_async::{ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask};
use devexchange_core::abi::arrow_data::ArrowSchema;
use devexchange_core::abi::arrow_device::{ARROW_DEVICE_CPU, ArrowDeviceArray};
use devexchange_core::abi::types::DEVX_CLOSED;
use devexchange_core::arrow::asynchronous::{AsyncReader, AsyncWriter, Wake};
use devexchange_core::{DeviceType, ledger};

use super::{alone, batch, options, pair, schema};

/// A producer whose `request` reports its start and then takes its time.
struct Slow {
    inside: Barrier,
    goes_on: Barrier,
    returned: AtomicU32,
}

impl Slow {
    fn producer(&self) -> ArrowAsyncProducer {
        ArrowAsyncProducer {
            device_type: ARROW_DEVICE_CPU,
            request: Some(slow_request),
            cancel: Some(no_cancel),
            additional_metadata: null(),
            private_data: std::ptr::from_ref(self).cast_mut().cast(),
        }
    }
}

unsafe extern "C" fn slow_request(producer: *mut ArrowAsyncProducer, _n: i64) {
    // SAFETY: set by the test, which keeps it.
    let slow = unsafe { &*(*producer).private_data.cast::<Slow>() };
    slow.inside.wait();
    slow.goes_on.wait();
    thread::sleep(Duration::from_millis(50));
    slow.returned.store(1, SeqCst);
}

unsafe extern "C" fn no_cancel(_producer: *mut ArrowAsyncProducer) {}

unsafe extern "C" fn nothing_to_extract(_task: *mut ArrowAsyncTask, _out: *mut ArrowDeviceArray) -> c_int {
    5
}

/// An address that is passed to another thread.
struct Sent<T>(*mut T);
// SAFETY: the tests use it on one thread at a time, or on several exactly where a test is about that.
unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

unsafe fn introduce(handler: *mut ArrowAsyncDeviceStreamHandler, producer: &mut ArrowAsyncProducer) -> c_int {
    let mut exported = ArrowSchema::RELEASED;
    // SAFETY: there is room.
    unsafe { schema().export(&mut exported) }.unwrap();
    // SAFETY: the caller's contract.
    unsafe {
        (*handler).producer = producer;
        (*handler).on_schema.unwrap()(handler, &mut exported)
    }
}

#[test]
fn a_release_waits_for_a_call_on_another_thread() {
    let _alone = alone();
    let slow = Slow { inside: Barrier::new(2), goes_on: Barrier::new(2), returned: AtomicU32::new(0) };
    let mut producer = slow.producer();
    let reader = AsyncReader::new(options(0), None).unwrap();
    let handler = reader.handler().unwrap();
    // SAFETY: just handed out.
    assert_eq!(unsafe { introduce(handler, &mut producer) }, 0);
    let handler = Sent(handler);
    thread::scope(|scope| {
        scope.spawn(|| reader.request(1).unwrap());
        slow.inside.wait();
        let releasing = scope.spawn(|| {
            let handler = handler;
            // SAFETY: called once.
            unsafe { (*handler.get()).release.unwrap()(handler.get()) };
            slow.returned.load(SeqCst)
        });
        // A call that begins now would begin after the release has begun.
        while !matches!(reader.try_batch(), Poll::Ready(_)) {
            thread::yield_now();
        }
        reader.request(1).unwrap();
        reader.cancel();
        slow.goes_on.wait();
        assert_eq!(releasing.join().unwrap(), 1, "the release came back before the request did");
    });
    drop(reader);
    assert_eq!(ledger::outstanding(), 0);
}

#[test]
fn two_callbacks_at_once_are_seen() {
    let _alone = alone();
    let inside = Arc::new((Barrier::new(2), Barrier::new(2), AtomicU32::new(0)));
    let woken = Arc::clone(&inside);
    // The first task's wake holds its callback up.
    let wake = move || {
        if woken.2.fetch_add(1, SeqCst) == 1 {
            woken.0.wait();
            woken.1.wait();
        }
    };
    let reader = AsyncReader::new(options(4), Some(Wake::new(wake).unwrap())).unwrap();
    let slow = Slow { inside: Barrier::new(1), goes_on: Barrier::new(1), returned: AtomicU32::new(0) };
    let mut producer = slow.producer();
    let handler = reader.handler().unwrap();
    // SAFETY: just handed out.
    assert_eq!(unsafe { introduce(handler, &mut producer) }, 0);
    let give = |handler: *mut ArrowAsyncDeviceStreamHandler| {
        let mut task = ArrowAsyncTask { extract_data: Some(nothing_to_extract), private_data: std::ptr::null_mut() };
        // SAFETY: the handler is not released; the calls overlap on purpose.
        unsafe { (*handler).on_next_task.unwrap()(handler, &mut task, null()) }
    };
    let other = Sent(handler);
    thread::scope(|scope| {
        scope.spawn(|| {
            let other = other;
            give(other.get())
        });
        inside.0.wait();
        assert_eq!(give(handler), 0);
        inside.1.wait();
    });
    // The first task cannot be extracted either, but this came first.
    let error = reader.wait_batch(None).unwrap_err();
    assert_eq!(
        (error.errno(), error.message()),
        (
            libc::EPROTO,
            "the producer broke the contract: on_next_task was called while another thread is in a callback"
        )
    );
    // SAFETY: called once.
    unsafe { (*handler).release.unwrap()(handler) };
    drop(reader);
    assert_eq!(ledger::outstanding(), 0);
}

/// Only `on_error` may be called from within another callback, because a producer may fail while it is asked for more.
#[test]
fn callbacks_within_callbacks_are_seen() {
    let _alone = alone();
    let slow = Slow { inside: Barrier::new(1), goes_on: Barrier::new(1), returned: AtomicU32::new(0) };
    for (fails, said) in [(false, "on_next_task was called within another callback"), (true, "no luck")] {
        let mut producer = slow.producer();
        let within = Arc::new(Mutex::new(None::<Sent<ArrowAsyncDeviceStreamHandler>>));
        let held = Arc::clone(&within);
        // A wake comes within the callback that causes it.
        let wake = move || {
            let Some(Sent(handler)) = held.lock().unwrap().take() else { return };
            // SAFETY: the handler is not released; NULL is the end, and an error has a text.
            unsafe {
                if fails {
                    (*handler).on_error.unwrap()(handler, libc::EIO, c"no luck".as_ptr(), null());
                } else {
                    (*handler).on_next_task.unwrap()(handler, null_mut(), null());
                }
            }
        };
        let reader = AsyncReader::new(options(4), Some(Wake::new(wake).unwrap())).unwrap();
        let handler = reader.handler().unwrap();
        *within.lock().unwrap() = Some(Sent(handler));
        // SAFETY: just handed out.
        assert_eq!(unsafe { introduce(handler, &mut producer) }, 0);
        let error = reader.wait_batch(None).unwrap_err();
        assert!(error.message().ends_with(said), "{error}");
        // SAFETY: called once.
        unsafe { (*handler).release.unwrap()(handler) };
        drop(reader);
    }
    assert_eq!(ledger::outstanding(), 0);
}

/// A consumer that requests two batches, and does something when a batch comes, without extracting the batch.
pub(super) struct During(pub(super) Mutex<Box<dyn FnMut(*mut ArrowAsyncProducer)>>);

impl During {
    pub(super) fn handler(&self) -> ArrowAsyncDeviceStreamHandler {
        unsafe extern "C" fn on_schema(handler: *mut ArrowAsyncDeviceStreamHandler, _: *mut ArrowSchema) -> c_int {
            // SAFETY: the producer is valid.
            unsafe { (*(*handler).producer).request.unwrap()((*handler).producer, 2) };
            0
        }
        unsafe extern "C" fn on_next_task(
            handler: *mut ArrowAsyncDeviceStreamHandler,
            task: *mut ArrowAsyncTask,
            _: *const c_char,
        ) -> c_int {
            if !task.is_null() {
                // SAFETY: the task is ours to extract, and the handler's data outlives the stream.
                unsafe {
                    assert_eq!((*task).extract_data.unwrap()(task, null_mut()), 0);
                    let During(act) = &*(*handler).private_data.cast();
                    act.lock().unwrap()((*handler).producer);
                }
            }
            0
        }
        unsafe extern "C" fn on_error(
            _: *mut ArrowAsyncDeviceStreamHandler,
            _: c_int,
            _: *const c_char,
            _: *const c_char,
        ) {
        }
        unsafe extern "C" fn release(handler: *mut ArrowAsyncDeviceStreamHandler) {
            // SAFETY: the handler is on the stack of the test.
            unsafe { (*handler).release = None };
        }
        ArrowAsyncDeviceStreamHandler {
            on_schema: Some(on_schema),
            on_next_task: Some(on_next_task),
            on_error: Some(on_error),
            release: Some(release),
            producer: null_mut(),
            private_data: std::ptr::from_ref(self).cast_mut().cast(),
        }
    }
}

/// The caller that ends a stream gets the consumer's answer, whoever else is using the writer.
#[test]
fn a_refusal_of_the_end_is_told_to_who_ends_the_stream() {
    unsafe extern "C" fn refuses(
        _: *mut ArrowAsyncDeviceStreamHandler,
        task: *mut ArrowAsyncTask,
        _: *const c_char,
    ) -> c_int {
        if task.is_null() { 7 } else { 0 }
    }
    let _alone = alone();
    let (during, schema) = (During(Mutex::new(Box::new(|_| {}))), schema());
    for round in 0..2_000 {
        let mut handler = ArrowAsyncDeviceStreamHandler { on_next_task: Some(refuses), ..during.handler() };
        // SAFETY: the handler outlives the writer.
        let writer = unsafe { AsyncWriter::new(&mut handler, DeviceType::CPU, None, None) }.unwrap();
        writer.start(&schema).unwrap();
        let begin = Barrier::new(2);
        let told = thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                while !matches!(writer.try_ready(), Poll::Ready(Err(_))) {}
            });
            begin.wait();
            writer.finish().map_err(|error| error.errno())
        });
        assert_eq!(told, Err(7), "round {round}");
        drop(writer);
        assert!(handler.release.is_none());
    }
    drop(schema);
    assert_eq!(ledger::outstanding(), 0);
}

/// A consumer that cancels has no other way to say so before it knows the producer, or while the producer calls it.
#[test]
fn a_callback_that_says_cancelled_cancels() {
    unsafe extern "C" fn cancelled(
        _handler: *mut ArrowAsyncDeviceStreamHandler,
        _task: *mut ArrowAsyncTask,
        _metadata: *const c_char,
    ) -> c_int {
        libc::ECANCELED
    }
    let _alone = alone();
    let (reader, writer) = pair(4);
    reader.cancel();
    assert_eq!(writer.start(&schema()).unwrap_err().status(), DEVX_CLOSED);
    assert!(writer.is_cancelled());
    writer.finish().unwrap();
    drop((reader, writer));

    let (during, schema) = (During(Mutex::new(Box::new(|_| {}))), schema());
    let mut handler = ArrowAsyncDeviceStreamHandler { on_next_task: Some(cancelled), ..during.handler() };
    // SAFETY: the handler outlives the writer.
    let writer = unsafe { AsyncWriter::new(&mut handler, DeviceType::CPU, None, None) }.unwrap();
    writer.start(&schema).unwrap();
    assert_eq!(writer.try_send(batch(&schema, 1), None).unwrap_err().error.status(), DEVX_CLOSED);
    assert!(writer.is_cancelled());
    writer.finish().unwrap();
    drop((writer, schema));
    assert_eq!(ledger::outstanding(), 0);
}
