//! Faults: a client with proper clean-up, with a fault at every call, with several codes, once and permanently.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that unwraps fails as it should")]

mod world;

use simcuda::{Code, Config, CuResult, EVENT_DISABLE_TIMING, Fault, LiveKind, Mode, STREAM_NON_BLOCKING, Sim};
use std::time::Instant;
use world::{MODES, World};

/// Known codes, codes that no header lists, and the greatest number.
const CODES: [Code; 6] = [Code(1), Code(2), Code(700), Code(999), Code(1234), Code(u32::MAX)];

/// The things that a careful client holds, given back in order after its work is over.
#[derive(Default)]
struct Held {
    retained: bool,
    streams: Vec<u64>,
    events: Vec<u64>,
    device: Vec<u64>,
    pooled: Vec<(u64, u64)>,
    pinned: Vec<u64>,
}

impl Held {
    fn give_back(self, sim: &Sim) -> CuResult<()> {
        let mut result = Ok(());
        let mut note = |r: CuResult<()>| result = result.and(r);
        if self.retained {
            let waited = sim.ctx_synchronize();
            if waited.is_err() {
                // Waits once more: without this wait nothing may be freed.
                note(sim.ctx_synchronize());
            }
            note(waited);
        }
        self.pooled.iter().for_each(|(a, s)| note(sim.mem_free_async(*a, *s)));
        self.device.iter().for_each(|a| note(sim.mem_free(*a)));
        self.pinned.iter().for_each(|a| note(sim.mem_free_host(*a)));
        self.events.iter().for_each(|e| note(sim.event_destroy(*e)));
        self.streams.iter().for_each(|s| note(sim.stream_destroy(*s)));
        if self.retained {
            note(sim.primary_release(0));
        }
        result
    }
}

fn exchange(sim: &Sim, held: &mut Held) -> CuResult<Vec<u8>> {
    sim.init(0)?;
    sim.device_get(0)?;
    let ctx = sim.primary_retain(0)?;
    held.retained = true;
    sim.ctx_set_current(ctx)?;
    for _ in 0..2 {
        held.streams.push(sim.stream_create(STREAM_NON_BLOCKING)?);
        held.events.push(sim.event_create(EVENT_DISABLE_TIMING)?);
    }
    let [s, t] = held.streams[..] else { return Err(Code(1)) };
    let [e, f] = held.events[..] else { return Err(Code(1)) };
    let a = sim.mem_alloc(256)?;
    held.device.push(a);
    let b = sim.mem_alloc_async(256, s)?;
    held.pooled.push((b, s));
    let p = sim.mem_alloc_host(256)?;
    held.pinned.push(p);
    sim.host_write(p, &[7; 256])?;
    sim.pointer_attribute(2, a)?;
    sim.memcpy_htod_async(a, p, 256, s)?;
    sim.memcpy_dtod_async(b, a, 256, s)?;
    sim.event_record(e, s)?;
    sim.stream_wait_event(t, e, 0)?;
    sim.memset_d8_async(b, 9, 16, t)?;
    sim.memcpy_dtoh_async(p, b, 256, t)?;
    sim.event_record(f, t)?;
    sim.event_synchronize(f)?;
    sim.stream_wait_event(s, f, 0)?;
    sim.host_read(p, 256)
}

fn run(mode: Mode, seed: u64, fault: Option<Fault>) -> (CuResult<Vec<u8>>, CuResult<()>, Sim) {
    let faults = fault.into_iter().collect();
    let sim = Sim::new(Config { faults, va_size: 1 << 24, host_va_size: 1 << 24, ..Config::new(mode, seed) });
    let mut held = Held::default();
    let result = exchange(&sim, &mut held);
    let cleanup = held.give_back(&sim);
    (result, cleanup, sim)
}

#[test]
fn sweep() {
    let start = Instant::now();
    let (ok, cleanup, sim) = run(Mode::Lazy, 7, None);
    assert_eq!(ok.unwrap().first(), Some(&9));
    cleanup.unwrap();
    let calls = sim.calls("*");
    assert!(sim.live().is_empty(), "{}", sim.report());
    let mut runs = 0;
    let schedules = (0..9).map(|seed| (Mode::Lazy, seed)).chain([(Mode::Adversarial, 0)]);
    for (mode, seed) in schedules {
        for nth in 1..=calls {
            for code in CODES {
                for sticky in [false, true] {
                    let fault = Fault { function: None, nth, code, sticky };
                    let (result, cleanup, sim) = run(mode, seed, Some(fault.clone()));
                    runs += 1;
                    let what = || format!("{fault:?}: {result:?} {cleanup:?}\n{}", sim.report());
                    assert!(sim.faults_fired().0 > 0, "{}", what());
                    assert!(result.as_ref().err().or(cleanup.as_ref().err()) == Some(&code), "{}", what());
                    assert!(sim.findings().is_empty(), "{}", what());
                    assert!(sim.leaks().is_empty(), "{}", what());
                }
            }
        }
    }
    println!("{runs} runs over {calls} calls in {:?}", start.elapsed());
    assert!(runs > 3000);
}

#[test]
fn sweep_by_function() {
    let (_, _, sim) = run(Mode::Lazy, 7, None);
    for (function, n) in sim.all_calls() {
        for nth in 1..=n {
            let (result, cleanup, sim) = run(Mode::Lazy, 7, Some(Fault::of(function, nth, Code(4242))));
            assert_eq!(sim.faults_fired(), (1, Some(function)));
            assert_eq!(result.err().or(cleanup.err()), Some(Code(4242)), "{function} {nth}");
            assert!(sim.leaks().is_empty() && sim.findings().is_empty(), "{function} {nth} {}", sim.report());
        }
        let (result, ..) = run(Mode::Lazy, 7, Some(Fault::of(function, n + 1, Code(4242))));
        result.unwrap();
    }
}

#[test]
fn a_failed_call_does_nothing_and_a_failed_release_is_no_leak() {
    for mode in MODES {
        let w = World::strict(mode, 3);
        let (a, s) = (w.dev(64), w.nb());
        w.fail(Fault::of("cuMemFree_v2", 1, Code(77)));
        w.fail(Fault::of("cuMemAlloc_v2", 1, Code(2)));
        assert_eq!(w.mem_alloc(64), Err(Code::OUT_OF_MEMORY));
        assert_eq!(w.mem_free(a), Err(Code(77)));
        let live = w.live();
        let memory: Vec<_> = live.iter().filter(|l| l.kind == LiveKind::Device).collect();
        assert_eq!(memory.len(), 1);
        assert!(memory[0].excused && memory[0].handle == a);
        w.stream_destroy(s).unwrap();
        let leaks = w.leaks();
        assert_eq!(leaks.iter().map(|l| l.kind).collect::<Vec<_>>(), [LiveKind::Context]);
        assert_eq!(leaks[0].origin.function, "cuDevicePrimaryCtxRetain");
        assert!(leaks[0].to_string().contains("world/mod.rs"));
    }
}

#[test]
fn a_release_that_is_made_good_excuses_nothing() {
    let w = World::strict(Mode::Lazy, 3);
    w.primary_retain(0).unwrap();
    w.fail(Fault::of("cuDevicePrimaryCtxRelease_v2", 1, Code(77)));
    assert_eq!(w.primary_release(0), Err(Code(77)));
    assert_eq!((w.live().len(), w.leaks().len()), (2, 1));
    w.primary_release(0).unwrap();
    assert_eq!((w.live().len(), w.leaks().len()), (1, 1));
}

#[test]
fn sticky_errors_stay_until_cleared_and_spare_pure_lookups() {
    let w = World::strict(Mode::Lazy, 1);
    w.stick(Code::ILLEGAL_ADDRESS);
    assert_eq!(w.mem_alloc(1), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(w.stream_synchronize(0), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(w.driver_version(), Ok(12090));
    w.fail_nothing();
    w.mem_alloc(1).unwrap();
}

#[test]
fn counts_and_labels() {
    let w = World::strict(Mode::Lazy, 1);
    w.label(Some("import of x"));
    let s = w.nb();
    w.label(None);
    w.stream_synchronize(s).unwrap();
    w.stream_synchronize(s).unwrap();
    assert_eq!((w.calls("cuStreamSynchronize"), w.calls("cuStreamQuery")), (2, 0));
    assert_eq!(w.calls("*"), 6);
    let live = w.live();
    let stream = live.iter().find(|l| l.kind == LiveKind::Stream).unwrap();
    assert_eq!(stream.origin.label.as_deref(), Some("import of x"));
    assert_eq!((w.stat("live_streams"), w.stat("no such thing")), (Some(1), None));
}

#[test]
fn shutting_down_and_not_started() {
    let sim = Sim::new(Config::default());
    assert_eq!(sim.device_count(), Err(Code::NOT_INITIALIZED));
    assert_eq!(sim.init(1), Err(Code::INVALID_VALUE));
    sim.init(0).unwrap();
    sim.deinitialise();
    assert_eq!(sim.device_count(), Err(Code::DEINITIALIZED));
    let none = Sim::new(Config { devices: 0, ..Config::default() });
    assert_eq!(none.init(0), Err(Code::NO_DEVICE));
}
