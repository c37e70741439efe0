//! The consumer of an asynchronous stream.

use std::fmt;
use std::future::poll_fn;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::bell::Deadline;
use super::handler::{Arrival, Shared};
use super::reading::{Next, Reading};
use super::{MetadataBlock, Wake};
use crate::abi::arrow_async::ArrowAsyncDeviceStreamHandler;
use crate::abi::types::{DEVX_INVALID_ARGUMENT, DEVX_NOT_READY};
use crate::arrow::{Batch, Schema};
use crate::device::DeviceType;
use crate::error::{Error, Result, refuse};
use crate::memory::{Slab, held_by_bindings};

/// How a reader asks for batches, and whether it reads the producer's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderOptions {
    /// The number of batches that are kept requested; 4 by default. The reader requests this many when the schema has
    /// come, and one more for each batch that is taken. With 0, batches come only after [`AsyncReader::request`].
    pub limit: i64,
    /// Whether the producer's struct is that of Arrow's `abi.h` (40 bytes), so that its metadata can be read.
    ///
    /// The text of the specification has another struct (48 bytes, with a `release`), in which this field lies
    /// elsewhere, and a struct does not say which of the two it is. All other fields that are read lie at the same
    /// place in both.
    pub abi_h_metadata: bool,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self { limit: 4, abi_h_metadata: false }
    }
}

/// A batch and its metadata.
pub type Received = (Batch, Option<MetadataBlock>);

/// Receives the batches of a producer's asynchronous stream.
///
/// Give [`AsyncReader::handler`] to a producer; then await the schema and the batches, or use the reader as a
/// [`futures_core::Stream`], whose combinators have the short names (`next`, `try_next`). Without an executor,
/// everything that can be awaited is also available in three other ways: `try_…` returns what there is now, `poll_…`
/// calls a waker later, `wait_…` blocks the thread.
///
/// All methods can be called from any thread, several at once, and from within callbacks. Each batch goes to only one
/// of the callers that ask.
///
/// Every task of the producer is extracted exactly once: by the caller that takes the batch, or without its data if
/// nobody wants it. An error is returned once, after the batches that came before it. If the producer breaks the
/// contract, the stream ends with an error with the code `EPROTO`, and the producer is asked to cancel.
///
/// Dropping the reader cancels the stream, except in a child of `fork`, which leaves it to its parent. The handler stays
/// valid until the producer releases it. That release waits for a call of `request` or `cancel` on another thread, so the
/// producer must not hold a lock during it that those functions take.
pub struct AsyncReader(Slab<Shared>);

impl AsyncReader {
    /// Makes a reader that calls `wake`, if there is one, when there is something to poll for.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for a negative limit, `DEVX_OUT_OF_MEMORY`.
    pub fn new(options: ReaderOptions, wake: Option<Wake>) -> Result<Self> {
        let ReaderOptions { limit, abi_h_metadata } = options;
        if limit < 0 {
            return refuse!(DEVX_INVALID_ARGUMENT, "limit is {limit}: a number of batches is needed, or 0");
        }
        Ok(Self(Shared::new(limit, abi_h_metadata, wake)?))
    }

    /// Returns the handler for a producer, once.
    ///
    /// Whoever has it calls its `release` exactly once: the producer that took it, or the caller if none did. It is
    /// valid until then, even if the reader is dropped before.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` the second time.
    pub fn handler(&self) -> Result<*mut ArrowAsyncDeviceStreamHandler> {
        let handler = Shared::hand_out(&self.0);
        handler.ok_or_else(|| Error::new(DEVX_INVALID_ARGUMENT, "the handler was handed out already"))
    }

    /// Requests `n` more batches. Does nothing after the end, or if the stream was cancelled.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` if `n` is not positive, `DEVX_OUT_OF_RANGE` if the sum of all requests cannot be
    /// counted.
    pub fn request(&self, n: i64) -> Result<()> {
        self.0.header().state.with(|reading| reading.request(n))?;
        self.0.clone().header().settle();
        Ok(())
    }

    /// Asks the producer to stop, and discards what has come. The stream ends here, without an error. A second call
    /// does nothing, and neither does a call in a child of `fork`.
    pub fn cancel(&self) {
        if !self.0.header().home.is_here() {
            return;
        }
        self.0.header().state.with(|reading| reading.cancel());
        self.0.clone().header().settle();
    }

    /// Returns the schema, if it has come.
    ///
    /// # Errors
    /// The error that ended the stream before its schema; `DEVX_CLOSED` if it was cancelled.
    pub fn try_schema(&self) -> Poll<Result<Schema>> {
        self.0.header().state.with(|reading| reading.schema())
    }

    /// Like [`AsyncReader::try_schema`], but calls the waker when there may be an answer. All `poll_…` calls share one
    /// waker, that of the latest call; each task that awaits has its own.
    ///
    /// # Errors
    /// Same as [`AsyncReader::try_schema`].
    pub fn poll_schema(&self, cx: &mut Context<'_>) -> Poll<Result<Schema>> {
        self.0.header().state.poll(cx, |reading| reading.schema())
    }

    /// Returns the schema, when it has come. The future may be dropped at any time: nothing is lost.
    ///
    /// # Errors
    /// Same as [`AsyncReader::try_schema`].
    pub async fn schema(&self) -> Result<Schema> {
        let mut awaiting = self.0.header().state.awaiting();
        poll_fn(|cx| awaiting.poll(cx, Reading::schema)).await
    }

    /// Blocks the thread until the schema has come; `None` waits without limit.
    ///
    /// # Errors
    /// Same as [`AsyncReader::try_schema`]; `DEVX_NOT_READY` after the timeout.
    pub fn wait_schema(&self, timeout: Option<Duration>) -> Result<Schema> {
        let shared = self.0.clone();
        let schema = shared.header().state.wait(&Deadline::after(timeout), |reading| reading.schema());
        in_time(schema, timeout, "the schema has not come")?
    }

    /// Returns the next batch with its metadata, if it has come; `None` at the end.
    ///
    /// # Errors
    /// `DEVX_CALLBACK` with the code in [`Error::errno`] if the producer failed or broke the contract; the errors of
    /// [`Batch::import_device`] for an array.
    pub fn try_batch(&self) -> Poll<Option<Result<Received>>> {
        let next = self.0.header().state.with(|reading| reading.next());
        next.map(|next| taken(self.0.clone().header(), next))
    }

    /// Like [`AsyncReader::try_batch`], but calls the waker when there may be an answer, as
    /// [`AsyncReader::poll_schema`] does.
    ///
    /// # Errors
    /// Same as [`AsyncReader::try_batch`].
    pub fn poll_batch(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Received>>> {
        let next = self.0.header().state.poll(cx, |reading| reading.next());
        next.map(|next| taken(self.0.clone().header(), next))
    }

    /// Returns the next batch with its metadata, when it has come; `None` at the end. As a stream, the reader returns
    /// batches without metadata. The future may be dropped at any time: no batch is lost, the next caller gets it.
    ///
    /// # Errors
    /// Same as [`AsyncReader::try_batch`].
    pub async fn batch(&self) -> Result<Option<Received>> {
        let mut awaiting = self.0.header().state.awaiting();
        let next = poll_fn(|cx| awaiting.poll(cx, Reading::next)).await;
        taken(self.0.clone().header(), next).transpose()
    }

    /// Blocks the thread until the next batch has come; `None` waits without limit.
    ///
    /// # Errors
    /// Same as [`AsyncReader::try_batch`]; `DEVX_NOT_READY` after the timeout.
    pub fn wait_batch(&self, timeout: Option<Duration>) -> Result<Option<Received>> {
        let shared = self.0.clone();
        let next = shared.header().state.wait(&Deadline::after(timeout), |reading| reading.next());
        taken(shared.header(), in_time(next, timeout, "no batch has come")?).transpose()
    }

    /// The device type that the producer says its arrays have, once the schema has come.
    pub fn device_type(&self) -> Option<DeviceType> {
        self.0.header().peer.get().map(|peer| peer.device_type)
    }

    /// The producer's metadata, once the schema has come; see [`ReaderOptions::abi_h_metadata`].
    pub fn metadata(&self) -> Option<MetadataBlock> {
        self.0.header().peer.get().and_then(|peer| peer.metadata.clone())
    }

    /// The code and the metadata that the producer's `on_error` gave in addition to the text; `None` if it was not
    /// called.
    pub fn producer_error(&self) -> Option<(i32, Option<MetadataBlock>)> {
        self.0.header().producer_error.get().cloned()
    }
}

held_by_bindings!(AsyncReader, "reader");

/// The result of a step of the state, with the data of its task extracted.
fn taken(shared: &Shared, next: Next<Arrival>) -> Option<Result<Received>> {
    let answer = match next {
        Next::End => None,
        Next::Error(error) => Some(Err(error)),
        Next::Task(Arrival { task, metadata }) => {
            // The state accepts no task before the schema.
            let batch = match shared.peer.get() {
                Some(peer) => task.take(&peer.schema, peer.device_type),
                None => refuse!(DEVX_NOT_READY, "there is no schema"),
            };
            match batch {
                Ok(batch) => Some(Ok((batch, metadata))),
                Err(error) => shared.state.with(|reading| reading.failed(error)).map(Err),
            }
        }
    };
    shared.settle();
    answer
}

/// The answer that was waited for. `why` is the error text if it did not come in time.
pub(super) fn in_time<T>(answer: Poll<T>, timeout: Option<Duration>, why: &'static str) -> Result<T> {
    match (answer, timeout) {
        (Poll::Ready(answer), _) => Ok(answer),
        (Poll::Pending, Some(timeout)) if !timeout.is_zero() => {
            Err(Error::late(format_args!("timeout is {timeout:?}: {why}")))
        }
        (Poll::Pending, _) => Err(Error::new(DEVX_NOT_READY, why)),
    }
}

impl Drop for AsyncReader {
    fn drop(&mut self) {
        if !self.0.header().home.is_here() {
            // The last reference would give up what belongs to the producer.
            return std::mem::forget(self.0.clone());
        }
        self.cancel();
        self.0.header().state.silence();
    }
}

/// Yields the batches without their metadata.
impl futures_core::Stream for AsyncReader {
    type Item = Result<Batch>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Batch>>> {
        self.poll_batch(cx).map(|next| next.map(|next| next.map(|(batch, _metadata)| batch)))
    }
}

/// Terminated once `None` was returned: a `select!` sees that end, too.
impl futures_core::FusedStream for AsyncReader {
    fn is_terminated(&self) -> bool {
        self.0.header().state.with(|reading| reading.is_over())
    }
}

// A step of the state is complete or does not happen: no code of the user or of the producer runs within one.
impl UnwindSafe for AsyncReader {}
impl RefUnwindSafe for AsyncReader {}

impl fmt::Debug for AsyncReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncReader").field("device_type", &self.device_type()).finish_non_exhaustive()
    }
}
