//! Faults of the driver: every call of every scenario fails, with every kind of code, once or from then on. The result
//! is an error with the call and the code, nothing is released twice or too early, and what is not given back is
//! counted.
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls of the C API in a row")]

mod arrays;
mod exchanges;
mod in_c;
mod managers;
mod processes;
mod scene;

use std::time::Instant;

use devexchange_tests::cu_ok;
use devexchange_tests::sim::{self, Live, Session};

use scene::Scene;

const N: u64 = 256;

/// Invalid value, out of memory, invalid handle, illegal address, launch failed, invalid context, context destroyed,
/// deinitialised, unknown, and one that no driver has.
const CODES: [u32; 10] = [1, 2, 400, 700, 719, 201, 709, 4, 999, 7777];

type Scenario = (&'static str, fn(&Scene));

/// Runs a scenario with one fault. Returns the number of calls that the fault stopped.
fn run(scenario: Scenario, setting: (u64, i64), fault: (u64, u32, bool)) -> i64 {
    let ((name, scenario), (context, stream), (nth, code, sticky)) = (scenario, setting, fault);
    let what = format!("{name}, stream {stream}, call {nth}, code {code}, sticky {sticky}");
    let before = Live::now();
    let scene = Scene::new(stream);
    let faults = sim::stat("faults");
    sim::set_current(0);
    sim::set_current(context);
    sim::fail("*", nth, code, sticky);
    scenario(&scene);
    // The reaper's calls are part of the scenario.
    sim::quiesce();
    sim::settle();
    let fired = sim::stat("faults") - faults;
    let last = sim::last_fault();
    sim::fail_clear();
    let what = format!("{what}: {last}");
    // If every call fails from some point on, nothing can be restored.
    let mut now = sim::current();
    while sticky && now != context && now != 0 {
        let mut popped = 0_u64;
        cu_ok!("cuCtxPopCurrent_v2", &raw mut popped);
        now = sim::current();
    }
    assert_eq!(now, context, "{what}: the context is another one");
    sim::set_current(sim::primary(0));
    for (number, text) in scene.errors.lock().expect("not poisoned").iter() {
        let names_a_call = text.starts_with("cu") || text.contains(": cu");
        assert!(fired > 0 && *number == code as i32 && names_a_call, "{what}: {number}, {text}");
        assert!(text.contains(&code.to_string()), "{what}: {text}");
    }
    for stream in in_c::UNDESTROYED.lock().expect("not poisoned").drain(..) {
        sim::destroy(stream);
    }
    let lost = Live::now().lost - before.lost;
    scene.end(lost);
    let findings = sim::take_findings();
    assert!(findings.is_empty(), "{what}: {findings:#?}");
    // A driver that reports from now on that every event is gone may, for all that anybody can tell, still have all of
    // them.
    let gone = if [400, 709, 4].contains(&code) { sim::stat("live_events") + 8 } else { 0 };
    let after = Live::now();
    // Things that disappeared with their context, or with the driver, are not lost.
    let went = [709, 4].contains(&code);
    assert!(went || after.memory - before.memory <= lost, "{what}: {before:?} {after:?}");
    // A lost thing may keep the events of its uses, on two streams, and the one that it was ready after.
    assert!(after.events - before.events <= 3 * lost + gone, "{what}: {before:?} {after:?}");
    assert!(went || after.streams - before.streams <= lost, "{what}: {before:?} {after:?}");
    assert!(lost == 0 || fired > 0, "{what}: {lost} lost");
    fired
}

/// Runs a scenario in separate processes, with a few codes each: the simulated driver remembers all memory that ever
/// existed, and becomes slow from it.
fn sweep(name: &str) {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    let start = Instant::now();
    let mut faults = 0_u64;
    // Where each call is slow, the first few codes tell most: the consequences of a fault are nearly the same for all
    // codes.
    let tried = std::env::var("DEVX_FAULT_CODES").map_or(CODES.len(), |tried| tried.parse().expect("a number"));
    for codes in CODES[..tried].chunks(2) {
        let codes = codes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        // What the core gives up for lost stays allocated, as it must: it is counted here, and is not a leak for a
        // sanitizer.
        let variables = [("DEVX_SCENARIO", name), ("DEVX_CODES", &codes), ("ASAN_OPTIONS", "detect_leaks=0")];
        let output = sim::child("one_scenario_in_this_process", &variables);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        let count = text.lines().find_map(|line| line.strip_prefix("injected ")).expect("the child says how many");
        faults += count.parse::<u64>().expect("a number");
    }
    println!("{name}: {faults} faults in {:?}", start.elapsed());
}

/// The test that the sweeps start; by itself it is a short sweep.
#[test]
fn one_scenario_in_this_process() {
    if sim::skipped("faults are injected into the simulated driver") {
        return;
    }
    let wanted = std::env::var("DEVX_SCENARIO").unwrap_or_else(|_| "export".to_owned());
    let scenario = *SCENARIOS.iter().find(|(name, _)| *name == wanted).expect("a scenario");
    let codes = std::env::var("DEVX_CODES").unwrap_or_else(|_| "2".to_owned());
    let codes: Vec<u32> = codes.split(',').map(|code| code.parse().expect("a number")).collect();
    let session = Session::new();
    let mut injected = 0_u64;
    // The current context, and the named stream (0: a handle).
    let all = [(sim::primary(0), 0), (0, 1), (sim::primary(1), 2)];
    // Scenarios with many calls have one setting each; otherwise the sweep would take too long.
    let settings = match scenario.0 {
        "copy" | "driver manager" | "managed manager" | "CUDA arrays" | "imports from a process" => &all[..1],
        "upload" | "memory in C" | "pool manager" | "limited manager" | "copies for processes" => &all[1..2],
        "allocate" | "shareable pool manager" | "exports to processes" => &all[2..],
        _ => &all[..],
    };
    for &setting in settings {
        for (code, sticky) in codes.iter().flat_map(|code| [(*code, false), (*code, true)]) {
            for nth in 1..1000 {
                session.begin(sim::Schedule { mode: "lazy", seed: injected });
                if run(scenario, setting, (nth, code, sticky)) == 0 {
                    break;
                }
                injected += 1;
            }
        }
    }
    assert!(injected > 0, "{wanted}: no fault was met");
    println!("\ninjected {injected}");
    processes::end();
    session.accept();
}

const SCENARIOS: [Scenario; 19] = [
    ("export", exchanges::export),
    ("import", exchanges::import),
    ("convert", exchanges::conversion),
    ("copy", exchanges::copy),
    ("upload", exchanges::upload),
    ("allocate", exchanges::allocation),
    ("release", exchanges::release),
    ("exchange in C", in_c::exchange),
    ("memory in C", in_c::memory),
    ("driver manager", managers::driver),
    ("managed manager", managers::managed),
    ("host-only manager", managers::host_only),
    ("pool manager", managers::pool),
    ("shareable pool manager", managers::shareable_pool),
    ("limited manager", managers::limited),
    ("CUDA arrays", arrays::arrays),
    ("exports to processes", processes::export_views),
    ("copies for processes", processes::export_copies),
    ("imports from a process", processes::imports),
];

macro_rules! sweeps {
    ($($test:ident: $name:literal;)*) => {$(
        #[test]
        fn $test() {
            sweep($name);
        }
    )*};
}

sweeps! {
    exports: "export";
    imports: "import";
    conversions: "convert";
    copies: "copy";
    uploads: "upload";
    allocations: "allocate";
    releases: "release";
    exchange_in_c: "exchange in C";
    memory_in_c: "memory in C";
    driver_manager: "driver manager";
    managed_manager: "managed manager";
    host_only_manager: "host-only manager";
    pool_manager: "pool manager";
    shareable_pool_manager: "shareable pool manager";
    limited_manager: "limited manager";
    cuda_arrays: "CUDA arrays";
    exports_to_processes: "exports to processes";
    copies_for_processes: "copies for processes";
    imports_from_a_process: "imports from a process";
}
