//! Asynchronous streams from a writer to a reader, on one thread. A stream that runs out of memory ends with an error
//! for its user, if there is one, and with an end for the other side.
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use std::task::Poll;

use devexchange_core::abi::types::{DEVX_CALLBACK, DEVX_CLOSED, DEVX_OUT_OF_MEMORY};
use devexchange_core::arrow::asynchronous::{AsyncReader, AsyncWriter, ReaderOptions, Wake};
use devexchange_core::arrow::metadata;
use devexchange_core::{Batch, DeviceType};

use super::failing::{FAILED, watched};
use super::{Run, batch};

/// More than the initial room of a queue.
const REQUESTED: i64 = 6;

/// A wake that keeps something alive, which is released with it.
fn wake(run: &Run) -> Option<Wake> {
    let alive = run.owner();
    let wake = move || {
        let _alive = &alive;
    };
    run.attempt(|| Wake::new(wake))
}

struct Both {
    reader: AsyncReader,
    writer: AsyncWriter,
    batch: Batch,
    metadata: Vec<u8>,
}

impl Both {
    /// A stream that has started.
    fn new(run: &Run) -> Option<Self> {
        let batch = batch(run)?;
        let metadata = run.attempt(|| metadata::encode(&[(b"key", b"value")]))?;
        let options = ReaderOptions { limit: REQUESTED, abi_h_metadata: true };
        let wakes = (wake(run), wake(run));
        let reader = run.attempt(|| AsyncReader::new(options, wakes.0))?;
        let handler = run.attempt(|| reader.handler())?;
        let made = run.attempt(|| unsafe { AsyncWriter::new(handler, DeviceType::CPU, Some(&metadata), wakes.1) });
        let Some(writer) = made else {
            // The handler was not taken.
            unsafe { (*handler).release.unwrap()(handler) };
            return None;
        };
        let started = run.attempt(|| writer.start(batch.schema()));
        let both = Self { reader, writer, batch, metadata };
        if started.is_some() {
            assert_eq!(both.reader.metadata().unwrap().as_bytes(), both.metadata);
            return Some(both);
        }
        assert_eq!(both.give_up(run), 0);
        None
    }

    /// Drops the writer without an end: the reader gets the error, once.
    fn give_up(self, run: &Run) -> usize {
        let Self { reader, writer, batch: _, metadata } = self;
        let told = run.told.get();
        watched(|| drop(writer));
        let taken = take(run, &reader, &metadata);
        assert_eq!(run.told.get(), told + 1);
        watched(|| drop(reader));
        taken
    }

    /// Sends what is requested, each batch twice if necessary: a refused batch is unchanged.
    fn send(&self, run: &Run) -> usize {
        let mut sent = 0;
        let mut again = true;
        while self.writer.demand() > 0 {
            let mine = self.batch.clone();
            match watched(|| self.writer.try_send(mine, Some(&self.metadata))) {
                Ok(()) => sent += 1,
                Err(refused) if refused.error.status() == DEVX_OUT_OF_MEMORY && again => {
                    assert_eq!(refused.returned.length(), 2);
                    run.is_told(&refused.error);
                    again = false;
                }
                Err(refused) => {
                    self.is_over(&refused.error);
                    break;
                }
            }
        }
        sent
    }

    /// The stream ended for lack of memory: here, or in the reader, which then cancelled.
    fn is_over(&self, error: &devexchange_core::Error) {
        assert!(FAILED.get() > 0, "{error}");
        assert!([DEVX_CLOSED, DEVX_CALLBACK, DEVX_OUT_OF_MEMORY].contains(&error.status()), "{error}");
    }

    /// Ends the stream as the writer's user, which learns of it if the reader cancelled.
    fn end(&self, act: impl FnOnce(&AsyncWriter) -> devexchange_core::Result<()>) {
        if let Err(error) = watched(|| act(&self.writer)) {
            self.is_over(&error);
        }
    }
}

/// Takes what has come, up to the end. Returns the number of batches.
fn take(run: &Run, reader: &AsyncReader, metadata: &[u8]) -> usize {
    let mut taken = 0;
    loop {
        match watched(|| reader.try_batch()) {
            Poll::Ready(Some(Ok((batch, with)))) => {
                assert_eq!((batch.length(), with.unwrap().as_bytes()), (2, metadata));
                taken += 1;
            }
            Poll::Ready(Some(Err(error))) => run.is_told(&error),
            Poll::Ready(None) | Poll::Pending => return taken,
        }
    }
}

/// If no memory was missing, everything must have come.
fn all_if(run: &Run, taken: usize, sent: usize) {
    assert!(taken <= sent);
    assert!(taken == sent || run.told.get() > 0, "{taken} of {sent}");
}

pub(crate) fn to_the_end(run: &Run) {
    let Some(both) = Both::new(run) else { return };
    let mut sent = both.send(run);
    let mut taken = take(run, &both.reader, &both.metadata);
    sent += both.send(run);
    both.end(AsyncWriter::finish);
    taken += take(run, &both.reader, &both.metadata);
    all_if(run, taken, sent);
    assert!(sent == 2 * REQUESTED as usize || FAILED.get() > 0);
    watched(|| drop(both));
}

pub(crate) fn to_an_error(run: &Run) {
    let Some(both) = Both::new(run) else { return };
    let sent = both.send(run);
    both.end(|writer| writer.fail(libc::EIO, "no luck", Some(&both.metadata)));
    let before = run.told.get();
    let taken = take(run, &both.reader, &both.metadata);
    assert_eq!(run.told.get(), before + 1, "an error is told once");
    all_if(run, taken, sent);
    if FAILED.get() == 0 {
        let (code, with) = both.reader.producer_error().unwrap();
        assert_eq!((code, with.unwrap().as_bytes()), (libc::EIO, &both.metadata[..]));
        // This error was intended.
        run.told.set(before);
    }
    watched(|| drop(both));
}

pub(crate) fn to_a_cancel(run: &Run) {
    let Some(both) = Both::new(run) else { return };
    both.send(run);
    watched(|| both.reader.cancel());
    both.end(AsyncWriter::finish);
    assert!(matches!(watched(|| both.reader.try_batch()), Poll::Ready(None)));
    watched(|| drop(both));
}

/// The writer is dropped first, and then the reader, with everything in its queue.
pub(crate) fn to_nowhere(run: &Run) {
    let before = run.told.get();
    let Some(both) = Both::new(run) else { return };
    both.send(run);
    let told = run.told.get();
    both.give_up(run);
    if FAILED.get() == 0 {
        assert_eq!(told, before);
        run.told.set(before);
    }
    let Some(both) = Both::new(run) else { return };
    both.send(run);
    let Both { reader, writer, .. } = both;
    watched(|| drop(reader));
    watched(|| drop(writer));
}
