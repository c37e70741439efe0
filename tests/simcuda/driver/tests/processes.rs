//! Behaviour that only whole processes can show: traps, exit codes, reports, the environment, fork.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that unwraps fails as it should")]

mod library;

use library::{Placed, child};
use std::os::unix::process::ExitStatusExt;

const DEVICES: &[(&str, &str)] = &[("SIMCUDA_SEED", "99")];

#[test]
fn the_host_cannot_touch_what_it_must_not() {
    let placed = Placed::new();
    for role in ["reads_device_memory", "reads_freed_pinned_memory", "dereferences_a_handle"] {
        let out = child(role, &placed.0, DEVICES);
        assert_eq!(out.status.signal(), Some(libc::SIGSEGV), "{role}: {out:?}");
        assert!(out.stdout.ends_with(b"\nreads\n"), "{role}: {out:?}");
    }
}

#[test]
fn findings_end_the_process_and_say_where() {
    let placed = Placed::new();
    let run = |role: &str, env: &[(&str, &str)]| {
        let out = child(role, &placed.0, &[DEVICES, env].concat());
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() || out.status.signal().is_some(), "{role}: {text}");
        (out.status.signal(), text)
    };
    let aborted = Some(libc::SIGABRT);
    let (end, text) = run("frees_twice", &[]);
    assert_eq!(end, aborted, "{text}");
    for part in ["went on", "DoubleFree", "SIMCUDA_SEED=99", "cuMemFree_v2"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (end, text) = run("frees_twice", &[("SIMCUDA_FATAL", "now"), ("SIMCUDA_BACKTRACE", "1")]);
    assert!(end == aborted && !text.contains("went on") && text.contains("simcuda_child::frees_twice"), "{text}");
    assert_eq!(run("frees_twice", &[("SIMCUDA_FATAL", "off")]).0, None);
    assert_eq!(run("frees_twice", &[("SIMCUDA_ALLOW", "DoubleFree")]).0, None);
    assert_eq!(run("leaks", &[]).0, None);
    let (end, text) = run("leaks", &[("SIMCUDA_LEAKS", "fatal")]);
    assert!(
        end == aborted && text.contains("live: Device") && text.contains("made by call #4 cuMemAlloc_v2"),
        "{text}"
    );
    let (end, text) = run("leaks", &[("SIMCUDA_LEAKS", "report")]);
    assert!(end.is_none() && text.contains("live: Device"), "{text}");
    let report = placed.0.join("report");
    assert_eq!(run("leaks", &[("SIMCUDA_REPORT", report.to_str().unwrap())]).0, None);
    let text = std::fs::read_to_string(report).unwrap();
    assert!(text.contains("cuMemAlloc_v2 1"), "{text}");
    assert!(run("leaks", &[("SIMCUDA_MODE", "quick")]).1.contains("SIMCUDA_MODE=quick is none of"));
}

#[test]
fn processes_that_end_well() {
    let placed = Placed::new();
    let faults = ("SIMCUDA_FAIL", "cuDeviceGetCount:2:424242,cuDeviceGet:1:700:sticky");
    for mode in ["lazy", "threads", "adversarial"] {
        for (role, env) in [
            ("meets_faults", &[faults, ("SIMCUDA_DEVICES", "3")][..]),
            ("finds_no_device", &[("SIMCUDA_DEVICES", "0")]),
            ("forks", &[("SIMCUDA_LEAKS", "fatal")]),
            ("calls_after_the_end", &[]),
        ] {
            let out = child(role, &placed.0, &[&[("SIMCUDA_MODE", mode)], env].concat());
            assert!(out.status.success(), "{role} {mode}: {out:?}");
        }
    }
}

#[test]
#[should_panic(expected = "simcuda-child does not know no_such_role")]
fn a_role_that_nobody_knows_fails_its_test() {
    child("no_such_role", &Placed::new().0, &[]);
}
