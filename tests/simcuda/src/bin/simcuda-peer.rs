//! `simcuda-peer ROLE`: the second process of the tests in `tests/ipc.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a role that unwraps fails, and so does its test")]

#[path = "../../tests/world/mod.rs"]
mod world;

use simcuda::{IpcHandle, Mode};
use std::process::ExitCode;
use world::World;

/// The exit code of a process that does not know its role; a panic has 101.
const UNKNOWN_ROLE: u8 = 64;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("importer") => importer(),
        role => {
            eprintln!("simcuda-peer: no role {role:?}");
            return ExitCode::from(UNKNOWN_ROLE);
        }
    }
    ExitCode::SUCCESS
}

fn unhex(text: &str) -> [u8; 64] {
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

/// Opens the given handles, waits, checks, answers.
fn importer() {
    let mut lines = std::io::stdin().lines();
    let mut next = || unhex(&lines.next().unwrap().unwrap());
    let w = World::strict(Mode::Lazy, 5);
    let a = w.ipc_open_mem(IpcHandle::from_bytes(&next()), 1).unwrap();
    let e = w.ipc_open_event(IpcHandle::from_bytes(&next())).unwrap();
    let (s, mut seen) = (w.nb(), [0; 64]);
    w.stream_wait_event(s, e, 0).unwrap();
    w.download_async(&mut seen, a, s).unwrap();
    assert_eq!(seen, [42; 64]);
    w.memset_d8_async(a, 43, 64, s).unwrap();
    w.stream_synchronize(s).unwrap();
    w.ipc_close_mem(a).unwrap();
    w.event_destroy(e).unwrap();
    println!("importer is done");
}
