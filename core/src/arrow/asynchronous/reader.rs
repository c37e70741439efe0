//! The consumer of an asynchronous stream.

use std::fmt;
use std::future::poll_fn;
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

/// How a reader asks for batches, and what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderOptions {
    /// Batches that are kept requested: so many when the schema has come, and one more for each that is taken; 4 unless it is
    /// said otherwise. With 0, batches come only after [`AsyncReader::request`].
    pub limit: i64,
    /// Whether the producer's struct is the one of Arrow's `abi.h` (40 bytes), so that its metadata can be read. The
    /// specification's text has another one (48 bytes, with a `release`), in which the field lies elsewhere, and a
    /// struct does not say which it is. All other fields that are read lie at the same place in both.
    pub abi_h_metadata: bool,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self { limit: 4, abi_h_metadata: false }
    }
}

/// A batch and its metadata.
pub type Received = (Batch, Option<MetadataBlock>);

/// Takes the batches of somebody's asynchronous stream.
///
/// Give [`AsyncReader::handler`] to a producer; then await the schema and the batches, or use the reader as a
/// [`futures_core::Stream`], whose combinators have the short names (`next`, `try_next`). For those without an executor, what
/// can be awaited can be had in three other ways: `try_…` is what there is now, `poll_…` calls a waker later, `wait_…` blocks
/// the thread. All methods may be called from any thread, several at once, and from within callbacks. A batch goes to one of
/// those who ask.
///
/// Every task of the producer's is extracted exactly once: for whoever takes the batch, or without its data when
/// nobody wants it. An error is given once, after the batches that came before it. If the producer breaks the
/// contract, the stream ends with an error with the code `EPROTO`, and the producer is asked to cancel.
///
/// Dropping the reader cancels the stream. What the producer was given stays valid until it releases the handler;
/// that release waits for a call of `request` or `cancel` on another thread, so a producer must not hold a lock there
/// that those take.
pub struct AsyncReader(Slab<Shared>);

impl AsyncReader {
    /// A reader that calls `wake`, if there is one, when there is something to poll for.
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

    /// The handler for a producer, once. Whoever has it calls its `release` exactly once: the producer that took it,
    /// or the caller if none did. It is valid until then, whether the reader still is or not.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` the second time.
    pub fn handler(&self) -> Result<*mut ArrowAsyncDeviceStreamHandler> {
        let handler = Shared::hand_out(&self.0);
        handler.ok_or_else(|| Error::new(DEVX_INVALID_ARGUMENT, "the handler was handed out already"))
    }

    /// Asks for `n` more batches. After the end, or when the stream was cancelled, it does nothing.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` if `n` is not positive, `DEVX_OUT_OF_RANGE` if all that is requested cannot be counted.
    pub fn request(&self, n: i64) -> Result<()> {
        self.0.header().state.with(|reading| reading.request(n))?;
        self.0.clone().header().settle();
        Ok(())
    }

    /// Asks the producer to stop, and takes nothing any more: the stream ends here, without an error. Again it does
    /// nothing.
    pub fn cancel(&self) {
        self.0.header().state.with(|reading| reading.cancel());
        self.0.clone().header().settle();
    }

    /// The schema, if it has come.
    ///
    /// # Errors
    /// What ended the stream before its schema; `DEVX_CLOSED` if it was cancelled.
    pub fn try_schema(&self) -> Poll<Result<Schema>> {
        self.0.header().state.with(|reading| reading.schema())
    }

    /// As [`AsyncReader::try_schema`]; the waker is called when there may be an answer. One task at a time has its
    /// waker here, but for those that await.
    ///
    /// # Errors
    /// Same as [`AsyncReader::try_schema`].
    pub fn poll_schema(&self, cx: &mut Context<'_>) -> Poll<Result<Schema>> {
        self.0.header().state.poll(cx, |reading| reading.schema())
    }

    /// The schema, when it has come.
    ///
    /// # Errors
    /// Same as [`AsyncReader::try_schema`].
    pub async fn schema(&self) -> Result<Schema> {
        let mut awaiting = self.0.header().state.awaiting();
        poll_fn(|cx| awaiting.poll(cx, Reading::schema)).await
    }

    /// Waits for the schema, `None` for as long as it takes.
    ///
    /// # Errors
    /// Same as [`AsyncReader::try_schema`]; `DEVX_NOT_READY` after the time.
    pub fn wait_schema(&self, timeout: Option<Duration>) -> Result<Schema> {
        let shared = self.0.clone();
        let schema = shared.header().state.wait(&Deadline::after(timeout), |reading| reading.schema());
        in_time(schema, timeout, "the schema has not come")?
    }

    /// The next batch with its metadata, if it has come; `None` at the end.
    ///
    /// # Errors
    /// The producer's error, or that it broke the contract (`DEVX_CALLBACK` with the code in [`Error::errno`]), or what
    /// [`Batch::import_device`] says of an array.
    pub fn try_batch(&self) -> Poll<Option<Result<Received>>> {
        let next = self.0.header().state.with(|reading| reading.next());
        next.map(|next| taken(self.0.clone().header(), next))
    }

    /// As [`AsyncReader::try_batch`]; the waker is called when there may be an answer. One task at a time has its waker
    /// here, but for those that await.
    ///
    /// # Errors
    /// Same as [`AsyncReader::try_batch`].
    pub fn poll_batch(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Received>>> {
        let next = self.0.header().state.poll(cx, |reading| reading.next());
        next.map(|next| taken(self.0.clone().header(), next))
    }

    /// The next batch with its metadata, when it has come; `None` at the end. As a stream the reader gives the batch alone.
    ///
    /// # Errors
    /// Same as [`AsyncReader::try_batch`].
    pub async fn batch(&self) -> Result<Option<Received>> {
        let mut awaiting = self.0.header().state.awaiting();
        let next = poll_fn(|cx| awaiting.poll(cx, Reading::next)).await;
        taken(self.0.clone().header(), next).transpose()
    }

    /// Waits for the next batch, `None` for as long as it takes.
    ///
    /// # Errors
    /// Same as [`AsyncReader::try_batch`]; `DEVX_NOT_READY` after the time.
    pub fn wait_batch(&self, timeout: Option<Duration>) -> Result<Option<Received>> {
        let shared = self.0.clone();
        let next = shared.header().state.wait(&Deadline::after(timeout), |reading| reading.next());
        taken(shared.header(), in_time(next, timeout, "no batch has come")?).transpose()
    }

    /// The device type that the producer says its arrays have, when the schema has come.
    pub fn device_type(&self) -> Option<DeviceType> {
        self.0.header().peer.get().map(|peer| peer.device_type)
    }

    /// The producer's metadata, when the schema has come; see [`ReaderOptions::abi_h_metadata`].
    pub fn metadata(&self) -> Option<MetadataBlock> {
        self.0.header().peer.get().and_then(|peer| peer.metadata.clone())
    }

    /// What the producer's `on_error` said besides the text: code and metadata; `None` if there was none.
    pub fn producer_error(&self) -> Option<(i32, Option<MetadataBlock>)> {
        self.0.header().producer_error.get().cloned()
    }
}

held_by_bindings!(AsyncReader, "reader");

/// What a step of the state gave, with the data of its task.
fn taken(shared: &Shared, next: Next<Arrival>) -> Option<Result<Received>> {
    let answer = match next {
        Next::End => None,
        Next::Error(error) => Some(Err(error)),
        Next::Task(Arrival { task, metadata }) => {
            // No task is accepted before the schema.
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

/// What was waited for so long; `why` says that it is not there.
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
        self.cancel();
        self.0.header().state.silence();
    }
}

/// The batches without their metadata.
impl futures_core::Stream for AsyncReader {
    type Item = Result<Batch>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Batch>>> {
        self.poll_batch(cx).map(|next| next.map(|next| next.map(|(batch, _metadata)| batch)))
    }
}

impl fmt::Debug for AsyncReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncReader").field("device_type", &self.device_type()).finish_non_exhaustive()
    }
}
