//! The consumer's side of the contract, without pointers: what the producer may do, what it did, and what has to be
//! done about it.
//!
//! Every step takes the state and returns at once. [`Reading::work`] says what has to be called then, which is done
//! without a lock.

use std::collections::VecDeque;
use std::fmt;
use std::task::Poll;

use super::Caller;
use crate::abi::types::DEVX_OUT_OF_MEMORY;
use crate::error::{Error, Result, refuse};

/// How far the producer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Producer {
    /// It has sent no schema yet, so its address is not known.
    Unknown,
    /// It can be called.
    Known,
    /// It said its last word; it is not called any more.
    Done,
    /// It released the handler, or is about to.
    Released,
}

/// How the stream ended.
#[derive(Clone, Debug)]
enum Outcome {
    End,
    Cancelled,
    Failed(Error),
}

/// Whether the producer's `cancel` has to be called, which happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancel {
    No,
    Wanted,
    Called,
}

/// The callbacks of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callback {
    Schema,
    Task,
    Error,
    Release,
}

impl Callback {
    fn name(self) -> &'static str {
        match self {
            Self::Schema => "on_schema",
            Self::Task => "on_next_task",
            Self::Error => "on_error",
            Self::Release => "release",
        }
    }
}

/// What has to be done, by the thread that asked.
#[derive(Debug)]
pub(super) enum Work<T> {
    /// Drop these tasks.
    Drop(VecDeque<T>),
    /// Call the producer's `cancel`, then [`Reading::called`].
    Cancel,
    /// Call the producer's `request`, then [`Reading::called`].
    Request(i64),
    /// Tell the user that there is something new.
    Wake,
}

/// What the user gets next.
#[derive(Debug)]
pub(super) enum Next<T> {
    Task(T),
    Error(Error),
    End,
}

/// A stream of tasks `T` with a schema `S`, as its consumer sees it.
#[derive(Clone, Debug)]
pub(super) struct Reading<T, S> {
    /// How many tasks are kept requested without a request from the user.
    limit: i64,
    producer: Producer,
    schema: Option<S>,
    /// Tasks that have come and that the user has not taken.
    queue: VecDeque<T>,
    /// The queue as it was when nobody wanted it any more.
    unwanted: VecDeque<T>,
    /// Number of tasks that were requested and have not come.
    due: i64,
    /// Number of tasks that have yet to be requested.
    wanted: i64,
    outcome: Option<Outcome>,
    /// Whether the user knows of the failure.
    told: bool,
    /// Whether the user knows that nothing more comes.
    over: bool,
    cancel: Cancel,
    /// Number of the producer's callbacks that have not returned.
    callbacks: usize,
    /// The thread in the first of them. A callback on another thread is a violation, after which this is not read any
    /// more.
    called_by: Option<Caller>,
    /// The thread that calls the producer's `cancel`.
    cancelling: Option<Caller>,
    /// The thread that calls the producer's `request`. No second thread does so meanwhile.
    requesting: Option<Caller>,
    news: bool,
}

impl<T, S: Clone> Reading<T, S> {
    pub(super) fn new(limit: i64) -> Self {
        Self {
            limit,
            producer: Producer::Unknown,
            schema: None,
            queue: VecDeque::new(),
            unwanted: VecDeque::new(),
            due: 0,
            wanted: 0,
            outcome: None,
            told: false,
            over: false,
            cancel: Cancel::No,
            callbacks: 0,
            called_by: None,
            cancelling: None,
            requesting: None,
            news: false,
        }
    }

    // --- the producer's callbacks ---

    /// A callback begins. Callbacks that overlap break the contract, except that `cancel` may call `on_error` from
    /// within another callback.
    #[inline]
    pub(super) fn enter(&mut self, me: Caller, callback: Callback) {
        if self.callbacks == 0 {
            self.called_by = Some(me);
        } else {
            self.enter_another(me, callback);
        }
        self.callbacks += 1;
    }

    #[cold]
    fn enter_another(&mut self, me: Caller, callback: Callback) {
        let name = callback.name();
        if self.called_by != Some(me) {
            self.violation(format_args!("{name} was called while another thread is in a callback"));
        } else if matches!(callback, Callback::Schema | Callback::Task) {
            self.violation(format_args!("{name} was called within another callback"));
        }
    }

    /// A callback returns.
    pub(super) fn leave(&mut self) {
        self.callbacks -= 1;
    }

    /// Takes the schema, or the reason why it cannot be taken. An unwanted schema is given back; then the callback
    /// returns an error and the producer has to release the handler.
    pub(super) fn on_schema(&mut self, found: Result<S>) -> std::result::Result<(), Option<S>> {
        if self.outcome.is_some() {
            return Err(found.ok());
        }
        if self.producer != Producer::Unknown {
            self.violation(format_args!("on_schema was called a second time"));
            return Err(found.ok());
        }
        self.news = true;
        match found {
            Ok(schema) => {
                self.schema = Some(schema);
                self.producer = Producer::Known;
                self.wanted += self.limit;
                Ok(())
            }
            Err(error) => {
                self.outcome = Some(Outcome::Failed(error));
                Err(None)
            }
        }
    }

    /// Takes a task, which belongs to the reader from now on in every case. `None` is the end; `Some(Err)` is a task
    /// that breaks the contract or cannot be taken. Returns a task that nobody wants, to be dropped without the lock.
    #[must_use]
    pub(super) fn on_next_task(&mut self, task: Option<std::result::Result<T, (Error, Option<T>)>>) -> Option<T> {
        match self.producer {
            Producer::Unknown => self.violation(format_args!("on_next_task was called before on_schema")),
            // Nothing but release may follow the end, and a second end changes nothing.
            Producer::Done | Producer::Released => {}
            Producer::Known => match &task {
                None => {
                    self.producer = Producer::Done;
                    self.end(Outcome::End);
                }
                Some(_) if self.due == 0 => self.violation(format_args!("a batch came that was not requested")),
                Some(_) => self.due -= 1,
            },
        }
        match task? {
            Ok(task) if self.outcome.is_none() => {
                if self.queue.try_reserve(1).is_err() {
                    self.give_up(Error::no_memory(size_of::<T>()));
                    return Some(task);
                }
                self.queue.push_back(task);
                self.news = true;
                None
            }
            Ok(task) => Some(task),
            Err((error, task)) => {
                self.give_up(error);
                task
            }
        }
    }

    /// The producer failed. What came before is still delivered.
    pub(super) fn on_error(&mut self, error: Error) {
        if matches!(self.producer, Producer::Unknown | Producer::Known) {
            self.producer = Producer::Done;
            self.end(Outcome::Failed(error));
        }
    }

    /// The producer releases the handler: from now on nobody calls it. Returns `false` the second time. The release
    /// callback returns only when [`Reading::is_quiet`].
    pub(super) fn release(&mut self) -> bool {
        if self.producer == Producer::Released {
            return false;
        }
        self.producer = Producer::Released;
        if self.outcome.is_none() {
            self.outcome = Some(Outcome::Failed(broken("the handler was released without an end")));
        }
        self.news = true;
        true
    }

    /// Whether no other thread is in a call of the producer's `request` or `cancel`.
    pub(super) fn is_quiet(&self, me: Caller) -> bool {
        [self.cancelling, self.requesting].into_iter().flatten().all(|caller| caller == me)
    }

    // --- what the user does ---

    /// Requests `n` more tasks. Does nothing after the end.
    pub(super) fn request(&mut self, n: i64) -> Result<()> {
        if n <= 0 {
            return refuse!(DEVX_INVALID_ARGUMENT, "n is {n}: it must be positive");
        }
        // The limit is added when the schema comes. Later, each task that leaves the queue adds one.
        let parts = [self.wanted, self.queue.len() as i64, self.limit, n];
        if parts.into_iter().try_fold(self.due, i64::checked_add).is_none() {
            let (requested, queued, limit) = (self.due + self.wanted, self.queue.len(), self.limit);
            return refuse!(
                DEVX_OUT_OF_RANGE,
                "n is {n}: more than can be counted with {requested} requested, {queued} queued and a limit of {limit}"
            );
        }
        if self.outcome.is_none() {
            self.wanted += n;
        }
        Ok(())
    }

    /// The user wants nothing any more, not even an error.
    pub(super) fn cancel(&mut self) {
        if !self.is_cancelled() {
            self.discard();
            self.outcome = Some(Outcome::Cancelled);
            self.stop_producer();
            self.news = true;
        }
    }

    /// Returns the schema, or the reason why there is none.
    pub(super) fn schema(&mut self) -> Poll<Result<S>> {
        match (&self.schema, &self.outcome) {
            (Some(schema), _) => Poll::Ready(Ok(schema.clone())),
            (None, None) => Poll::Pending,
            (None, Some(Outcome::Failed(error))) => {
                self.told = true;
                Poll::Ready(Err(error.clone()))
            }
            (None, Some(_)) => Poll::Ready(refuse!(DEVX_CLOSED, "the stream was cancelled before its schema came")),
        }
    }

    /// Returns the next task. An error is returned once, after everything that came before it.
    pub(super) fn next(&mut self) -> Poll<Next<T>> {
        if let Some(task) = self.queue.pop_front() {
            if self.limit > 0 && self.outcome.is_none() {
                self.wanted += 1;
            }
            return Poll::Ready(Next::Task(task));
        }
        match &self.outcome {
            None => Poll::Pending,
            Some(Outcome::Failed(error)) if !self.told => {
                self.told = true;
                Poll::Ready(Next::Error(error.clone()))
            }
            Some(_) => {
                self.over = true;
                Poll::Ready(Next::End)
            }
        }
    }

    /// Whether the user knows that there is nothing more.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// A task that was taken turned out to be bad. Returns the error for the user, once. If the producer has reported
    /// an error meanwhile, that error is returned instead, unless this one is a lack of memory, which no error of the
    /// producer explains.
    pub(super) fn failed(&mut self, error: Error) -> Option<Error> {
        self.discard();
        let takes_its_place = match &self.outcome {
            None | Some(Outcome::End) => true,
            Some(Outcome::Failed(_)) => error.status() == DEVX_OUT_OF_MEMORY,
            Some(Outcome::Cancelled) => false,
        };
        if takes_its_place {
            self.outcome = Some(Outcome::Failed(error));
            self.stop_producer();
            self.news = true;
        }
        match &self.outcome {
            Some(Outcome::Failed(error)) if !self.told => {
                self.told = true;
                Some(error.clone())
            }
            _ => None,
        }
    }

    /// Whether the user cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Cancelled))
    }

    // --- what follows ---

    /// Returns the next thing to do. To be called after every step, until it returns `None`.
    #[inline]
    pub(super) fn work(&mut self, me: Caller) -> Option<Work<T>> {
        if !self.unwanted.is_empty() {
            return Some(Work::Drop(std::mem::take(&mut self.unwanted)));
        }
        if self.producer == Producer::Known {
            if self.cancel == Cancel::Wanted {
                self.cancel = Cancel::Called;
                self.cancelling = Some(me);
                return Some(Work::Cancel);
            }
            if self.wanted > 0 && self.outcome.is_none() && self.requesting.is_none() {
                let n = std::mem::take(&mut self.wanted);
                self.due += n;
                self.requesting = Some(me);
                return Some(Work::Request(n));
            }
        }
        std::mem::take(&mut self.news).then_some(Work::Wake)
    }

    /// A call to the producer returned: `request` if `request` is true, otherwise `cancel`.
    pub(super) fn called(&mut self, request: bool) {
        let call = if request { &mut self.requesting } else { &mut self.cancelling };
        *call = None;
    }

    fn end(&mut self, outcome: Outcome) {
        if self.outcome.is_none() {
            self.outcome = Some(outcome);
            self.news = true;
        }
    }

    /// The stream cannot go on.
    #[cold]
    fn give_up(&mut self, error: Error) {
        self.end(Outcome::Failed(error));
        self.stop_producer();
    }

    #[cold]
    fn violation(&mut self, text: fmt::Arguments<'_>) {
        if self.outcome.is_none() {
            self.give_up(broken(text));
        }
    }

    /// Sets aside the queue, which nobody wants. Nothing enters the queue after that, so `unwanted` is never
    /// overwritten.
    fn discard(&mut self) {
        if !self.queue.is_empty() {
            self.unwanted = std::mem::take(&mut self.queue);
        }
    }

    fn stop_producer(&mut self) {
        if self.cancel == Cancel::No {
            self.cancel = Cancel::Wanted;
        }
    }
}

/// The error that the producer broke the contract.
pub(super) fn broken(text: impl fmt::Display) -> Error {
    Error::callback(libc::EPROTO, format_args!("the producer broke the contract: {text}"))
}
