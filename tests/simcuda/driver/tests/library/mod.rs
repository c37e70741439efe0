//! The library as a client finds it: placed under its two names, opened with `dlopen`.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "not every test uses all of it, and a test that unwraps fails as it should"
)]

pub mod client;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory with `libcuda.so.1` and `libcuda.so`, as for `LD_LIBRARY_PATH`.
fn place(version: i32) -> PathBuf {
    static PLACES: AtomicU32 = AtomicU32::new(0);
    let place = PLACES.fetch_add(1, Ordering::Relaxed);
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let directory = deps.join(format!("simcuda-placed-{}-{place}", std::process::id()));
    simcuda_driver::place(&deps.join("libsimcuda_driver.so"), &directory, version).unwrap();
    directory
}

/// A placed library, removed at the end.
pub struct Placed(pub PathBuf);

impl Placed {
    pub fn new() -> Self {
        Self::version(12090)
    }

    pub fn version(version: i32) -> Self {
        Self(place(version))
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `simcuda-child` in one of its roles, which it must know and have begun.
pub fn child(role: &str, directory: &Path, env: &[(&str, &str)]) -> Output {
    let out = Command::new(env!("CARGO_BIN_EXE_simcuda-child"))
        .arg(role)
        .arg(directory)
        .envs(env.iter().copied())
        .output()
        .unwrap();
    assert_ne!(out.status.code(), Some(client::UNKNOWN_ROLE.into()), "simcuda-child does not know {role}: {out:?}");
    assert!(out.stdout.starts_with(client::greeting(role).as_bytes()), "{role} did not begin: {out:?}");
    out
}
