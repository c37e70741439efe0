//! Readers as `Stream`, writers as `Sink`, and what wakers may do.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use devexchange_core::abi::types::DEVX_CLOSED;
use devexchange_core::arrow::asynchronous::{self, AsyncReader, AsyncWriter};
use devexchange_core::{Batch, DeviceType, ledger};
use futures_core::{FusedStream, Stream};
use futures_sink::Sink;
use futures_util::{SinkExt, StreamExt, TryStreamExt};

use super::peers::During;
use super::{alone, batch, options, pair, patience, schema};

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
        assert!(!reader.is_terminated(), "the end was not seen yet");
        assert!(block_on(poll_fn(|cx| Pin::new(&mut reader).poll_next(cx))).is_none());
        assert!(reader.is_terminated());
    });
    drop((reader, schema));
    assert_eq!(ledger::outstanding(), 0);
}

struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// `select!` polls no stream that is terminated: what came and the end itself must be taken first.
#[test]
fn a_stream_is_terminated_when_its_end_was_seen() {
    let _alone = alone();
    let (reader, writer) = pair(2);
    let schema = schema();
    writer.start(&schema).unwrap();
    writer.try_send(batch(&schema, 1), None).map_err(|refused| refused.error).unwrap();
    writer.fail(5, "failed", None).unwrap();
    assert!(!reader.is_terminated());
    assert!(matches!(reader.try_batch(), Poll::Ready(Some(Ok(_)))));
    assert!(!reader.is_terminated());
    assert!(matches!(reader.try_batch(), Poll::Ready(Some(Err(_)))));
    assert!(!reader.is_terminated());
    assert!(matches!(reader.try_batch(), Poll::Ready(None)));
    assert!(reader.is_terminated());
    drop((reader, writer));

    let (reader, writer) = pair(2);
    writer.start(&schema).unwrap();
    reader.cancel();
    assert!(!reader.is_terminated());
    assert!(matches!(reader.try_batch(), Poll::Ready(None)));
    assert!(reader.is_terminated());
    drop((reader, writer, schema));
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

/// The counters of the wakes of some tasks.
fn counts<const N: usize>() -> [Arc<Count>; N] {
    std::array::from_fn(|_| Arc::new(Count(AtomicU32::new(0))))
}

/// Polls a future that may continue on another thread, as tasks of most executors do.
fn poll_of<T>(future: Pin<&mut (impl Future<Output = T> + Send)>, task: &Arc<Count>) -> Poll<T> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(task))))
}

/// No task is forgotten because another one awaits, too.
#[test]
fn all_tasks_are_woken_that_await() {
    let _alone = alone();
    let (reader, writer) = pair(1);
    let (schema, readers, writers) = (schema(), counts::<4>(), counts::<2>());
    let woken = |tasks: &[Arc<Count>]| tasks.iter().map(|task| task.0.swap(0, SeqCst)).collect::<Vec<_>>();
    let (mut of_schema, mut first, mut second) = (pin!(reader.schema()), pin!(reader.batch()), pin!(reader.batch()));
    for _ in 0..2 {
        assert!(poll_of(of_schema.as_mut(), &readers[0]).is_pending());
        assert!(poll_of(first.as_mut(), &readers[1]).is_pending());
        assert!(poll_of(second.as_mut(), &readers[2]).is_pending());
        let by_hand = Waker::from(Arc::clone(&readers[3]));
        assert!(reader.poll_batch(&mut Context::from_waker(&by_hand)).is_pending());
    }
    writer.start(&schema).unwrap();
    assert_eq!(woken(&readers), [1, 1, 1, 1]);
    assert!(poll_of(of_schema.as_mut(), &readers[0]).is_ready());
    assert!(poll_of(first.as_mut(), &readers[1]).is_pending());
    assert!(poll_of(second.as_mut(), &readers[2]).is_pending());
    writer.try_send(batch(&schema, 7), None).unwrap();
    assert_eq!(woken(&readers), [0, 1, 1, 0]);
    {
        let (mut ready, mut other) = (pin!(writer.ready()), pin!(writer.ready()));
        assert!(poll_of(ready.as_mut(), &writers[0]).is_pending());
        assert!(poll_of(other.as_mut(), &writers[1]).is_pending());
        let Poll::Ready(Ok(Some((taken, _)))) = poll_of(second.as_mut(), &readers[2]) else {
            panic!("there is a batch")
        };
        assert_eq!((taken.length(), woken(&writers)), (7, vec![1, 1]));
        assert!(poll_of(first.as_mut(), &readers[1]).is_pending());
        assert!(poll_of(ready.as_mut(), &writers[0]).is_ready() && poll_of(other.as_mut(), &writers[1]).is_ready());
    }
    // The end is for all tasks, even for one that has not looked since.
    writer.finish().unwrap();
    assert_eq!(woken(&readers), [0, 1, 0, 0]);
    assert!(matches!(poll_of(first.as_mut(), &readers[1]), Poll::Ready(Ok(None))));
}

/// A task that no longer awaits is not woken, and nothing is kept of it.
#[test]
fn a_task_that_no_longer_awaits_leaves_no_waker() {
    let _alone = alone();
    let (reader, writer) = pair(1);
    let tasks = counts::<3>();
    for _ in 0..3 {
        let (mut one, mut other, mut stays) =
            (Box::pin(reader.batch()), Box::pin(reader.batch()), pin!(reader.batch()));
        assert!(poll_of(one.as_mut(), &tasks[0]).is_pending());
        assert!(poll_of(other.as_mut(), &tasks[1]).is_pending());
        assert!(poll_of(stays.as_mut(), &tasks[2]).is_pending());
        assert_eq!(tasks.each_ref().map(Arc::strong_count), [2, 2, 2]);
        drop(one);
        assert_eq!(tasks.each_ref().map(Arc::strong_count), [1, 2, 2]);
        drop(other);
        assert_eq!(tasks.each_ref().map(Arc::strong_count), [1, 1, 2]);
        // A future that moves to another task takes its waker with it.
        assert!(poll_of(stays.as_mut(), &tasks[0]).is_pending());
        assert_eq!(tasks.each_ref().map(Arc::strong_count), [2, 1, 1]);
    }
    assert_eq!(tasks.each_ref().map(Arc::strong_count), [1, 1, 1]);
    writer.start(&schema()).unwrap();
    assert_eq!(tasks.each_ref().map(|task| task.0.load(SeqCst)), [0, 0, 0]);
    // Nor does a poll that is answered at once.
    assert!(reader.poll_schema(&mut Context::from_waker(&Waker::from(Arc::clone(&tasks[0])))).is_ready());
    assert_eq!(Arc::strong_count(&tasks[0]), 1);
}

/// The code that clones a waker can do anything that its program does.
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

/// A caller that asks while a callback runs is told to wait, and is woken when the callback has returned.
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
                // SAFETY: the producer is valid during a callback.
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

/// A task can end with its last waker, and then use the stream once more.
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

/// A wake callback holds what it wakes, and the other side can take its time.
#[test]
fn a_wake_callback_goes_with_its_reader_or_writer() {
    let _alone = alone();
    let (woken, other) = (Arc::new(()), Arc::new(()));
    let waking = |woken: &Arc<()>| {
        let woken = Arc::clone(woken);
        Some(asynchronous::Wake::new(move || _ = &woken).unwrap())
    };
    let reader = AsyncReader::new(options(1), waking(&woken)).unwrap();
    let handler = reader.handler().unwrap();
    drop(reader);
    assert_eq!(Arc::strong_count(&woken), 1, "while the handler lives");
    // SAFETY: a handler that nobody else has.
    let writer = unsafe { AsyncWriter::new(handler, DeviceType::CPU, None, waking(&other)) }.unwrap();
    drop(writer);
    // The consumer may still call the producer for a while.
    assert_eq!(Arc::strong_count(&other), 1, "while the producer lives");
    assert_eq!(ledger::outstanding(), 0);
}

/// Below it on the stack is the producer's code, and beside it are tasks that are still to be woken.
#[test]
fn a_wake_that_panics_stays_on_this_side() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("by the user");
        }
    }
    let _alone = alone();
    let wake = asynchronous::Wake::new(|| panic!("by the user")).unwrap();
    let reader = AsyncReader::new(options(4), Some(wake)).unwrap();
    // SAFETY: a handler that nobody else has.
    let writer = unsafe { AsyncWriter::new(reader.handler().unwrap(), DeviceType::CPU, None, None) }.unwrap();
    let [task] = counts();
    {
        let (mut panics, mut counted) = (pin!(reader.batch()), pin!(reader.batch()));
        let waker = Waker::from(Arc::new(Panics));
        assert!(panics.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(poll_of(counted.as_mut(), &task).is_pending());
        let schema = schema();
        writer.start(&schema).unwrap();
        writer.try_send(batch(&schema, 3), None).map_err(|refused| refused.error).unwrap();
    }
    assert!(task.0.load(SeqCst) > 0, "the other task was not woken");
    writer.finish().unwrap();
    // The callbacks count as returned, so they do not seem to overlap.
    assert_eq!(reader.wait_batch(None).unwrap().map(|(batch, _)| batch.length()), Some(3));
    assert!(reader.wait_batch(None).unwrap().is_none());
    drop((reader, writer));
    assert_eq!(ledger::outstanding(), 0);
}
