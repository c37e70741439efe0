//! The producer's side of the contract, without pointers: what the consumer asked for, what it received, and how the
//! stream ends.
//!
//! A callback of the handler runs only between a step that makes the stream busy and a step that ends that, so there is
//! never a second one at the same time.

use std::fmt;
use std::task::Poll;

use crate::abi::types::{DEVX_CLOSED, DEVX_INVALID_ARGUMENT};
use crate::error::{Error, Result, refuse};

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Before `on_schema`.
    New,
    /// After `on_schema`.
    Open,
    /// Nothing can be sent any more.
    Over(Why),
}

/// Why nothing can be sent any more. The error is made only when somebody asks, so that ending a stream needs no
/// memory.
#[derive(Clone, Copy, Debug)]
enum Why {
    Ended,
    Cancelled,
    Fault(Fault),
    /// The callback of the consumer that refused, and the code that it returned.
    Refused(&'static str, i32),
}

impl Why {
    fn error(self) -> Error {
        match self {
            Self::Ended => Error::new(DEVX_CLOSED, "the stream was ended already"),
            Self::Cancelled => Error::new(DEVX_CLOSED, "the consumer cancelled the stream"),
            Self::Fault(fault) => Error::new(DEVX_INVALID_ARGUMENT, format_args!("the consumer is at fault: {fault}")),
            Self::Refused(callback, code) => {
                Error::callback(code, format_args!("the consumer's {callback} returned {code}"))
            }
        }
    }
}

/// An impossible request, with what was requested already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    n: i64,
    demand: i64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n, demand } = self;
        if *n > 0 {
            write!(f, "{n} batches were requested, with {demand} requested already")
        } else {
            write!(f, "{n} batches were requested: it must be a positive number")
        }
    }
}

/// The last word to the consumer, before the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last<'a> {
    /// The end.
    End,
    /// An error.
    Error(Failure<'a>),
    /// Nothing.
    Nothing,
}

/// An error, in the terms of `on_error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure<'a> {
    /// An `errno` code.
    pub(super) code: i32,
    pub(super) text: Said<'a>,
    /// A block that was checked.
    pub(super) metadata: Option<&'a [u8]>,
}

/// The text of an error, which is formatted when it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    Text(&'a str),
    Fault(Fault),
}

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => text.fmt(f),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

/// A stream as its producer sees it.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    phase: Phase,
    /// Number of batches that were requested and not sent.
    demand: i64,
    cancelled: bool,
    /// An impossible request. The consumer is told when none of its own calls is on the stack.
    fault: Option<Fault>,
    last: Option<Last<'static>>,
    /// Whether a callback of the handler is running.
    busy: bool,
    /// Whether somebody has asked meanwhile if a batch can be sent, and was told to wait.
    asked: bool,
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
            asked: false,
            released: false,
            news: false,
        }
    }

    // --- the consumer's calls ---

    /// The consumer requests `n` more batches. This only counts: it never calls back into the consumer.
    pub(super) fn request(&mut self, n: i64) {
        if self.is_over() || self.cancelled || self.fault.is_some() {
            return;
        }
        match self.demand.checked_add(n) {
            Some(sum) if n > 0 => self.demand = sum,
            _ => self.fault = Some(Fault { n, demand: self.demand }),
        }
        self.news = true;
    }

    /// The consumer asks for an end.
    pub(super) fn cancel(&mut self) {
        if !self.released && !self.cancelled {
            self.cancelled = true;
            self.news = true;
        }
    }

    // --- what the user does ---

    /// The stream is about to begin: `on_schema` comes next, then [`Writing::answered`].
    pub(super) fn start(&mut self) -> Result<()> {
        match self.phase {
            Phase::Over(why) => return Err(why.error()),
            Phase::Open => return refuse!(DEVX_INVALID_ARGUMENT, "the stream was started already"),
            Phase::New => {}
        }
        self.occupy()
    }

    /// A batch is about to be sent: `on_next_task` comes next, then [`Writing::answered`], or [`Writing::unsent`].
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
        self.vacate();
        // With this one, more batches may be requested by now than can be counted.
        self.demand = self.demand.saturating_add(1);
    }

    /// A callback returned `code`. A non-zero code ends the stream, and only the release follows. A consumer may cancel
    /// in this way, too: because it had no producer to call yet, or during the producer's call.
    pub(super) fn answered(&mut self, callback: &'static str, code: i32) -> Result<()> {
        self.vacate();
        if code != 0 {
            self.cancelled |= code == libc::ECANCELED;
            let why = if code == libc::ECANCELED { Why::Cancelled } else { Why::Refused(callback, code) };
            self.end(why, Last::Nothing);
            return Err(why.error());
        }
        if matches!(self.phase, Phase::New) {
            self.phase = Phase::Open;
        }
        Ok(())
    }

    /// The stream is complete. Returns the last word to the consumer, like [`Writing::ending`], so that the caller says
    /// it and gets the consumer's answer. `None` if the consumer cancelled: then there is nothing to do.
    pub(super) fn finish(&mut self) -> Result<Option<Last<'static>>> {
        if self.is_over() && self.cancelled {
            return Ok(None);
        }
        self.require_open()?;
        self.require_idle()?;
        self.end(Why::Ended, Last::End);
        Ok(self.ending())
    }

    /// The stream fails. Returns the last word or `None`, like [`Writing::finish`], so that nothing of the user has to
    /// be kept.
    pub(super) fn fail<'a>(&mut self, failure: Failure<'a>) -> Result<Option<Last<'a>>> {
        match self.phase {
            Phase::Over(_) if self.cancelled => return Ok(None),
            Phase::Over(why) => return Err(why.error()),
            Phase::New | Phase::Open => {}
        }
        self.require_idle()?;
        self.end(Why::Ended, Last::Nothing);
        let last = if self.cancelled { Last::Nothing } else { Last::Error(failure) };
        Ok(self.ending().map(|_| last))
    }

    /// The user is gone.
    pub(super) fn abandon(&mut self) {
        if !self.is_over() {
            let text = Said::Text("the producer went away before the end of the stream");
            self.end(Why::Ended, Last::Error(Failure { code: libc::EPIPE, text, metadata: None }));
        }
    }

    /// Whether a batch can be sent now, or why none can be sent any more.
    pub(super) fn ready(&mut self) -> Poll<Result<()>> {
        match self.phase {
            Phase::Over(why) => Poll::Ready(Err(why.error())),
            Phase::New => Poll::Ready(self.require_open()),
            Phase::Open if self.demand > 0 && !self.busy => Poll::Ready(Ok(())),
            Phase::Open => {
                self.asked |= self.busy;
                Poll::Pending
            }
        }
    }

    /// The number of batches that are requested and not sent; 0 when none can be sent any more.
    pub(super) fn demand(&self) -> i64 {
        if self.is_over() || self.cancelled { 0 } else { self.demand }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    // --- what follows ---

    /// Whether [`Writing::ending`] would return something.
    pub(super) fn has_ending(&self) -> bool {
        !self.busy && !self.released && (self.cancelled || self.fault.is_some() || self.last.is_some())
    }

    /// Whether there is nothing to tell the consumer or the user.
    pub(super) fn is_settled(&self) -> bool {
        !self.has_ending() && !self.news
    }

    /// Returns the last word to the consumer, if it is time for it; then the release follows. To be called before and
    /// after every step of the user.
    pub(super) fn ending(&mut self) -> Option<Last<'static>> {
        if !self.has_ending() {
            return None;
        }
        self.busy = true;
        self.released = true;
        if !self.is_over() {
            if self.cancelled {
                self.phase = Phase::Over(Why::Cancelled);
            } else if let Some(fault) = self.fault.take() {
                let failure = Failure { code: libc::EINVAL, text: Said::Fault(fault), metadata: None };
                self.end(Why::Fault(fault), Last::Error(failure));
            }
        }
        let last = self.last.take().unwrap_or(Last::Nothing);
        Some(match last {
            Last::Error(..) if self.cancelled => Last::Nothing,
            last => last,
        })
    }

    /// Whether there is something new for the user. Returns `true` once for it.
    pub(super) fn news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    fn end(&mut self, why: Why, last: Last<'static>) {
        self.phase = Phase::Over(why);
        self.last = Some(last);
        self.news = true;
    }

    fn require_open(&self) -> Result<()> {
        match self.phase {
            Phase::Open => Ok(()),
            Phase::New => refuse!(DEVX_INVALID_ARGUMENT, "the stream was not started"),
            Phase::Over(why) => Err(why.error()),
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

    /// No callback is running any more, which is news for callers that were told to wait.
    fn vacate(&mut self) {
        self.busy = false;
        self.news |= std::mem::take(&mut self.asked);
    }
}
