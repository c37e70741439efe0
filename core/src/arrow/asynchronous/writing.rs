//! The producer's side of the contract, without pointers: what the consumer asked for, what it was given, and how the
//! stream ends.
//!
//! A callback of the handler's runs only between a step that makes the stream busy and one that ends that, so there is
//! never a second one at the same time.

use std::task::Poll;

use crate::abi::types::{DEVX_CLOSED, DEVX_INVALID_ARGUMENT};
use crate::error::{Error, Result, refuse};

#[derive(Clone, Debug)]
enum Phase {
    /// Before `on_schema`.
    New,
    /// After it.
    Open,
    /// Nothing can be sent any more; why.
    Over(Error),
}

/// What the consumer is told last, before the release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// The end.
    End,
    /// An error: `errno`, text, metadata.
    Error(i32, String, Option<Box<[u8]>>),
    /// Nothing.
    Nothing,
}

/// A stream as its producer sees it.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    phase: Phase,
    /// Requested, and not sent.
    demand: i64,
    cancelled: bool,
    /// A request that cannot be; the consumer is told when no call of its own is on the stack.
    fault: Option<String>,
    last: Option<Last>,
    /// A callback of the handler's is running.
    busy: bool,
    released: bool,
    news: bool,
}

impl Writing {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::New,
            demand: 0,
            cancelled: false,
            fault: None,
            last: None,
            busy: false,
            released: false,
            news: false,
        }
    }

    // --- the consumer's calls ---

    /// Asks for `n` more. Only counts: no callback comes from within it.
    pub(super) fn request(&mut self, n: i64) {
        if self.is_over() || self.cancelled || self.fault.is_some() {
            return;
        }
        match self.demand.checked_add(n) {
            Some(sum) if n > 0 => self.demand = sum,
            Some(_) => self.fault = Some(format!("{n} batches were requested: it must be a positive number")),
            None => self.fault = Some(format!("{n} batches were requested, with {} requested already", self.demand)),
        }
        self.news = true;
    }

    /// Asks for an end.
    pub(super) fn cancel(&mut self) {
        if !self.released && !self.cancelled {
            self.cancelled = true;
            self.news = true;
        }
    }

    // --- what the user does ---

    /// The stream is to begin: `on_schema` comes next, then [`Writing::answered`].
    pub(super) fn start(&mut self) -> Result<()> {
        match &self.phase {
            Phase::Over(why) => return Err(why.clone()),
            Phase::Open => return refuse!(DEVX_INVALID_ARGUMENT, "the stream was started already"),
            Phase::New => {}
        }
        self.occupy()
    }

    /// One batch is to be sent: `on_next_task` comes next, then [`Writing::answered`], or [`Writing::unsent`].
    pub(super) fn send(&mut self) -> Result<()> {
        self.require_open()?;
        if self.demand == 0 {
            return refuse!(DEVX_NOT_READY, "the consumer has not requested another batch");
        }
        self.occupy()?;
        self.demand -= 1;
        Ok(())
    }

    /// The callback was not called after all.
    pub(super) fn unsent(&mut self) {
        self.busy = false;
        self.demand += 1;
    }

    /// A callback returned `code`. Non-zero ends the stream, and only the release follows.
    pub(super) fn answered(&mut self, callback: &str, code: i32) -> Result<()> {
        self.busy = false;
        if code != 0 {
            let error = Error::callback(code, format_args!("the consumer's {callback} returned {code}"));
            self.end(error.clone(), Last::Nothing);
            return Err(error);
        }
        if matches!(self.phase, Phase::New) {
            self.phase = Phase::Open;
        }
        Ok(())
    }

    /// The stream is complete. Nothing to do if the consumer cancelled.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.is_over() && self.cancelled {
            return Ok(());
        }
        self.require_open()?;
        self.require_idle()?;
        self.end(ended(), Last::End);
        Ok(())
    }

    /// The stream fails. Nothing to do if the consumer cancelled.
    pub(super) fn fail(&mut self, code: i32, message: String, metadata: Option<Box<[u8]>>) -> Result<()> {
        match &self.phase {
            Phase::Over(_) if self.cancelled => return Ok(()),
            Phase::Over(why) => return Err(why.clone()),
            Phase::New | Phase::Open => {}
        }
        self.require_idle()?;
        self.end(ended(), Last::Error(code, message, metadata));
        Ok(())
    }

    /// The user is gone.
    pub(super) fn abandon(&mut self) {
        if !self.is_over() {
            let text = "the producer went away before the end of the stream".to_owned();
            self.end(ended(), Last::Error(libc::EPIPE, text, None));
        }
    }

    /// Whether a batch can be sent now, or why none can be any more.
    pub(super) fn ready(&self) -> Poll<Result<()>> {
        match &self.phase {
            Phase::Over(why) => Poll::Ready(Err(why.clone())),
            Phase::New => Poll::Ready(self.require_open()),
            Phase::Open if self.demand > 0 && !self.busy => Poll::Ready(Ok(())),
            Phase::Open => Poll::Pending,
        }
    }

    /// Batches that are requested and not sent; 0 when none can be sent any more.
    pub(super) fn demand(&self) -> i64 {
        if self.is_over() || self.cancelled { 0 } else { self.demand }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    // --- what follows ---

    /// Whether [`Writing::ending`] has something to say.
    pub(super) fn has_ending(&self) -> bool {
        !self.busy && !self.released && (self.cancelled || self.fault.is_some() || self.last.is_some())
    }

    /// Whether neither consumer nor user are to be told anything.
    pub(super) fn is_settled(&self) -> bool {
        !self.has_ending() && !self.news
    }

    /// What the consumer is to be told last; then the release comes. To be asked for before and after every step of
    /// the user's.
    pub(super) fn ending(&mut self) -> Option<Last> {
        if !self.has_ending() {
            return None;
        }
        self.busy = true;
        self.released = true;
        if !self.is_over() {
            if self.cancelled {
                self.phase = Phase::Over(Error::new(DEVX_CLOSED, "the consumer cancelled the stream"));
            } else if let Some(fault) = self.fault.take() {
                let error = Error::new(DEVX_INVALID_ARGUMENT, format_args!("the consumer is at fault: {fault}"));
                self.end(error, Last::Error(libc::EINVAL, fault, None));
            }
        }
        let last = self.last.take().unwrap_or(Last::Nothing);
        Some(match last {
            Last::Error(..) if self.cancelled => Last::Nothing,
            last => last,
        })
    }

    /// Whether there is something new for the user; asked for once.
    pub(super) fn news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    fn end(&mut self, why: Error, last: Last) {
        self.phase = Phase::Over(why);
        self.last = Some(last);
        self.news = true;
    }

    fn require_open(&self) -> Result<()> {
        match &self.phase {
            Phase::Open => Ok(()),
            Phase::New => refuse!(DEVX_INVALID_ARGUMENT, "the stream was not started"),
            Phase::Over(why) => Err(why.clone()),
        }
    }

    fn require_idle(&self) -> Result<()> {
        if self.busy { refuse!(DEVX_BUSY, "a callback of the consumer's is running") } else { Ok(()) }
    }

    fn occupy(&mut self) -> Result<()> {
        self.require_idle()?;
        self.busy = true;
        Ok(())
    }
}

fn ended() -> Error {
    Error::new(DEVX_CLOSED, "the stream was ended already")
}
