//! Sharing memory and events: between two drivers in one process, and between two processes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that unwraps fails as it should")]

mod world;

use simcuda::{Code, Config, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, IpcHandle, Kind, Mode};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use world::{MODES, World};

const SHARED: u32 = EVENT_DISABLE_TIMING | EVENT_INTERPROCESS;

#[test]
fn memory_between_two_drivers() {
    let (w, other) = (World::strict(Mode::Lazy, 1), World::strict(Mode::Lazy, 2));
    let a = w.dev(100);
    w.memset_d8(a, 1, 100, simcuda::LEGACY).unwrap();
    w.ctx_synchronize().unwrap();
    let handle = w.ipc_mem_handle(a + 50).unwrap();
    assert_eq!(IpcHandle::from_bytes(&handle.to_bytes()), handle);
    assert_eq!(w.ipc_open_mem(handle, 1), Err(Code::INVALID_CONTEXT));
    let (b, again) = (other.ipc_open_mem(handle, 1).unwrap(), other.ipc_open_mem(handle, 1).unwrap());
    assert_eq!(b, again);
    other.memset_d8(b, 2, 50, simcuda::LEGACY).unwrap();
    other.ctx_synchronize().unwrap();
    let seen = w.peek(a, 100).unwrap();
    assert_eq!((&seen[..50], &seen[50..]), (&[2; 50][..], &[1; 50][..]));
    // Opened twice, closed twice; the exporter's free in between takes nothing away.
    other.ipc_close_mem(b).unwrap();
    w.mem_free(a).unwrap();
    assert_eq!(other.peek(b, 1).unwrap(), [2]);
    other.ipc_close_mem(b).unwrap();
    assert_eq!(other.pointer_attribute(2, b), Err(Code::INVALID_VALUE));
}

/// A real driver may do anything with an invalid handle; here only a handle that was really made opens its memory.
#[test]
fn a_handle_that_was_altered_is_another_one() {
    let (w, other) = (World::strict(Mode::Lazy, 1), World::strict(Mode::Lazy, 2));
    let (a, b) = (w.dev(100), w.dev(100));
    w.memset_d8(a, 1, 100, simcuda::LEGACY).unwrap();
    w.memset_d8(b, 2, 100, simcuda::LEGACY).unwrap();
    w.ctx_synchronize().unwrap();
    let good = w.ipc_mem_handle(a).unwrap();
    let altered = IpcHandle { fd: w.ipc_mem_handle(b).unwrap().fd, ..good };
    let (wrong, right) = (other.ipc_open_mem(altered, 1).unwrap(), other.ipc_open_mem(good, 1).unwrap());
    assert_eq!((other.peek(wrong, 1).unwrap(), other.peek(right, 1).unwrap()), (vec![2], vec![1]));
    other.ipc_close_mem(wrong).unwrap();
    other.ipc_close_mem(right).unwrap();
}

#[test]
fn what_cannot_be_shared_or_opened() {
    let w = World::lenient(1);
    let pooled = w.mem_alloc_async(8, w.nb()).unwrap();
    for bad in [0, 0x1234, w.pinned(8), w.mem_alloc_managed(8, 1).unwrap(), pooled] {
        assert_eq!(w.ipc_mem_handle(bad), Err(Code::INVALID_VALUE));
    }
    assert_eq!(w.ipc_event_handle(w.event()), Err(Code::INVALID_HANDLE));
    for bytes in [[0; 64], [0xFF; 64], std::array::from_fn(|i| u8::try_from(i).unwrap())] {
        let handle = IpcHandle::from_bytes(&bytes);
        assert_eq!(w.ipc_open_mem(handle, 1), Err(Code::INVALID_VALUE));
        assert_eq!(w.ipc_open_event(handle), Err(Code::INVALID_VALUE));
    }
    // A handle whose exporter is gone, or that claims too much.
    let other = World::strict(Mode::Lazy, 1);
    let good = other.ipc_mem_handle(other.dev(8)).unwrap();
    for bad in [IpcHandle { len: 1 << 40, ..good }, IpcHandle { fd: 9999, ..good }, IpcHandle { pid: 1 << 30, ..good }]
    {
        assert_eq!(w.ipc_open_mem(bad, 1), Err(Code::INVALID_VALUE));
    }
    assert_eq!(w.ipc_open_event(good), Err(Code::INVALID_VALUE));
    w.ipc_close_mem(w.dev(8)).unwrap_err();
    assert_eq!(w.take_findings().iter().map(|f| f.kind).collect::<Vec<_>>(), [Kind::InvalidFree]);
}

#[test]
fn events_between_two_drivers() {
    for mode in MODES {
        let (w, other) = (World::strict(mode, 1), World::strict(mode, 2));
        let (e, s) = (w.event_create(SHARED).unwrap(), w.nb());
        let f = other.ipc_open_event(w.ipc_event_handle(e).unwrap()).unwrap();
        other.event_query(f).unwrap();
        let a = w.dev(8);
        w.memset_d8_async(a, 1, 8, s).unwrap();
        w.event_record(e, s).unwrap();
        let t = other.nb();
        other.stream_wait_event(t, f, 0).unwrap();
        if mode == Mode::Lazy {
            assert_eq!(other.event_query(f), Err(Code::NOT_READY));
        }
        w.stream_synchronize(s).unwrap();
        other.event_synchronize(f).unwrap();
        other.stream_synchronize(t).unwrap();
        assert_eq!(other.event_elapsed(f, f), Err(Code::INVALID_HANDLE));
    }
}

/// A wait for a record that the other driver never completes does not block the end.
#[test]
fn an_endless_wait_is_given_up_at_the_end() {
    let (w, other) = (World::strict(Mode::Lazy, 1), World::strict(Mode::Lazy, 2));
    let (e, s) = (w.event_create(SHARED).unwrap(), w.nb());
    w.event_record(e, s).unwrap();
    let f = other.ipc_open_event(w.ipc_event_handle(e).unwrap()).unwrap();
    other.stream_wait_event(other.nb(), f, 0).unwrap();
    drop(other);
    assert_eq!(w.stat("executed"), Some(0));
}

fn hex(bytes: &[u8; 64]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn between_two_processes() {
    // The exporter never waits itself: only its own idling runs the work that the other process waits for.
    let w = World::with(Config { idle_ms: 5, ..Config::new(Mode::Lazy, 3) });
    let (a, s, e) = (w.dev(64), w.nb(), w.event_create(SHARED).unwrap());
    w.memset_d8_async(a, 42, 64, s).unwrap();
    w.event_record(e, s).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_simcuda-peer"))
        .arg("importer")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let handles = [w.ipc_mem_handle(a).unwrap(), w.ipc_event_handle(e).unwrap()];
    let mut to = child.stdin.take().unwrap();
    for handle in handles {
        writeln!(to, "{}", hex(&handle.to_bytes())).unwrap();
    }
    drop(to);
    let out: Vec<String> = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{out:?}");
    assert!(out.iter().any(|l| l.contains("importer is done")), "{out:?}");
    assert_eq!(w.peek(a, 64).unwrap(), [43; 64]);
}
