//! A small world for tests: a driver with two devices and a current context.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "not every test uses all of it, and a test that unwraps fails as it should"
)]

use simcuda::{Config, Fatal, Mode, Sim};

pub const MODES: [Mode; 3] = [Mode::Lazy, Mode::Threads { workers: 2, delay_us: 20 }, Mode::Adversarial];

pub struct World {
    pub sim: Sim,
    pub ctx: u64,
}

impl std::ops::Deref for World {
    type Target = Sim;

    fn deref(&self) -> &Sim {
        &self.sim
    }
}

impl World {
    pub fn with(cfg: Config) -> Self {
        let sim = Sim::new(Config { devices: 2, va_size: 1 << 30, host_va_size: 1 << 28, ..cfg });
        sim.init(0).unwrap();
        let ctx = sim.primary_retain(0).unwrap();
        sim.ctx_set_current(ctx).unwrap();
        Self { sim, ctx }
    }

    /// A world whose findings are fatal at the end, as by default.
    pub fn strict(mode: Mode, seed: u64) -> Self {
        Self::with(Config::new(mode, seed))
    }

    /// A world whose findings are only recorded.
    pub fn lenient(seed: u64) -> Self {
        Self::with(Config { fatal: Fatal::Off, ..Config::new(Mode::Lazy, seed) })
    }

    /// A non-blocking stream.
    pub fn nb(&self) -> u64 {
        self.sim.stream_create(simcuda::STREAM_NON_BLOCKING).unwrap()
    }

    /// A stream that is ordered with the legacy stream.
    pub fn blocking(&self) -> u64 {
        self.sim.stream_create(0).unwrap()
    }

    pub fn event(&self) -> u64 {
        self.sim.event_create(simcuda::EVENT_DISABLE_TIMING).unwrap()
    }

    pub fn dev(&self, n: u64) -> u64 {
        self.sim.mem_alloc(n).unwrap()
    }

    pub fn pinned(&self, n: u64) -> u64 {
        self.sim.mem_alloc_host(n).unwrap()
    }

    /// Makes `later` wait for what `earlier` has queued so far.
    pub fn order(&self, earlier: u64, later: u64) {
        let e = self.event();
        self.sim.event_record(e, earlier).unwrap();
        self.sim.stream_wait_event(later, e, 0).unwrap();
        self.sim.event_destroy(e).unwrap();
    }
}
