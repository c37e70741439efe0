//! Stream-ordered release: what is still used by queued work is given up by one thread, after that work.
//!
//! The thread starts with the first such release. It holds no lock while it asks the driver or calls a release. At the
//! end of the process it is given a bounded time; what is not done then is left to the system. A child of `fork` has no
//! such thread and must not call the driver: what is released there is left to the parent.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::closed;
use super::context::Apart;
use super::driver::Driver;
use super::event::Event;
use super::inbox::Node;
use super::lost::{Held, abandon, is_over};
use super::waiting::{INBOX, Pending, releases_waiting};
use crate::error::Result;
use crate::memory::{Owner, boxed};
use crate::stream::Stream;
use crate::{thread, trace};

/// Between two looks at the events: short at first, for work that is nearly done.
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

/// How often a query may fail before its memory is given up for lost.
const TRIES: u32 = 3;

/// How long the end of the process waits for queued work.
const AT_EXIT: Duration = Duration::from_millis(500);

/// How long who is short of memory waits for what is on its way back.
const FOR_MEMORY: Duration = Duration::from_secs(5);

/// A release that will have to wait, before it is one: there is memory for it, so that it cannot fail.
pub(crate) struct Later(Box<Node<Pending>>);

impl Later {
    /// Of nobody yet, and with nothing to wait for but its turn.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(crate) fn new() -> Result<Self> {
        let pending = Pending { events: Vec::new(), capturing: None, held: Held::NOTHING, failures: 0 };
        Ok(Self(boxed(Node::new(pending))?))
    }

    /// Whether there is nothing to wait for.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.thing.events.is_empty()
    }

    /// What it has to wait for.
    pub(crate) fn events(&mut self) -> &mut Vec<Event> {
        &mut self.0.thing.events
    }

    /// Gives up `held` when all events are complete. Returns at once.
    pub(crate) fn release(mut self, held: impl Into<Held>) {
        self.0.thing.held = held.into();
        push(self.0);
    }

    /// Gives up `owner` when `stream` is no longer being captured. Returns at once.
    pub(crate) fn release_after_capture(mut self, stream: Stream, owner: Owner) {
        self.0.thing.capturing = Some(stream);
        self.release(owner);
    }
}

/// Whether there is a thread; it is asked for with the first release that waits.
static STARTED: AtomicBool = AtomicBool::new(false);
thread_local! {
    static IS_REAPER: Cell<bool> = const { Cell::new(false) };
    /// On that thread, of what it looks at.
    static AGE: Cell<u64> = const { Cell::new(0) };
}

/// Waits until what was to be given up before, and waits for no event, is given up. That is what is freed here only
/// because a free may wait for the device; so this may wait for it, too.
pub(crate) fn settle() {
    settle_within(None);
}

/// As [`settle`], for who is short of memory: not for ever, as a release that is called meanwhile may need what this thread
/// has, a lock for example.
pub(crate) fn settle_for_memory() {
    settle_within(Some(FOR_MEMORY));
}

fn settle_within(limit: Option<Duration>) {
    // A forked child has no such thread, and the thread itself has nobody to wait for.
    if !STARTED.load(Acquire) || IS_REAPER.get() || Driver::loaded().is_none() {
        return;
    }
    INBOX.settle(limit);
}

fn push(mut node: Box<Node<Pending>>) {
    if Driver::loaded().is_none() {
        trace::say(format_args!("a forked process leaves a release that waits for work to its parent"));
        node.thing.held.forget();
        return;
    }
    // What this thread gives up in turn, it need not be handed: who waits for the one waits for the other.
    if IS_REAPER.get() && look(&mut node.thing) {
        return;
    }
    INBOX.add(node, IS_REAPER.get().then(|| AGE.get()));
    start();
}

/// Starts the thread, if there is none. If the system has none to give, what waits goes on waiting, until a later release
/// gets one.
fn start() {
    static STARTING: Mutex<()> = Mutex::new(());
    if STARTED.load(Acquire) {
        return;
    }
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if STARTED.load(Relaxed) {
        return;
    }
    match thread::spawn("devexchange-reaper", run) {
        Ok(_) => {
            // SAFETY: a function without arguments that does not unwind.
            unsafe { libc::atexit(at_exit) };
            STARTED.store(true, Release);
        }
        Err(error) => trace::say(format_args!("releases wait for a thread, which cannot be made yet: {error}")),
    }
}

fn run() {
    IS_REAPER.set(true);
    let mut waiting = None;
    let mut pause = SHORTEST;
    // Looking at events and freeing would otherwise break what other threads capture. It stays so for this thread.
    let mut relaxed = false;
    loop {
        if !relaxed && let Some(Ok(guard)) = Driver::loaded().map(Apart::enter) {
            std::mem::forget(guard);
            relaxed = true;
        }
        let changed = INBOX.round(&mut waiting, pause, |pending, age| {
            AGE.set(age);
            look(pending)
        });
        if changed {
            closed::destroy();
        }
        pause = if changed { SHORTEST } else { (pause * 2).min(LONGEST) };
    }
}

/// Whether a release is due, or will never be.
fn look(pending: &mut Pending) -> bool {
    if pending.capturing.is_some_and(|stream| stream.is_capturing() == Ok(true)) {
        return false;
    }
    while let Some(event) = pending.events.last() {
        match event.query() {
            Ok(true) => {
                pending.failures = 0;
                drop(pending.events.pop());
            }
            Ok(false) => {
                pending.failures = 0;
                return false;
            }
            Err(_) if pending.failures < TRIES => {
                pending.failures += 1;
                return false;
            }
            Err(error) if is_over(&error) || Event::went_with_its_context(&error) => drop(pending.events.pop()),
            Err(error) => {
                trace::say(format_args!("a release is given up for lost, its work cannot be waited for: {error}"));
                abandon(std::mem::replace(&mut pending.held, Held::NOTHING));
                return true;
            }
        }
    }
    true
}

extern "C" fn at_exit() {
    // A forked child inherits the handler, but neither the thread nor the right to call the driver.
    if Driver::loaded().is_none() {
        return;
    }
    let end = Instant::now() + AT_EXIT;
    while releases_waiting() > 0 && Instant::now() < end {
        std::thread::sleep(SHORTEST * 10);
    }
}
