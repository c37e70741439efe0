//! The functions of the simulator for tests, besides the driver's own functions.

use crate::call::Sim;
use crate::code::{Code, CuResult};
use crate::config::{HostOrder, Mode};
use crate::fault::Fault;
use crate::finding::Finding;
use crate::ledger::{Live, LiveKind, live, report};
use crate::race::Touch;
use crate::sched::advance;
use crate::state::State;
use std::collections::BTreeMap;

impl Sim {
    /// Runs everything that is queued, except work that waits for an inactive other process. Nobody learns anything
    /// from this: it creates no order.
    pub fn quiesce(&self) {
        let Some(mut c) = self.control("simcuda_quiesce") else { return };
        c.drain();
    }

    /// Runs one operation, if any may run.
    pub fn step(&self) -> bool {
        self.control("simcuda_step").is_some_and(|mut c| advance(c.inner, &mut c.st, None))
    }

    /// Lets new streams reuse the handles of streams that are destroyed from now on, whether or not their work is done;
    /// or no longer.
    pub fn reuse_streams(&self, reuse: bool) {
        if let Some(mut c) = self.control("simcuda_reuse_streams") {
            c.st.reuse_streams = reuse;
            c.st.free_streams.clear();
        }
    }

    /// Arms a fault.
    pub fn fail(&self, fault: Fault) {
        if let Some(mut c) = self.control("simcuda_fail") {
            c.st.faults.arm(fault);
        }
    }

    /// Forgets armed faults, and ends a sticky one.
    pub fn fail_nothing(&self) {
        if let Some(mut c) = self.control("simcuda_fail") {
            c.st.faults.disarm();
        }
    }

    /// Makes every call from now on fail with this code.
    pub fn stick(&self, code: Code) {
        if let Some(mut c) = self.control("simcuda_stick") {
            c.st.faults.stick(code);
        }
    }

    /// The number of calls of a function so far; of all functions for `*`.
    pub fn calls(&self, function: &str) -> u64 {
        self.control("simcuda_calls").map_or(0, |c| match function {
            "*" => c.st.faults.total,
            _ => c.st.faults.calls.get(function).copied().unwrap_or(0),
        })
    }

    /// The number of calls of each function that was called.
    pub fn all_calls(&self) -> BTreeMap<&'static str, u64> {
        self.control("simcuda_calls").map(|c| c.st.faults.calls.clone()).unwrap_or_default()
    }

    /// How many calls faults have stopped, and the last of them.
    pub fn faults_fired(&self) -> (u64, Option<&'static str>) {
        self.control("simcuda_faults").map_or((0, None), |c| (c.st.faults.fired, c.st.faults.last))
    }

    /// The findings so far, which stay.
    pub fn findings(&self) -> Vec<Finding> {
        self.control("simcuda_findings").map(|c| c.st.findings.clone()).unwrap_or_default()
    }

    /// Takes the findings so far, which then count as handled.
    pub fn take_findings(&self) -> Vec<Finding> {
        self.control("simcuda_findings").map(|mut c| std::mem::take(&mut c.st.findings)).unwrap_or_default()
    }

    /// Everything live.
    pub fn live(&self) -> Vec<Live> {
        self.control("simcuda_live").map(|c| live(&c.st)).unwrap_or_default()
    }

    /// Everything live that no injected failure explains.
    pub fn leaks(&self) -> Vec<Live> {
        self.live().into_iter().filter(|l| !l.excused).collect()
    }

    /// A count by name, as in `simcuda_stat`; `None` for an unknown name.
    pub fn stat(&self, name: &str) -> Option<u64> {
        let c = self.control("simcuda_stat")?;
        let of = |kinds: &[LiveKind]| live(&c.st).iter().filter(|l| kinds.contains(&l.kind)).count() as u64;
        let st: &State = &c.st;
        Some(match name {
            "calls" => st.faults.total,
            "faults" => st.faults.fired,
            "findings" => st.findings.len() as u64,
            "races" => st.stats.races,
            "use_after_free" => st.stats.use_after_free,
            "submitted" => st.submitted,
            "executed" => st.executed,
            "skipped" => st.stats.skipped,
            "seed" => st.cfg.seed,
            "live" => live(st).len() as u64,
            "leaks" => live(st).iter().filter(|l| !l.excused).count() as u64,
            "live_device" => of(&[LiveKind::Device]),
            "live_host" => of(&[LiveKind::Pinned, LiveKind::Registered]),
            "live_managed" => of(&[LiveKind::Managed]),
            "live_imported" => of(&[LiveKind::Imported]),
            "live_streams" => of(&[LiveKind::Stream]),
            "live_events" => of(&[LiveKind::Event]),
            "live_contexts" => of(&[LiveKind::Context]),
            "live_pools" => of(&[LiveKind::Pool]),
            _ => return None,
        })
    }

    /// Findings, what is live and the schedule, as text.
    pub fn report(&self) -> String {
        self.control("simcuda_report").map(|c| report(&c.st)).unwrap_or_default()
    }

    /// The schedule in the words of the environment variables.
    pub fn schedule(&self) -> String {
        self.control("simcuda_schedule").map(|c| c.st.schedule()).unwrap_or_default()
    }

    /// Names what the calling thread is doing, for sites of later calls.
    pub fn label(&self, label: Option<&str>) {
        if let Some(mut c) = self.control("simcuda_label") {
            c.host().label = label.map(Into::into);
        }
    }

    /// Changes mode and seed. Threads that the threaded mode started stay.
    pub fn set_schedule(&self, mode: Mode, seed: u64) {
        let start = self.control("simcuda_seed").is_some_and(|mut c| {
            let had = matches!(c.st.cfg.mode, Mode::Threads { .. });
            c.st.cfg.mode = mode;
            c.st.cfg.seed = seed;
            c.st.rng = crate::rng::Rng::new(seed);
            c.st.initialised && !had
        });
        if start {
            self.start_workers(mode);
        }
    }

    /// Puts the driver into shutdown from now on, as at the end of a process.
    pub fn deinitialise(&self) {
        if let Some(mut c) = self.control("simcuda_deinit") {
            c.st.deinitialised = true;
        }
    }

    /// Declares that this thread reads or writes memory that the driver knows, an access that the driver cannot see by
    /// itself: pinned, managed or registered memory. Pageable memory does not matter.
    #[track_caller]
    pub fn host_access(&self, address: u64, n: u64, write: bool) -> CuResult<()> {
        let mut c = self.control("simcuda_host_access").ok_or(Code::NOT_INITIALIZED)?;
        if let Some((base, offset)) = c.locate(address, n)? {
            let touch = if write { Touch::write(base, offset, n) } else { Touch::read(base, offset, n) };
            c.host_touch(touch);
        }
        Ok(())
    }

    /// The bytes of pinned, managed or registered memory, read by this thread (see [`Sim::host_access`]).
    #[track_caller]
    pub fn host_read(&self, address: u64, n: u64) -> CuResult<Vec<u8>> {
        self.host_access(address, n, false)?;
        self.peek(address, n)
    }

    /// Writes pinned, managed or registered memory as this thread (see [`Sim::host_access`]).
    #[track_caller]
    pub fn host_write(&self, address: u64, data: &[u8]) -> CuResult<()> {
        let n = data.len() as u64;
        self.host_access(address, n, true)?;
        let mut c = self.control("simcuda_host_write").ok_or(Code::NOT_INITIALIZED)?;
        let (base, offset) = c.locate(address, n)?.ok_or(Code::INVALID_VALUE)?;
        let place = crate::state::Place::Known { base, offset };
        c.st.span(&place, n).map(|s| s.put(data)).ok_or(Code::INVALID_VALUE)
    }

    /// The current bytes of any memory that the driver knows. This does not count as an access.
    #[track_caller]
    pub fn peek(&self, address: u64, n: u64) -> CuResult<Vec<u8>> {
        let mut c = self.control("simcuda_peek").ok_or(Code::NOT_INITIALIZED)?;
        let (base, offset) = c.locate(address, n)?.ok_or(Code::INVALID_VALUE)?;
        let place = crate::state::Place::Known { base, offset };
        c.st.span(&place, n).map(|s| s.to_vec()).ok_or(Code::INVALID_VALUE)
    }

    /// Makes everything that this thread (or the host function that runs on it) knows known to any thread that acquires
    /// the token later: an edge between threads that the driver cannot see.
    pub fn annotate_release(&self, token: u64) {
        let Some(mut c) = self.control("simcuda_release") else { return };
        let clock = match crate::call::running(self.inner.instance) {
            Some(r) => r.clock,
            None => c.host_event().2,
        };
        c.st.tokens.entry(token).or_default().join(&clock);
    }

    /// The other end of [`Sim::annotate_release`].
    pub fn annotate_acquire(&self, token: u64) {
        let Some(mut c) = self.control("simcuda_acquire") else { return };
        if let Some(clock) = c.st.tokens.get(&token).cloned() {
            c.host_clock().join(&clock);
        }
    }

    /// Sets whether calls of different host threads count as ordered.
    pub fn set_host_order(&self, order: HostOrder) {
        if let Some(mut c) = self.control("simcuda_host_order") {
            c.st.cfg.host_order = order;
        }
    }

    /// Notes a request for a function that does not exist here, if the configuration is strict.
    pub fn log_missing(&self, what: &str) {
        if self.control("simcuda_missing").is_some_and(|c| c.st.cfg.strict) {
            eprintln!("simcuda: {what} was asked for and is not implemented");
        }
    }
}

impl Sim {
    /// The version profile, without a counted call.
    pub fn version(&self) -> i32 {
        self.control("simcuda_version").map_or(0, |c| i32::try_from(c.st.cfg.version).unwrap_or(0))
    }

    /// When findings are fatal here.
    pub fn fatal(&self) -> crate::Fatal {
        self.control("simcuda_fatal").map_or(crate::Fatal::Off, |c| c.st.cfg.fatal)
    }
}
