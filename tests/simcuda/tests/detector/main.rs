//! The detector against broken programs. Each program is written once and takes `good`: without the step that makes
//! it right it must be flagged, for the right reason and at the right calls, whatever the schedule; with it, never.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that unwraps fails as it should")]

mod lifetime;
mod misuse;
mod order;
#[path = "../world/mod.rs"]
mod world;

use simcuda::{Config, Fatal, Kind, Mode, Sim};
use std::sync::Arc;
use world::{MODES, World};

struct Program {
    name: &'static str,
    kind: Kind,
    /// The functions of the earlier and the later call; empty if there is none, or if it does not matter.
    calls: (&'static str, &'static str),
    run: fn(&Arc<World>, bool),
}

macro_rules! programs {
    ($($name:ident: $kind:ident ($first:literal, $second:literal) |$w:ident, $good:ident| $body:block)*) => {
        pub(crate) const PROGRAMS: &[$crate::Program] = &[$($crate::Program {
            name: stringify!($name),
            kind: simcuda::Kind::$kind,
            calls: ($first, $second),
            run: |$w, $good| $body,
        },)*];
    };
}
pub(crate) use programs;

/// A second driver that shares 64 bytes.
pub(crate) fn exporter() -> (World, simcuda::IpcHandle) {
    let other = World::strict(Mode::Lazy, 1);
    let a = other.dev(64);
    let handle = other.ipc_mem_handle(a).unwrap();
    (other, handle)
}

fn check(program: &Program, mode: Mode, seed: u64, good: bool) {
    let cfg = Config { initcheck: program.kind == Kind::UninitRead, fatal: Fatal::Off, ..Config::new(mode, seed) };
    let world = Arc::new(World::with(cfg));
    (program.run)(&world, good);
    world.quiesce();
    let found = world.take_findings();
    let twin = if good { "corrected" } else { "broken" };
    let what = || format!("{} ({twin}) {mode:?} seed {seed}: {found:#?}", program.name);
    if good {
        assert!(found.is_empty(), "{}", what());
        return;
    }
    let [first, rest @ ..] = found.as_slice() else { panic!("not flagged: {}", what()) };
    assert!(found.iter().all(|f| f.kind == program.kind), "{}", what());
    assert!(rest.is_empty(), "flagged more than once: {}", what());
    if !program.calls.0.is_empty() {
        assert_eq!(first.first.as_ref().map(|s| s.function), Some(program.calls.0), "{}", what());
    }
    if !program.calls.1.is_empty() {
        assert_eq!(first.second.function, program.calls.1, "{}", what());
    }
}

fn check_all(mode: Mode, seeds: u64) {
    let programs: Vec<&Program> =
        [order::PROGRAMS, lifetime::PROGRAMS, misuse::PROGRAMS].into_iter().flatten().collect();
    assert!(programs.len() >= 40);
    for program in &programs {
        for seed in 0..seeds {
            check(program, mode, seed, false);
            check(program, mode, seed, true);
        }
    }
    println!("{} programs and their twins, {seeds} seeds, {mode:?}", programs.len());
}

#[test]
fn lazy() {
    check_all(MODES[0], 200);
}

#[test]
fn threads() {
    check_all(MODES[1], 20);
}

#[test]
fn adversarial() {
    check_all(MODES[2], 20);
}

/// The reason for clocks instead of delays: the data of a racy program is right in some of the runs.
#[test]
fn data_is_no_witness() {
    let mut right = 0;
    for seed in 0..200 {
        let w = World::lenient(seed);
        let (a, b, s, t) = (w.dev(8), w.dev(8), w.nb(), w.nb());
        w.upload_async(a, &[5; 8], s).unwrap();
        w.memcpy_dtod_async(b, a, 8, t).unwrap();
        w.ctx_synchronize().unwrap();
        right += u32::from(w.peek(b, 8).unwrap() == [5; 8]);
        assert_eq!(w.stat("races"), Some(1), "seed {seed}");
    }
    assert!((40..160).contains(&right), "{right} of 200");
}

#[test]
fn an_unexamined_finding_is_fatal() {
    let w = World::strict(Mode::Lazy, 4711);
    let a = w.dev(8);
    w.mem_free(a).unwrap();
    w.mem_free(a).unwrap_err();
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(w)));
    let text = *died.unwrap_err().downcast::<String>().unwrap();
    for part in ["DoubleFree", "SIMCUDA_SEED=4711", "cuMemFree_v2", "detector/main.rs"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn kinds_can_be_allowed_and_frees_can_wait() {
    let w = World::with(Config { free_waits: true, ..Config::default() });
    let (a, s) = (w.dev(8), w.nb());
    w.memset_d8_async(a, 1, 8, s).unwrap();
    w.mem_free(a).unwrap();
    let w = World::with(Config { allowed: vec![Kind::DoubleFree], ..Config::default() });
    let a = w.dev(8);
    w.mem_free(a).unwrap();
    w.mem_free(a).unwrap_err();
}

#[test]
fn many_streams_do_not_slow_it_down() {
    let w = World::strict(Mode::Lazy, 1);
    let a = w.dev(8);
    for _ in 0..3000 {
        let s = w.nb();
        w.memset_d8_async(a, 1, 8, s).unwrap();
        w.stream_synchronize(s).unwrap();
        w.stream_destroy(s).unwrap();
    }
    assert_eq!(w.live().len(), 2);
}

#[allow(dead_code, reason = "only its type matters: a simulator is usable from any thread")]
fn sim_is_shared() -> impl Send + Sync {
    Sim::new(Config::default())
}
