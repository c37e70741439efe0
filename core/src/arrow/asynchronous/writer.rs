//! The producer of an asynchronous stream.

use core::ffi::c_char;
use std::fmt;
use std::future::poll_fn;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use super::bell::{Belled, Deadline};
use super::producer::{Block, ring};
use super::reader::in_time;
use super::task::Offer;
use super::writing::{Failure, Last, Said, Writing};
use super::{Home, MetadataBlock, Wake, offers};
use crate::abi::arrow_async::ArrowAsyncDeviceStreamHandler;
use crate::abi::arrow_data::ArrowSchema;
use crate::arrow::batch_stream::{require_device_type, require_runtime, require_same_shape};
use crate::arrow::{Batch, Schema, metadata, release_schema};
use crate::device::DeviceType;
use crate::error::{Error, Refused, Result, refuse};
use crate::ledger::{Entry, Kind};
use crate::memory::{Slab, TailSize, held_by_bindings};
use crate::text::{c_string, formatted};

type Handler = ArrowAsyncDeviceStreamHandler;

/// Sends batches to a consumer's handler.
///
/// Call [`AsyncWriter::start`] first; then send one batch for each that the consumer requested, and end the stream with
/// [`AsyncWriter::finish`] or [`AsyncWriter::fail`]. Or use the writer as a [`futures_sink::Sink`], whose combinators
/// have the short names (`send`, `close`). What can be awaited ([`AsyncWriter::ready`]) is also available in three
/// other ways, as in [`AsyncReader`](super::AsyncReader): `try_…`, `poll_…` and `wait_…`.
///
/// The callbacks of the handler are called only from within these methods, one at a time; while one runs, other calls
/// that would need one are refused with `DEVX_BUSY`. When the consumer requests more batches or cancels, the user is
/// woken. After a cancel or an impossible request, the next call that starts, sends, waits or ends releases the handler,
/// [`AsyncWriter::try_ready`] included: so a user that is woken must make one. [`AsyncWriter::demand`] and
/// [`AsyncWriter::is_cancelled`] only look.
///
/// The handler is released exactly once. If the writer is dropped before the end, it tells the consumer (`on_error`
/// with `EPIPE`), unless the consumer cancelled. A writer that is dropped in a child of `fork` stays its parent's, as it is.
pub struct AsyncWriter(Slab<Stream>);

struct Stream {
    handler: *mut Handler,
    device_type: DeviceType,
    block: Slab<Block>,
    /// Set before `on_schema` is called.
    schema: OnceLock<Schema>,
    /// The part of the table that holds the stream's offers.
    shelf: usize,
    /// Present until the handler is released.
    entry: Mutex<Option<Entry>>,
    home: Home,
}

// SAFETY: the handler can be called from any thread, one call at a time, which `Writing` ensures; everything else
// synchronises itself.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl AsyncWriter {
    /// Takes a handler from its consumer; the writer releases it.
    ///
    /// All batches are on devices of `device_type`. `metadata` is for the whole stream: a block of pairs in Arrow's form,
    /// which [`arrow::metadata::encode`](metadata::encode) makes. It is copied. `wake`, if there is one, is called when the
    /// consumer has asked for something.
    ///
    /// # Errors
    /// `DEVX_NULL_ARGUMENT`, `DEVX_RELEASED`, `DEVX_INVALID_ARGUMENT` if a callback is missing, `DEVX_DEVICE` for an
    /// unknown device type, `DEVX_INVALID_METADATA`, `DEVX_OUT_OF_MEMORY`. Then the handler is untouched.
    ///
    /// # Safety
    /// `handler` is NULL or points to a valid handler that no other producer has and that stays valid until its release
    /// is called.
    pub unsafe fn new(
        handler: *mut Handler,
        device_type: DeviceType,
        metadata: Option<&[u8]>,
        wake: Option<Wake>,
    ) -> Result<Self> {
        // SAFETY: the caller's contract.
        match unsafe { handler.as_ref() } {
            None => return refuse!(DEVX_NULL_ARGUMENT, "handler is NULL"),
            Some(handler) if handler.release.is_none() => {
                return refuse!(DEVX_RELEASED, "handler.release is NULL: the handler was released already");
            }
            Some(Handler { on_schema: Some(_), on_next_task: Some(_), on_error: Some(_), .. }) => {}
            Some(_) => {
                return refuse!(DEVX_INVALID_ARGUMENT, "handler.on_schema, .on_next_task or .on_error is NULL");
            }
        }
        require_runtime(device_type)?;
        let room = Slab::room(TailSize::default())?;
        let block = Block::new(device_type.0, metadata.map(MetadataBlock::new).transpose()?, wake)?;
        // SAFETY: the consumer expects the producer here before the first callback.
        unsafe { (*handler).producer = block.header().producer() };
        let entry = Mutex::new(Some(Entry::open(Kind::StreamExport)));
        Ok(Self(room.fill(Stream {
            handler,
            device_type,
            block,
            schema: OnceLock::new(),
            shelf: offers::shelf(),
            entry,
            home: Home::here(),
        })))
    }

    /// Tells the consumer the schema of all batches.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` the second time, `DEVX_CALLBACK` if the consumer refuses the schema, `DEVX_CLOSED` if it
    /// cancelled; the errors of [`Schema::export`].
    pub fn start(&self, schema: &Schema) -> Result<()> {
        self.acting(|stream| {
            let mut exported = ArrowSchema::RELEASED;
            // SAFETY: there is room for a schema.
            unsafe { schema.export(&mut exported) }?;
            let answer = stream.state().with(|writing| writing.start()).and_then(|()| {
                // The state lets a stream start once.
                let _ = stream.schema.set(schema.clone());
                // SAFETY: the handler is not released as long as the stream is busy.
                let code = match unsafe { (*stream.handler).on_schema } {
                    // SAFETY: as above; the struct is the consumer's to move or release.
                    Some(on_schema) => unsafe { on_schema(stream.handler, &mut exported) },
                    None => libc::EINVAL,
                };
                stream.answered("on_schema", code)
            });
            // SAFETY: the struct is ours, unless the consumer moved or released it, which marks it as released.
            unsafe { release_schema(&mut exported) };
            answer
        })
    }

    /// The number of batches that the consumer requested and that were not sent yet; 0 when none can be sent any more.
    pub fn demand(&self) -> i64 {
        self.0.header().state().with(|writing| writing.demand())
    }

    /// Whether the consumer cancelled. Then the next call that sends something or waits releases the handler.
    pub fn is_cancelled(&self) -> bool {
        self.0.header().state().with(|writing| writing.is_cancelled())
    }

    /// Whether a batch can be sent now.
    ///
    /// # Errors
    /// The reason why no batch can be sent any more: `DEVX_CLOSED` if the consumer cancelled or the stream was ended,
    /// `DEVX_INVALID_ARGUMENT` if the consumer made an impossible request or the stream was not started,
    /// `DEVX_CALLBACK` if the consumer refused something.
    pub fn try_ready(&self) -> Poll<Result<()>> {
        self.0.header().settle_alone();
        self.0.header().state().with(|writing| writing.ready())
    }

    /// Like [`AsyncWriter::try_ready`], but calls the waker when there may be an answer. All calls of this method share
    /// one waker, that of the latest call; each task that awaits has its own.
    ///
    /// # Errors
    /// Same as [`AsyncWriter::try_ready`].
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.polled(|| self.0.header().state().poll(cx, look))
    }

    /// Waits until a batch can be sent. [`AsyncWriter::try_send`] then sends one with its metadata. The future may be dropped
    /// at any time: nothing is lost.
    ///
    /// # Errors
    /// Same as [`AsyncWriter::try_ready`].
    pub async fn ready(&self) -> Result<()> {
        let mut awaiting = self.0.header().state().awaiting();
        poll_fn(|cx| self.polled(|| awaiting.poll(cx, look))).await
    }

    /// Polls until there is an answer, or until there is none yet and nothing has to be told to the handler first.
    fn polled(&self, mut poll: impl FnMut() -> Poll<Option<Result<()>>>) -> Poll<Result<()>> {
        loop {
            self.0.header().settle_alone();
            match poll() {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(answer)) => return Poll::Ready(answer),
                Poll::Ready(None) => {}
            }
        }
    }

    /// Blocks the thread until a batch can be sent; `None` waits without limit.
    ///
    /// # Errors
    /// Same as [`AsyncWriter::try_ready`]; `DEVX_NOT_READY` after the timeout.
    pub fn wait_ready(&self, timeout: Option<Duration>) -> Result<()> {
        let deadline = Deadline::after(timeout);
        let held = self.0.clone();
        let stream = held.header();
        loop {
            stream.settle_alone();
            let answer = stream.state().wait(&deadline, look);
            if let Some(answer) = in_time(answer, timeout, "the consumer has requested no batch")? {
                return answer;
            }
        }
    }

    /// Sends a batch to the consumer, with its metadata (a block of [`arrow::metadata::encode`](metadata::encode)), if the
    /// consumer has requested one. Pass a clone to share the batch, the batch itself to move it.
    ///
    /// # Errors
    /// `DEVX_NOT_READY` if the consumer requested no more, `DEVX_DEVICE` or `DEVX_MISMATCH` if the batch does not fit
    /// the stream, `DEVX_BUSY`, `DEVX_INVALID_METADATA`; otherwise same as [`AsyncWriter::try_ready`]. The batch is
    /// given back.
    pub fn try_send(&self, batch: Batch, metadata: Option<&[u8]>) -> std::result::Result<(), Refused<Batch>> {
        let kept = batch.clone();
        // The user may drop the writer within a callback.
        let stream = self.0.clone();
        stream.header().send(batch, metadata).map_err(|error| Refused { error, returned: kept })
    }

    /// Ends the stream and releases the handler. Also succeeds if the consumer cancelled.
    ///
    /// # Errors
    /// `DEVX_CALLBACK` if the consumer refused something, `DEVX_CLOSED` if the stream was ended already,
    /// `DEVX_INVALID_ARGUMENT` if it was not started, `DEVX_BUSY`.
    pub fn finish(&self) -> Result<()> {
        self.acting(|stream| stream.ended(|writing| writing.finish()))
    }

    /// Tells the consumer of an error (an `errno` code, a text, and metadata, a block of
    /// [`arrow::metadata::encode`](metadata::encode)) and releases the handler, whether the stream was started or not. Also
    /// succeeds if the consumer cancelled; then it is not told.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for the code 0, `DEVX_CLOSED` if the stream was ended already, `DEVX_INVALID_METADATA`,
    /// `DEVX_BUSY`. If there is no memory for the text, the consumer gets only the code and the metadata.
    pub fn fail(&self, code: i32, message: &str, metadata: Option<&[u8]>) -> Result<()> {
        if code == 0 {
            return refuse!(DEVX_INVALID_ARGUMENT, "code is 0, which is not an error");
        }
        metadata.map_or(Ok(()), metadata::check_bytes)?;
        let failure = Failure { code, text: Said::Text(message), metadata };
        self.acting(|stream| stream.ended(|writing| writing.fail(failure)))
    }

    /// Runs an action of the user. What the consumer has asked for is handled before and after it.
    fn acting(&self, act: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        // The user may drop the writer within a callback.
        let held = self.0.clone();
        let stream = held.header();
        stream.settle_alone();
        act(stream).and(stream.settle())
    }
}

held_by_bindings!(AsyncWriter, "writer");

/// Looks at the state for a caller that waits; `None` if the handler has to be told something first.
fn look(writing: &mut Writing) -> Poll<Option<Result<()>>> {
    if writing.has_ending() { Poll::Ready(None) } else { writing.ready().map(Some) }
}

fn address(block: Option<&[u8]>) -> *const c_char {
    block.map_or(std::ptr::null(), |block| block.as_ptr().cast())
}

impl Stream {
    fn state(&self) -> &Belled<Writing> {
        &self.block.header().state
    }

    /// Sends a batch. It does by itself what [`AsyncWriter::acting`] does for other actions, but in the same turns of
    /// the lock.
    fn send(&self, batch: Batch, metadata: Option<&[u8]>) -> Result<()> {
        let schema = self.schema.get();
        let fits = metadata.map_or(Ok(()), metadata::check_bytes).and_then(|()| self.require_same(&batch, schema));
        if let Err(error) = self.settled(|writing| fits.and_then(|()| writing.send())) {
            self.settle_alone();
            return Err(error);
        }
        // A stream that can send has a schema. Another thread may have given it meanwhile.
        let fits = schema.map_or_else(|| self.require_same(&batch, self.schema.get()), |_| Ok(()));
        let mut offer = match fits.and_then(|()| Offer::new(batch, self.shelf)) {
            Ok(offer) => offer,
            Err(error) => {
                return self.stepped(|writing| {
                    writing.unsent();
                    Err(error)
                });
            }
        };
        let number = offer.number();
        // SAFETY: the handler is not released as long as the stream is busy.
        let code = match unsafe { (*self.handler).on_next_task } {
            // SAFETY: as above; the task is valid during the call.
            Some(on_next_task) => unsafe { on_next_task(self.handler, offer.as_mut_ptr(), address(metadata)) },
            None => libc::EINVAL,
        };
        if code != 0 {
            Offer::withdraw(number);
        }
        self.answered("on_next_task", code)
    }

    /// Checks that a batch fits the stream, as far as that is known without a schema: before the stream is started.
    fn require_same(&self, batch: &Batch, schema: Option<&Schema>) -> Result<()> {
        require_device_type(batch.device().kind, self.device_type)?;
        schema.map_or(Ok(()), |schema| require_same_shape(batch.schema(), schema))
    }

    fn answered(&self, callback: &'static str, code: i32) -> Result<()> {
        self.stepped(|writing| writing.answered(callback, code))
    }

    /// Takes a step for which threads may wait within this library, and does what follows from it.
    fn stepped(&self, step: impl FnOnce(&mut Writing) -> Result<()>) -> Result<()> {
        let (answer, settled) = self.state().turn(|writing, bells| {
            let answer = step(writing);
            bells.nudge();
            (answer, writing.is_settled())
        });
        if settled { answer } else { answer.and(self.settle()) }
    }

    /// Takes a step, after [`Stream::settle_alone`] if that has anything to do.
    fn settled(&self, step: impl FnOnce(&mut Writing) -> Result<()>) -> Result<()> {
        let early = self.state().with(|writing| if writing.is_settled() { Ok(step(writing)) } else { Err(step) });
        early.unwrap_or_else(|step| {
            self.settle_alone();
            self.state().with(step)
        })
    }

    /// Tells the consumer its last word, if it is time for that, and releases the handler. Otherwise tells the user, if
    /// there is something new.
    #[cold]
    fn settle(&self) -> Result<()> {
        let (last, news) = self.state().turn(|writing, bells| match writing.ending() {
            None => (None, ring(writing, bells)),
            last => (last, None),
        });
        match (last, news) {
            (Some(last), _) => return self.conclude(last),
            (None, Some(news)) => news.tell(),
            (None, None) => {}
        }
        Ok(())
    }

    /// Takes a step that ends the stream, and tells the consumer if it has to be told.
    fn ended<'a>(&self, end: impl FnOnce(&mut Writing) -> Result<Option<Last<'a>>>) -> Result<()> {
        match self.state().with(end)? {
            Some(last) => self.conclude(last),
            None => Ok(()),
        }
    }

    /// Tells the consumer its last word, and releases the handler.
    fn conclude(&self, last: Last<'_>) -> Result<()> {
        let answer = self.say(last);
        self.release();
        if let Some(news) = self.state().turn(ring) {
            news.tell();
        }
        answer
    }

    /// Like [`Stream::settle`], but without the result, before any action of the user.
    fn settle_alone(&self) {
        // The next step reports any error.
        let _ = self.settle();
    }

    fn say(&self, last: Last<'_>) -> Result<()> {
        // SAFETY: the handler is released after this.
        let Handler { on_next_task, on_error, .. } = unsafe { *self.handler };
        match last {
            Last::Nothing => Ok(()),
            Last::End => {
                // SAFETY: as above; a NULL task is the end.
                let code =
                    on_next_task.map_or(0, |f| unsafe { f(self.handler, std::ptr::null_mut(), std::ptr::null()) });
                if code == 0 {
                    return Ok(());
                }
                Err(Error::callback(code, format_args!("the consumer's on_next_task returned {code} at the end")))
            }
            Last::Error(Failure { code, text, metadata }) => {
                let text = formatted(format_args!("{text}")).and_then(|text| c_string(&text));
                let said = text.as_deref().unwrap_or(c"there is no memory for what it says");
                if let Some(on_error) = on_error {
                    // SAFETY: as above; the texts are valid during the call.
                    unsafe { on_error(self.handler, code, said.as_ptr(), address(metadata)) }
                }
                Ok(())
            }
        }
    }

    /// Releases the handler. Called once: the state says when.
    fn release(&self) {
        Block::retire(self.block.clone());
        // SAFETY: the handler is released only below.
        if let Some(release) = unsafe { (*self.handler).release } {
            // SAFETY: no callback is running, and none comes after this.
            unsafe { release(self.handler) }
        }
        let entry = self.entry.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(entry);
        self.state().turn(|_, bells| bells.nudge());
    }
}

impl Drop for AsyncWriter {
    fn drop(&mut self) {
        if !self.0.header().home.is_here() {
            // The last reference would give up what belongs to the consumer.
            return std::mem::forget(self.0.clone());
        }
        self.0.header().state().with(|writing| writing.abandon());
        self.0.header().settle_alone();
        self.0.header().state().silence();
    }
}

/// Sends batches without metadata. Flushing does nothing: the consumer takes the sent batches when it likes.
impl futures_sink::Sink<Batch> for AsyncWriter {
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        AsyncWriter::poll_ready(&self, cx)
    }

    fn start_send(self: Pin<&mut Self>, batch: Batch) -> Result<()> {
        Ok(self.try_send(batch, None)?)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(self.finish())
    }
}

// A step of the state is complete or does not happen: no code of the user or of the consumer runs within one.
impl UnwindSafe for AsyncWriter {}
impl RefUnwindSafe for AsyncWriter {}

impl fmt::Debug for AsyncWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncWriter")
            .field("demand", &self.demand())
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}
