//! The thread on which host functions run. As with a real driver it is never one of the client's threads, so a client
//! that holds a lock, or relies on thread-local state, meets the same conditions as there.

use crate::call::{Inner, Running, set_running};
use crate::clock::Clock;
use crate::config::HostOrder;
use crate::sched::finish;
use crate::state::State;
use parking_lot::MutexGuard;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long a host function is waited for to keep the order of a schedule. A function that takes longer may be waiting
/// for somebody, so other work continues.
const KEEP_ORDER: Duration = Duration::from_millis(50);

/// A host function and its place in a stream.
pub(crate) struct Job {
    pub(crate) function: Box<dyn FnOnce() + Send>,
    pub(crate) stream: u64,
    pub(crate) running: Running,
}

fn work(inner: &Inner, jobs: &Receiver<Job>) {
    for Job { function, stream, running } in jobs {
        let (seq, known) = (running.seq, running.clock.clone());
        set_running(Some(running));
        if catch_unwind(AssertUnwindSafe(function)).is_err() {
            eprintln!("simcuda: a host function panicked; its stream goes on");
        }
        set_running(None);
        let mut st = inner.state.lock();
        if st.cfg.host_order == HostOrder::Observed {
            st.host_clock.join(&known);
        }
        finish(inner, &mut st, stream, seq);
    }
}

impl Inner {
    fn callbacks(&self) -> Option<Sender<Job>> {
        let mut sender = self.callbacks.lock();
        if sender.is_none() {
            let inner = self.myself.upgrade()?;
            let (tx, rx) = channel();
            self.workers.lock().push(std::thread::spawn(move || work(&inner, &rx)));
            *sender = Some(tx);
        }
        sender.clone()
    }

    /// Hands a host function over to the thread. The stream stays busy until it is done.
    pub(crate) fn run_callback(&self, st: &mut MutexGuard<'_, State>, job: Job, keep_order: bool) {
        let (stream, seq) = (job.stream, job.running.seq);
        let sent = self.callbacks().is_some_and(|s| s.send(job).is_ok());
        if !sent {
            // Only while the simulator is being dropped.
            return finish(self, st, stream, seq);
        }
        let deadline = Instant::now() + KEEP_ORDER;
        while keep_order && !st.is_done((stream, seq)) {
            if self.changed.wait_until(st, deadline).timed_out() {
                break;
            }
        }
    }
}

/// Prepares a host function, with what it knows when it starts.
pub(crate) fn job(
    inner: &Inner,
    st: &State,
    stream: u64,
    seq: u64,
    clock: Option<Clock>,
    function: Box<dyn FnOnce() + Send>,
) -> Job {
    let timeline = st.streams.get(&stream).map_or(0, |s| s.timeline);
    let running = Running { instance: inner.instance, timeline, seq, clock: clock.unwrap_or_default() };
    Job { function, stream, running }
}
