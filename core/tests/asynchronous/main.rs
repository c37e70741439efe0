//! Asynchronous streams: on several threads, for a long time, with metadata and errors.
//! `tests/tests/async_schedules` covers what a peer may do, and when.
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "a test plays the part of a foreign program")]
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

mod awaiting;
#[path = "../patience/mod.rs"]
mod patience;
mod peers;

use core::ffi::c_void;
use std::ptr::null;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use devexchange_core::abi::types::*;
use devexchange_core::arrow::asynchronous::{AsyncReader, AsyncWriter, QUARANTINE, ReaderOptions};
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::metadata;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::{Batch, Device, DeviceType, Error, Owner, Schema, ledger};

/// Runs tests one at a time: the ledger and the quarantine belong to the process.
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
    // SAFETY: a handler that nobody else has.
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
            // The program can run for longer than this test.
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

#[test]
fn a_request_that_cannot_be_counted_says_what_it_came_to() {
    let _alone = alone();
    let reader = AsyncReader::new(options(5), None).unwrap();
    let error = reader.request(i64::MAX - 2).unwrap_err();
    assert_eq!(error.status(), DEVX_OUT_OF_RANGE);
    let says = "n is 9223372036854775805: more than can be counted with 0 requested, 0 queued and a limit of 5";
    assert_eq!(error.message(), says);
    reader.request(i64::MAX - 5).unwrap();
    let error = reader.request(1).unwrap_err();
    assert!(
        error.message().starts_with("n is 1: more than can be counted with 9223372036854775802 requested"),
        "{error}"
    );
}

#[test]
fn metadata_and_errors_go_across() {
    let _alone = alone();
    let [block, of_batch] = [b"12", b" 5"].map(|rows| metadata::encode(&[(b"rows", rows)]).unwrap());
    let reader = AsyncReader::new(options(2), None).unwrap();
    let handler = reader.handler().unwrap();
    // SAFETY: just handed out.
    let refused = unsafe { AsyncWriter::new(handler, DeviceType::CPU, Some(&block[1..]), None) };
    assert_eq!(refused.unwrap_err().status(), DEVX_INVALID_METADATA);
    // SAFETY: as above; the handler was not taken.
    let writer = unsafe { AsyncWriter::new(handler, DeviceType::CPU, Some(&block), None) }.unwrap();
    let schema = schema();
    let refused = writer.try_send(batch(&schema, 1), None).unwrap_err();
    assert_eq!(refused.error.message(), "the stream was not started");
    writer.start(&schema).unwrap();
    assert_eq!(writer.start(&schema).unwrap_err().message(), "the stream was started already");
    assert_eq!(reader.device_type(), Some(DeviceType::CPU));
    assert_eq!(reader.metadata().unwrap().pairs().collect::<Vec<_>>(), [(&b"rows"[..], &b"12"[..])]);

    let other = Schema::new(&[FieldDesc::new(c"numbers", c"c")]).unwrap();
    let refused = writer.try_send(batch(&other, 3), None).unwrap_err();
    assert_eq!((refused.error.status(), refused.returned.length()), (DEVX_MISMATCH, 3));
    assert_eq!(writer.demand(), 2);
    let refused = writer.try_send(batch(&schema, 3), Some(b"no block")).unwrap_err();
    assert_eq!(refused.error.status(), DEVX_INVALID_METADATA);
    writer.try_send(batch(&schema, 5), Some(&of_batch)).map_err(|refused| refused.error).unwrap();
    assert_eq!(writer.fail(0, "no error", None).unwrap_err().status(), DEVX_INVALID_ARGUMENT);
    writer.fail(libc::EIO, "no luck", Some(&block)).unwrap();
    assert_eq!(writer.fail(libc::EIO, "again", None).unwrap_err().status(), DEVX_CLOSED);

    let (taken, with) = reader.wait_batch(None).unwrap().unwrap();
    assert_eq!((taken.length(), with.as_ref().unwrap().as_bytes()), (5, &of_batch[..]));
    assert_ne!(with, reader.metadata());
    let error = reader.wait_batch(None).unwrap_err();
    assert_eq!((error.status(), error.errno()), (DEVX_CALLBACK, libc::EIO));
    assert!(error.message().contains("no luck"), "{error}");
    assert_eq!(reader.producer_error(), Some((libc::EIO, reader.metadata())));
    assert!(reader.wait_batch(None).unwrap().is_none());
    drop((reader, writer, schema, other, taken));
    assert_eq!(ledger::outstanding(), 0);
}

/// A limit of zero is no wait, and a code of the producer is not this library's.
#[test]
fn only_a_wait_that_reached_its_limit_is_late() {
    let _alone = alone();
    let (reader, writer) = pair(1);
    let said = |error: &Error| (error.status(), error.is_late(), error.errno());
    let soon = Some(Duration::from_micros(1));
    assert_eq!(said(&reader.wait_schema(soon).unwrap_err()), (DEVX_NOT_READY, true, libc::ETIMEDOUT));
    assert_eq!(said(&reader.wait_schema(Some(Duration::ZERO)).unwrap_err()), (DEVX_NOT_READY, false, 0));
    writer.start(&schema()).unwrap();
    assert_eq!(said(&reader.wait_batch(soon).unwrap_err()), (DEVX_NOT_READY, true, libc::ETIMEDOUT));
    writer.fail(libc::ETIMEDOUT, "no answer", None).unwrap();
    assert_eq!(said(&reader.wait_batch(soon).unwrap_err()), (DEVX_CALLBACK, false, libc::ETIMEDOUT));
    drop((reader, writer));
    assert_eq!(ledger::outstanding(), 0);
}

#[test]
fn a_stream_that_starts_meanwhile_takes_no_batch_of_another_type() {
    let _alone = alone();
    let (bytes, doubles) = (schema(), Schema::new(&[FieldDesc::new(c"doubles", c"g")]).unwrap());
    let one = batch(&bytes, 1);
    for round in 0..1_000 {
        let (_reader, writer) = pair(4);
        let send = || loop {
            match writer.try_send(one.clone(), None).map_err(|refused| refused.error.status()) {
                // Not started yet, or another sender was quicker.
                Err(DEVX_INVALID_ARGUMENT | DEVX_BUSY) => {}
                answer => return answer,
            }
        };
        thread::scope(|scope| {
            // Several, so that they have to wait for the lock between their steps.
            let senders = [(); 4].map(|()| scope.spawn(send));
            writer.start(&doubles).unwrap();
            for sender in senders {
                assert_eq!(sender.join().unwrap(), Err(DEVX_MISMATCH), "in round {round}");
            }
        });
    }
}
