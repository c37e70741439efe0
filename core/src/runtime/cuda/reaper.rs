//! Stream-ordered release: one thread, the reaper, gives up what queued work still uses, after that work.
//!
//! The thread starts with the first such release. It holds no lock while it asks the driver or calls a release. At the
//! end of the process it gets a limited time; what is not done then is left to the system. A child of `fork` has no
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

/// The pauses between two looks at the events: short at first, for work that is nearly done.
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

/// How often a query may fail before its release is counted as lost.
const TRIES: u32 = 3;

/// How long the end of the process waits for queued work.
const AT_EXIT: Duration = Duration::from_millis(500);

/// How long an allocation that found no memory waits for memory that is on its way back.
const FOR_MEMORY: Duration = Duration::from_secs(5);

/// A place for a release that will have to wait. It is allocated beforehand, so that the release cannot fail.
pub(crate) struct Later(Box<Node<Pending>>);

impl Later {
    /// Holds nothing yet, and waits for nothing but its turn.
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

    /// The events that the release has to wait for.
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

/// Whether the thread has been started; the first release that waits starts it.
static STARTED: AtomicBool = AtomicBool::new(false);
thread_local! {
    static IS_REAPER: Cell<bool> = const { Cell::new(false) };
    /// On the reaper thread, the age of the release that it looks at.
    static AGE: Cell<u64> = const { Cell::new(0) };
}

/// Waits until everything that was handed over before, and waits for no event, is given up. Such memory is freed here
/// only because a free may wait for the device, so this may wait for the device, too.
pub(crate) fn settle() {
    settle_within(None);
}

/// Like [`settle`], but for an allocation that found no memory, and with a time limit: a release that is called
/// meanwhile may need what this thread has, a lock for example.
pub(crate) fn settle_for_memory() {
    settle_within(Some(FOR_MEMORY));
}

fn settle_within(limit: Option<Duration>) {
    // A forked child has no such thread, and the thread cannot wait for itself.
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
    // What the reaper gives up in turn goes at once if it is due: whoever waits for the outer release waits for it, too.
    if IS_REAPER.get() && look(&mut node.thing) {
        return;
    }
    INBOX.add(node, IS_REAPER.get().then(|| AGE.get()));
    start();
}

/// Starts the thread, if there is none. If the system cannot make one, releases go on waiting until a later one can start it.
fn start() {
    static STARTING: Mutex<()> = Mutex::new(());
    if STARTED.load(Acquire) {
        return;
    }
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if STARTED.load(Relaxed) {
        return;
    }
    match thread::start(c"devx-reaper", run) {
        Ok(()) => {
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
    // Otherwise asking for events and freeing would break the captures of other threads. This lasts as long as the
    // thread.
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

/// Returns `true` if a release is due, or was counted as lost.
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
    // A forked child inherits this handler, but there nothing waits.
    let end = Instant::now() + AT_EXIT;
    while releases_waiting() > 0 && Instant::now() < end {
        std::thread::sleep(SHORTEST * 10);
    }
}
