//! Asynchronous streams on several threads, for a long time, and as `Stream` and `Sink`. What a peer may do is in
//! `tests/async_schedules`.
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "a test plays the part of a foreign program")]
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

mod patience;

use core::ffi::{c_char, c_int, c_void};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use devexchange_core::abi::arrow_async::{ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask};
use devexchange_core::abi::arrow_data::ArrowSchema;
use devexchange_core::abi::arrow_device::{ARROW_DEVICE_CPU, ArrowDeviceArray};
use devexchange_core::abi::types::*;
use devexchange_core::arrow::asynchronous::{self, AsyncReader, AsyncWriter, QUARANTINE, ReaderOptions};
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::metadata;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::{Batch, Device, DeviceType, Owner, Schema, ledger};
use futures_core::Stream;
use futures_sink::Sink;
use futures_util::{SinkExt, StreamExt, TryStreamExt};

/// The ledger and the quarantine are the process's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn schema() -> Schema {
    Schema::new(&[FieldDesc::new(c"bytes", c"C")]).unwrap()
}

fn batch(schema: &Schema, length: usize) -> Batch {
    static VALUES: [u8; 64] = [7; 64];
    let buffers: [*const c_void; 2] = [null(), VALUES.as_ptr().cast()];
    let nodes = [NodeDesc { length: length as i64, null_count: 0, offset: 0, buffers: &buffers }];
    // SAFETY: the values are static, and no batch is longer.
    unsafe { Batch::from_raw_parts(schema, Device::CPU, &nodes, Owner::none()) }
        .map_err(|refused| refused.error)
        .unwrap()
}

fn options(limit: i64) -> ReaderOptions {
    ReaderOptions { limit, abi_h_metadata: true }
}

fn pair(limit: i64) -> (AsyncReader, AsyncWriter) {
    let reader = AsyncReader::new(options(limit), None).unwrap();
    // SAFETY: a handler of its own.
    let writer = unsafe { AsyncWriter::new(reader.handler().unwrap(), DeviceType::CPU, None, None) }.unwrap();
    (reader, writer)
}

/// Resident bytes of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn a_million_batches_need_no_more_memory_than_a_few() {
    let _alone = alone();
    let (reader, writer) = pair(8);
    let schema = schema();
    writer.start(&schema).unwrap();
    let one = batch(&schema, 1);
    let mut before = 0;
    let mut taken = 0;
    for i in 0..1_000_000 {
        if i == 100_000 {
            before = resident();
        }
        while !matches!(writer.try_ready(), Poll::Ready(Ok(()))) {
            let Poll::Ready(Some(Ok((batch, _)))) = reader.try_batch() else { panic!("nothing to take") };
            taken += batch.length();
        }
        writer.try_send(one.clone(), None).map_err(|refused| refused.error).unwrap();
    }
    let grown = resident().saturating_sub(before);
    writer.finish().unwrap();
    while let Some((batch, _)) = reader.wait_batch(None).unwrap() {
        taken += batch.length();
    }
    assert_eq!(taken, 1_000_000);
    assert!(grown < 4 << 20, "{grown} bytes more after 900 000 batches");
    drop((reader, writer, one, schema));
    assert_eq!(ledger::outstanding(), 0);
}

#[test]
fn ended_streams_leave_a_bounded_number_of_producers() {
    let _alone = alone();
    let schema = schema();
    let mut before = 0;
    for i in 0..20_000 {
        if i == 4 * QUARANTINE {
            before = resident();
        }
        let (reader, writer) = pair(1);
        writer.start(&schema).unwrap();
        writer.finish().unwrap();
        assert!(reader.wait_batch(None).unwrap().is_none());
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 2 << 20, "{grown} bytes more");
    assert_eq!(ledger::outstanding(), 0);
}

#[test]
fn threads_read_write_and_cancel_at_once() {
    const OVER: usize = usize::MAX;
    let _alone = alone();
    let watchdog = Arc::new(AtomicUsize::new(0));
    let watched = Arc::clone(&watchdog);
    thread::spawn(move || {
        let mut seen = OVER;
        loop {
            let round = watched.load(SeqCst);
            // The program may go on for longer than this test.
            if round == OVER {
                return;
            }
            if round == seen {
                eprintln!("round {seen} hangs");
                std::process::abort();
            }
            seen = round;
            thread::sleep(patience::patient(Duration::from_secs(30)));
        }
    });
    let schema = schema();
    for round in 0..2_000_usize {
        watchdog.store(round, SeqCst);
        let (reader, writer) = pair([0, 1, 4][round % 3]);
        let reader = Arc::new(reader);
        let (total, cancels) = (round % 40, round % 4 == 1);
        let came = AtomicI64::new(0);
        thread::scope(|scope| {
            let canceller = Arc::clone(&reader);
            if cancels {
                scope.spawn(move || {
                    for _ in 0..round % 50 {
                        thread::yield_now();
                    }
                    canceller.cancel();
                });
            }
            let asker = Arc::clone(&reader);
            if round % 3 == 0 {
                scope.spawn(move || (0..total).for_each(|_| asker.request(1).unwrap()));
            }
            let schema = &schema;
            scope.spawn(move || {
                let mut result = writer.start(schema);
                for i in 0..total {
                    result = result.and_then(|()| writer.wait_ready(None));
                    result = result.and_then(|()| Ok(writer.try_send(batch(schema, i), None)?));
                }
                match result.and_then(|()| writer.finish()) {
                    Ok(()) => {}
                    Err(error) => assert!(cancels && [DEVX_CLOSED, DEVX_CALLBACK].contains(&error.status()), "{error}"),
                }
            });
            let taker = || {
                while reader.wait_batch(None).unwrap().is_some() {
                    came.fetch_add(1, SeqCst);
                }
            };
            if round % 5 == 0 {
                scope.spawn(taker);
            }
            taker();
        });
        assert!(cancels || came.load(SeqCst) == total as i64, "round {round}: {came:?} of {total}");
        drop(reader);
        assert_eq!(ledger::outstanding(), 0, "round {round}");
    }
    watchdog.store(OVER, SeqCst);
}

/// A producer whose `request` says that it is there and then takes its time.
struct Slow {
    inside: Barrier,
    goes_on: Barrier,
    returned: AtomicU32,
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

/// An address for another thread.
struct Sent<T>(*mut T);
// SAFETY: the tests use it on one thread at a time, or as the test of the moment wants it.
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
fn a_request_that_cannot_be_counted_says_what_it_came_to() {
    let _alone = alone();
    let reader = AsyncReader::new(options(5), None).unwrap();
    let error = reader.request(i64::MAX - 2).unwrap_err();
    assert_eq!(error.status(), DEVX_OUT_OF_RANGE);
    let says =
        "n is 9223372036854775805: with 0 requested already, 0 in the queue and a limit of 5, more than can be counted";
    assert_eq!(error.message(), says);
    reader.request(i64::MAX - 5).unwrap();
    let error = reader.request(1).unwrap_err();
    assert!(error.message().starts_with("n is 1: with 9223372036854775802 requested already"), "{error}");
}

#[test]
fn a_release_waits_for_a_call_on_another_thread() {
    let _alone = alone();
    let slow = Slow { inside: Barrier::new(2), goes_on: Barrier::new(2), returned: AtomicU32::new(0) };
    let mut producer = ArrowAsyncProducer {
        device_type: ARROW_DEVICE_CPU,
        request: Some(slow_request),
        cancel: Some(no_cancel),
        additional_metadata: null(),
        private_data: (&raw const slow).cast_mut().cast(),
    };
    let reader = AsyncReader::new(options(0), None).unwrap();
    let handler = reader.handler().unwrap();
    // SAFETY: handed out just now.
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
        // A call that begins now would begin after the release has.
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
    let reader = AsyncReader::new(options(4), Some(asynchronous::Wake::new(wake).unwrap())).unwrap();
    let slow = Slow { inside: Barrier::new(1), goes_on: Barrier::new(1), returned: AtomicU32::new(0) };
    let mut producer = ArrowAsyncProducer {
        device_type: ARROW_DEVICE_CPU,
        request: Some(slow_request),
        cancel: Some(no_cancel),
        additional_metadata: null(),
        private_data: (&raw const slow).cast_mut().cast(),
    };
    let handler = reader.handler().unwrap();
    // SAFETY: handed out just now.
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
    assert!(reader.wait_batch(None).is_err(), "the first task cannot be extracted");
    // SAFETY: called once.
    unsafe { (*handler).release.unwrap()(handler) };
    drop(reader);
    assert_eq!(ledger::outstanding(), 0);
}

/// Unparks the thread that polls.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Unpark(thread::current()))));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park_timeout(Duration::from_secs(60));
    }
}

#[test]
fn a_stream_reads_what_a_sink_writes() {
    let _alone = alone();
    let (mut reader, mut writer) = pair(2);
    let schema = schema();
    thread::scope(|scope| {
        let schema = &schema;
        scope.spawn(move || {
            writer.start(schema).unwrap();
            for i in 0..50 {
                block_on(poll_fn(|cx| Sink::poll_ready(Pin::new(&mut writer), cx))).unwrap();
                Pin::new(&mut writer).start_send(batch(schema, i)).unwrap();
                block_on(poll_fn(|cx| Sink::<Batch>::poll_flush(Pin::new(&mut writer), cx))).unwrap();
            }
            block_on(poll_fn(|cx| Sink::<Batch>::poll_close(Pin::new(&mut writer), cx))).unwrap();
        });
        assert_eq!(block_on(poll_fn(|cx| reader.poll_schema(cx))).unwrap().nodes(), 1);
        for i in 0..50 {
            let next = block_on(poll_fn(|cx| Pin::new(&mut reader).poll_next(cx))).unwrap().unwrap();
            assert_eq!(next.length(), i);
        }
        assert!(block_on(poll_fn(|cx| Pin::new(&mut reader).poll_next(cx))).is_none());
    });
    drop((reader, schema));
    assert_eq!(ledger::outstanding(), 0);
}

/// A consumer that requests two batches, and does something when a batch comes, which it leaves where it is.
struct During(Mutex<Box<dyn FnMut(*mut ArrowAsyncProducer)>>);

impl During {
    fn handler(&self) -> ArrowAsyncDeviceStreamHandler {
        unsafe extern "C" fn on_schema(handler: *mut ArrowAsyncDeviceStreamHandler, _: *mut ArrowSchema) -> c_int {
            // SAFETY: the producer is there.
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

struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Who ends a stream is told what the consumer says to that, whoever else is at the writer.
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

/// A consumer that cancels has no other way to say so before it knows the producer, or while that calls.
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

#[test]
fn combinators_of_streams_and_sinks_have_the_short_names() {
    let _alone = alone();
    let (mut reader, mut writer) = pair(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let schema = schema();
            writer.start(&schema).unwrap();
            block_on(async {
                for length in 1..4 {
                    writer.send(batch(&schema, length)).await.unwrap();
                }
                writer.ready().await.unwrap();
                writer.try_send(batch(&schema, 4), None).map_err(|refused| refused.error).unwrap();
                writer.close().await.unwrap();
            });
        });
        block_on(async {
            assert_eq!(reader.schema().await.unwrap().root().format(), "C");
            assert_eq!(reader.next().await.unwrap().unwrap().length(), 1);
            assert_eq!(reader.try_next().await.unwrap().unwrap().length(), 2);
            assert_eq!(reader.batch().await.unwrap().unwrap().0.length(), 3);
            let rest: Vec<_> = reader.by_ref().map(|batch| batch.unwrap().length()).collect().await;
            assert_eq!(rest, [4]);
            assert!(reader.batch().await.unwrap().is_none());
        });
    });
    drop((reader, writer));
    assert_eq!(ledger::outstanding(), 0);
}

/// What clones it may do whatever its program does.
#[test]
fn a_waker_is_cloned_without_a_lock() {
    use std::task::{RawWaker, RawWakerVTable};
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        // SAFETY: the address of a reader that outlives its wakers.
        |reader| unsafe {
            assert!((*reader.cast::<AsyncReader>()).try_batch().is_pending());
            RawWaker::new(reader, &TABLE)
        },
        |_| (),
        |_| (),
        |_| (),
    );
    let _alone = alone();
    let (mut reader, writer) = pair(4);
    let address = (&raw const reader).cast();
    // SAFETY: as above.
    let waker = unsafe { Waker::from_raw(RawWaker::new(address, &TABLE)) };
    assert!(Pin::new(&mut reader).poll_next(&mut Context::from_waker(&waker)).is_pending());
    drop((waker, writer, reader));
}

/// Whoever asks while a callback runs is told to wait, and woken when it has returned.
#[test]
fn whoever_asks_during_a_callback_is_woken_after_it() {
    let _alone = alone();
    for cancels in [false, true] {
        let during = During(Mutex::new(Box::new(|_| {})));
        let mut handler = during.handler();
        let (woken, called) = (Arc::new(Count(AtomicU32::new(0))), Arc::new(AtomicU32::new(0)));
        let calls = Arc::clone(&called);
        let wake = asynchronous::Wake::new(move || {
            calls.fetch_add(1, SeqCst);
        });
        // SAFETY: the handler outlives the writer.
        let writer = unsafe { AsyncWriter::new(&mut handler, DeviceType::CPU, None, Some(wake.unwrap())) };
        let (writer, schema) = (Arc::new(writer.unwrap()), schema());
        writer.start(&schema).unwrap();
        let waker = Waker::from(Arc::clone(&woken));
        let (other, asks) = (Arc::clone(&writer), waker.clone());
        let (seen, before) = (Arc::clone(&called), Arc::new(AtomicU32::new(0)));
        let then = Arc::clone(&before);
        *during.0.lock().unwrap() = Box::new(move |producer| {
            if cancels {
                // SAFETY: the producer is there during a callback.
                unsafe { (*producer).cancel.unwrap()(producer) };
            }
            assert!(other.poll_ready(&mut Context::from_waker(&asks)).is_pending());
            then.store(seen.load(SeqCst), SeqCst);
        });
        writer.try_send(batch(&schema, 1), None).unwrap();
        assert_eq!(woken.0.load(SeqCst), 1, "cancels: {cancels}");
        assert_eq!(called.load(SeqCst), before.load(SeqCst) + 1, "cancels: {cancels}");
        match writer.poll_ready(&mut Context::from_waker(&waker)) {
            Poll::Ready(Ok(())) => assert!(!cancels),
            Poll::Ready(Err(error)) => assert!(cancels && error.status() == DEVX_CLOSED, "{error}"),
            Poll::Pending => panic!("one batch is requested"),
        }
        *during.0.lock().unwrap() = Box::new(|_| {});
        drop(writer);
        assert!(handler.release.is_none());
    }
    assert_eq!(ledger::outstanding(), 0);
}

/// A task may end with its last waker, and use the stream once more then.
#[test]
fn a_waker_may_use_the_stream_when_it_is_dropped() {
    struct Last(Arc<AsyncReader>, std::sync::mpsc::Sender<bool>);
    impl Wake for Last {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Last {
        fn drop(&mut self) {
            self.1.send(self.0.try_schema().is_pending()).unwrap();
        }
    }
    let _alone = alone();
    let (sender, receiver) = std::sync::mpsc::channel();
    let polls = thread::spawn(move || {
        let reader = Arc::new(AsyncReader::new(options(1), None).unwrap());
        let waker = Waker::from(Arc::new(Last(Arc::clone(&reader), sender)));
        assert!(reader.poll_schema(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        assert!(reader.poll_schema(&mut Context::from_waker(Waker::noop())).is_pending());
    });
    assert_eq!(receiver.recv_timeout(patience::patient(Duration::from_secs(60))), Ok(true));
    polls.join().unwrap();
}

#[test]
fn metadata_and_errors_go_across() {
    let _alone = alone();
    let block = metadata::encode(&[(b"rows", b"12")]).unwrap();
    let reader = AsyncReader::new(options(2), None).unwrap();
    let handler = reader.handler().unwrap();
    // SAFETY: handed out just now.
    let refused = unsafe { AsyncWriter::new(handler, DeviceType::CPU, Some(&block[1..]), None) };
    assert_eq!(refused.unwrap_err().status(), DEVX_INVALID_METADATA);
    // SAFETY: as above; the handler was not taken.
    let writer = unsafe { AsyncWriter::new(handler, DeviceType::CPU, Some(&block), None) }.unwrap();
    let schema = schema();
    assert!(writer.try_send(batch(&schema, 1), None).is_err(), "not started");
    writer.start(&schema).unwrap();
    assert!(writer.start(&schema).is_err());
    assert_eq!(reader.device_type(), Some(DeviceType::CPU));
    assert_eq!(reader.metadata().unwrap().pairs().collect::<Vec<_>>(), [(&b"rows"[..], &b"12"[..])]);

    let other = Schema::new(&[FieldDesc::new(c"numbers", c"c")]).unwrap();
    let refused = writer.try_send(batch(&other, 3), None).unwrap_err();
    assert_eq!((refused.error.status(), refused.returned.length()), (DEVX_MISMATCH, 3));
    assert_eq!(writer.demand(), 2);
    let refused = writer.try_send(batch(&schema, 3), Some(b"no block")).unwrap_err();
    assert_eq!(refused.error.status(), DEVX_INVALID_METADATA);
    writer.try_send(batch(&schema, 5), Some(&block)).map_err(|refused| refused.error).unwrap();
    assert_eq!(writer.fail(0, "no error", None).unwrap_err().status(), DEVX_INVALID_ARGUMENT);
    writer.fail(libc::EIO, "no luck", Some(&block)).unwrap();
    assert_eq!(writer.fail(libc::EIO, "again", None).unwrap_err().status(), DEVX_CLOSED);

    let (taken, with) = reader.wait_batch(None).unwrap().unwrap();
    assert_eq!((taken.length(), with.unwrap().as_bytes()), (5, &block[..]));
    let error = reader.wait_batch(None).unwrap_err();
    assert_eq!((error.status(), error.errno()), (DEVX_CALLBACK, libc::EIO));
    assert!(error.message().contains("no luck"), "{error}");
    let (code, with) = reader.producer_error().unwrap();
    assert_eq!((code, with.unwrap().as_bytes()), (libc::EIO, &block[..]));
    assert!(reader.wait_batch(None).unwrap().is_none());
    drop((reader, writer, schema, other, taken));
    assert_eq!(ledger::outstanding(), 0);
}
