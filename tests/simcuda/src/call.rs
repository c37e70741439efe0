//! A simulator, and the code around every call into it: counting, faults, checks for fork and callbacks, sites.

use crate::callback::Job;
use crate::clock::{Clock, Timeline};
use crate::code::{Code, CuResult};
use crate::config::{Config, Fatal, HostOrder};
use crate::finding::{Finding, Kind, Site, SiteInfo};
use crate::state::{CaptureMode, HandleKind, Host, State};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// A simulated driver. Each one is independent of the others; the C ABI (`simcuda-driver`) has a single one per
/// process.
///
/// Dropping it drains the queues and, unless the configuration says otherwise, panics if there are findings that
/// nobody took.
pub struct Sim {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
    pub(crate) workers: Mutex<Vec<JoinHandle<()>>>,
    /// The queue of host functions, once there has been one; see `callback`.
    pub(crate) callbacks: Mutex<Option<Sender<Job>>>,
    pub(crate) myself: Weak<Inner>,
    /// The process that made the simulator: a child after `fork` must not use it.
    pid: u32,
    pub(crate) instance: u64,
}

static INSTANCES: AtomicU64 = AtomicU64::new(1);
static THREADS: AtomicU64 = AtomicU64::new(1);

/// A host function that is running on this thread: its simulator, and what it knows.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) instance: u64,
    pub(crate) timeline: Timeline,
    pub(crate) seq: u64,
    pub(crate) clock: Clock,
}

thread_local! {
    static ME: Cell<u64> = const { Cell::new(0) };
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// The calling thread; 0 while its thread-local storage is being torn down.
fn me() -> u64 {
    ME.try_with(|me| {
        if me.get() == 0 {
            me.set(THREADS.fetch_add(1, Ordering::Relaxed));
        }
        me.get()
    })
    .unwrap_or(0)
}

pub(crate) fn running(instance: u64) -> Option<Running> {
    RUNNING.try_with(|r| r.borrow().clone()).ok().flatten().filter(|r| r.instance == instance)
}

pub(crate) fn set_running(running: Option<Running>) {
    let _ = RUNNING.try_with(|r| *r.borrow_mut() = running);
}

/// What a call needs before it may do anything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A pure look-up: allowed before `cuInit`, after the end, and in callbacks; fails only if named in a fault.
    Nothing,
    /// `cuInit` itself.
    Driver,
    /// An initialised driver.
    Init,
}

/// One call while it runs: the locked state, and who called.
pub(crate) struct Call<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) st: MutexGuard<'a, State>,
    pub(crate) thread: u64,
    function: &'static str,
    location: &'static Location<'static>,
    number: u64,
    site: Option<Site>,
}

impl Sim {
    /// A new driver with this configuration.
    #[must_use]
    pub fn new(cfg: Config) -> Self {
        Self {
            inner: Arc::new_cyclic(|myself| Inner {
                state: Mutex::new(State::new(cfg)),
                changed: Condvar::new(),
                workers: Mutex::new(Vec::new()),
                callbacks: Mutex::new(None),
                myself: Weak::clone(myself),
                pid: std::process::id(),
                instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
            }),
        }
    }

    /// Whether this process is a child that inherited the simulator through `fork`.
    #[must_use]
    pub fn forked(&self) -> bool {
        self.inner.pid != std::process::id()
    }

    #[track_caller]
    pub(crate) fn call<T>(
        &self,
        function: &'static str,
        need: Need,
        body: impl FnOnce(&mut Call<'_>) -> CuResult<T>,
    ) -> CuResult<T> {
        self.enter(function, need, None, body)
    }

    /// A call that gives something back. If a fault stops it, what could not be given back does not count as a leak.
    #[track_caller]
    pub(crate) fn release<T>(
        &self,
        function: &'static str,
        what: u64,
        body: impl FnOnce(&mut Call<'_>) -> CuResult<T>,
    ) -> CuResult<T> {
        self.enter(function, Need::Init, Some(what), body)
    }

    #[track_caller]
    fn enter<T>(
        &self,
        function: &'static str,
        need: Need,
        releases: Option<u64>,
        body: impl FnOnce(&mut Call<'_>) -> CuResult<T>,
    ) -> CuResult<T> {
        // Checked before the lock is taken: a child may have inherited it locked.
        if self.forked() {
            return if need == Need::Nothing { Err(Code::UNKNOWN) } else { Err(Code::NOT_INITIALIZED) };
        }
        let mut call = self.locked(function, Location::caller());
        if need != Need::Nothing && running(self.inner.instance).is_some() {
            call.find(Kind::CallInCallback, "a host function called the driver".into(), None);
            return Err(Code::NOT_PERMITTED);
        }
        let fault = call.st.faults.enter(function, need == Need::Nothing);
        call.number = call.st.faults.total;
        if need != Need::Nothing && call.st.deinitialised {
            return Err(Code::DEINITIALIZED);
        }
        if need == Need::Init && !call.st.initialised {
            return Err(Code::NOT_INITIALIZED);
        }
        if let Some(code) = fault {
            if let Some(handle) = releases {
                call.st.excuse(handle);
            }
            return Err(code);
        }
        body(&mut call)
    }

    /// The locked state for a control function: nothing is counted and no fault fires.
    #[track_caller]
    pub(crate) fn control(&self, function: &'static str) -> Option<Call<'_>> {
        (!self.forked()).then(|| self.locked(function, Location::caller()))
    }

    fn locked(&self, function: &'static str, location: &'static Location<'static>) -> Call<'_> {
        let mut st = self.inner.state.lock();
        let thread = me();
        if !st.hosts.contains_key(&thread) {
            let timeline = st.timeline();
            let number = u32::try_from(st.hosts.len()).unwrap_or(u32::MAX) + 1;
            st.hosts.insert(
                thread,
                Host {
                    number,
                    timeline,
                    seq: 0,
                    clock: Clock::default(),
                    stack: Vec::new(),
                    label: None,
                    capture_mode: CaptureMode::Global,
                },
            );
        }
        let number = st.faults.total;
        Call { inner: &self.inner, st, thread, function, location, number, site: None }
    }
}

impl Call<'_> {
    /// The site of this call, for objects and findings that will refer to it.
    pub(crate) fn site(&mut self) -> Site {
        if let Some(site) = &self.site {
            return site.clone();
        }
        let host = self.st.hosts.get(&self.thread);
        let site: Site = Arc::new(SiteInfo {
            call: self.number,
            function: self.function,
            thread: host.map_or(0, |h| h.number),
            label: host.and_then(|h| h.label.clone()),
            location: self.st.cfg.locations.then_some(self.location),
            backtrace: self.st.cfg.backtraces.then(|| std::backtrace::Backtrace::force_capture().to_string()),
        });
        self.site = Some(site.clone());
        site
    }

    pub(crate) fn find(&mut self, kind: Kind, message: String, first: Option<Site>) {
        if self.st.cfg.allowed.contains(&kind) {
            return;
        }
        let second = self.site();
        let finding = Finding { kind, message, first, second };
        match kind {
            Kind::Race | Kind::FreeRace => self.st.stats.races += 1,
            Kind::UseAfterFree | Kind::DoubleFree => self.st.stats.use_after_free += 1,
            _ => {}
        }
        if self.st.cfg.fatal == Fatal::Now {
            eprintln!("simcuda: {finding}\nsimcuda: {}", self.st.schedule());
            std::process::abort();
        }
        self.st.findings.push(finding);
    }

    pub(crate) fn host(&mut self) -> &mut Host {
        let thread = self.thread;
        // The entry was made when the call began; making it again keeps this total without a panic.
        self.st.hosts.entry(thread).or_insert_with(|| Host {
            number: 0,
            timeline: 0,
            seq: 0,
            clock: Clock::default(),
            stack: Vec::new(),
            label: None,
            capture_mode: CaptureMode::Global,
        })
    }

    /// The clock of what the calling thread knows to be over.
    pub(crate) fn host_clock(&mut self) -> &mut Clock {
        match self.st.cfg.host_order {
            HostOrder::Observed => &mut self.st.host_clock,
            HostOrder::Annotated => &mut self.host().clock,
        }
    }

    /// A new event on the calling thread's own timeline.
    pub(crate) fn host_event(&mut self) -> (Timeline, u64, Clock) {
        let host = self.host();
        host.seq += 1;
        let (timeline, seq) = (host.timeline, host.seq);
        let clock = self.host_clock();
        clock.raise(timeline, seq);
        (timeline, seq, clock.clone())
    }

    /// The error for a handle that names nothing of the wanted kind, with the reason.
    pub(crate) fn bad_handle(&mut self, kind: HandleKind, handle: u64, code: Code) -> Code {
        if handle == 0 {
            return code;
        }
        match self.st.gone.get(&handle).cloned() {
            Some(site) if handle >> 48 == kind as u64 => {
                self.find(Kind::StaleHandle, format!("{kind:?} {handle:#x} was destroyed before"), Some(site));
            }
            _ => self.find(Kind::InvalidHandle, format!("{handle:#x} is no {kind:?}"), None),
        }
        code
    }
}

impl State {
    /// Marks an object that a failed release left behind.
    pub(crate) fn excuse(&mut self, what: u64) {
        if let Some(a) = self.allocs.get_mut(&what) {
            a.excused = true;
        } else if let Some(s) = self.streams.get_mut(&what) {
            s.excused = true;
        } else if let Some(e) = self.events.get_mut(&what) {
            e.excused = true;
        } else if let Some(c) = self.contexts.get_mut(&what) {
            c.excused += 1;
        } else if let Some(p) = self.pools.get_mut(&what) {
            p.excused = true;
        } else if let Some(g) = self.graphs.get_mut(&what) {
            g.excused = true;
        }
    }

    /// The schedule in words, so that a report says how to reproduce it.
    pub(crate) fn schedule(&self) -> String {
        let c = &self.cfg;
        let mode = match c.mode {
            crate::Mode::Lazy => "SIMCUDA_MODE=lazy".to_owned(),
            crate::Mode::Adversarial => "SIMCUDA_MODE=adversarial".to_owned(),
            crate::Mode::Threads { workers, delay_us } => {
                format!("SIMCUDA_MODE=threads SIMCUDA_WORKERS={workers} SIMCUDA_DELAY_US={delay_us}")
            }
        };
        format!("{mode} SIMCUDA_SEED={} SIMCUDA_VERSION={} SIMCUDA_DEVICES={}", c.seed, c.version, c.devices)
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        if self.forked() {
            return;
        }
        self.quiesce();
        {
            self.inner.state.lock().stop = true;
            self.inner.changed.notify_all();
        }
        // No more host functions: their thread sees the end of its queue.
        *self.inner.callbacks.lock() = None;
        let workers = std::mem::take(&mut *self.inner.workers.lock());
        for worker in workers {
            let _ = worker.join();
        }
        let state = self.inner.state.lock();
        let calm = std::thread::panicking() || state.cfg.fatal == Fatal::Off || state.findings.is_empty();
        let report = if calm { String::new() } else { crate::ledger::report(&state) };
        drop(state);
        assert!(calm, "simcuda: findings that nobody took\n{report}");
    }
}
