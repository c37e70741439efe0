//! Sessions: one test at a time, with nothing left over at its end.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use devexchange_core::runtime::cuda::{info, kept_events};
use devexchange_core::runtime::{releases_lost, releases_waiting};

use super::{
    Schedule, fail_clear, ledger, on_gpu, primary, rehearsal, schedules, set_current, set_schedule, skipped, stat,
    take_findings,
};
use crate::patient;

/// What exists in the driver, except contexts and events, which the core keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Device memory, pinned and managed memory.
    pub memory: i64,
    /// Memory pools.
    pub pools: i64,
    /// Streams.
    pub streams: i64,
    /// Events outside the core's pool.
    pub events: i64,
    /// The number of things that the core has given up for lost.
    pub lost: i64,
}

impl Live {
    /// The current numbers.
    pub fn now() -> Self {
        let memory = ["live_device", "live_host", "live_managed", "live_imported"];
        Self {
            memory: memory.iter().map(|name| stat(name)).sum(),
            pools: stat("live_pools"),
            streams: stat("live_streams"),
            events: if on_gpu() { 0 } else { stat("live_events") - kept_events() as i64 },
            lost: releases_lost(),
        }
    }
}

/// The session of a test: no other test runs in this process, a context of device 0 is current, and at the end the
/// driver must have no findings and nothing left that was made meanwhile.
#[derive(Debug)]
pub struct Session {
    before: Mutex<Live>,
    contexts: i64,
    schedule: Mutex<Option<Schedule>>,
    _alone: MutexGuard<'static, ()>,
}

impl Session {
    /// Begins a session, after waiting for the test before.
    ///
    /// # Panics
    /// If the core does not use the same driver as the tests, or the driver found something since the test before.
    #[expect(clippy::new_without_default, reason = "beginning is an act, not a value")]
    pub fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = if on_gpu() { 1 } else { 2 };
        (0..devices).for_each(|device| {
            primary(device);
        });
        set_current(primary(0));
        let name = info::device_info(0).expect("the core finds the driver").name;
        assert_eq!(name.contains("Simulated"), rehearsal() || !on_gpu(), "the core uses {name}");
        let late = take_findings();
        assert!(late.is_empty(), "since the end of the test before: {late:#?}");
        let contexts = stat("live_contexts");
        Self { before: Mutex::new(Live::now()), contexts, schedule: Mutex::new(None), _alone: alone }
    }

    /// Runs a scenario once for each schedule; nothing of it may be left afterwards.
    ///
    /// # Panics
    /// If the scenario fails, or leaves findings or live things behind.
    pub fn each(&self, lazy: u64, mut scenario: impl FnMut()) {
        for schedule in schedules(lazy) {
            self.begin(schedule);
            scenario();
            self.check();
        }
    }

    /// Runs a scenario in which a wait is left out, once for each schedule: the driver must find a race each time.
    ///
    /// # Panics
    /// If it finds none.
    pub fn races(&self, lazy: u64, mut scenario: impl FnMut()) {
        if skipped("a missing wait shows only with the detector") {
            return;
        }
        for schedule in schedules(lazy) {
            self.begin(schedule);
            scenario();
            let findings = take_findings();
            assert!(findings.iter().any(|text| text.starts_with("Race: ")), "{schedule:?}: {findings:?}");
        }
    }

    /// Switches to another schedule from now on.
    pub fn begin(&self, schedule: Schedule) {
        *self.schedule.lock().unwrap_or_else(PoisonError::into_inner) = Some(schedule);
        set_schedule(schedule);
    }

    /// Accepts the current numbers as the starting point, after an injected failure that explains them.
    pub fn accept(&self) {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Live::now();
    }

    /// Checks that the driver has no findings, and that nothing is left that was made since the beginning.
    ///
    /// # Panics
    /// If there are findings, or something is left.
    pub fn check(&self) {
        settle();
        let findings = take_findings();
        let now = Live::now();
        let schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(findings.is_empty(), "{schedule:?}: {findings:#?}");
        let before = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(now, before, "{schedule:?}: not all is as before; live are:\n{}", ledger());
        // The core keeps one primary context for each device that it was used with.
        let (retained, devices) = (stat("live_contexts") - self.contexts, 2);
        assert!(retained <= devices, "{schedule:?}: {retained} contexts retained for {devices} devices");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        fail_clear_if_simulated();
        if std::thread::panicking() {
            eprintln!("schedule: {:?}", self.schedule);
            take_findings().iter().for_each(|finding| eprintln!("finding: {finding}"));
            return;
        }
        self.check();
    }
}

fn fail_clear_if_simulated() {
    if !on_gpu() {
        fail_clear();
    }
}

/// Waits until no release is waiting for work.
///
/// # Panics
/// If that takes more than two minutes.
pub fn settle() {
    let end = Instant::now() + patient(Duration::from_secs(120));
    while releases_waiting() > 0 {
        assert!(Instant::now() < end, "{} releases still wait", releases_waiting());
        std::thread::sleep(Duration::from_micros(50));
    }
}
