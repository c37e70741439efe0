//! Shared helpers of the conformance tests.
#![expect(clippy::expect_used, clippy::panic, reason = "what only tests call fails by panicking")]

pub mod c;
pub mod cuda_array;
pub mod devices;
pub mod filled;
pub mod foreign;
pub mod freeing;
pub mod layout;
#[path = "../../core/tests/patience/mod.rs"]
mod patience;
pub mod peer;
pub mod sim;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The root of the checkout.
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = tests.parent();
    root.expect("the crate is a directory of the workspace").to_owned()
}

/// This time, or longer (`DEVX_PATIENCE`).
pub fn patient(time: Duration) -> Duration {
    patience::patient(time)
}

/// Compares a text with a committed file of the `tests` directory; `DEVX_BLESS=1` writes the file.
///
/// # Panics
/// If the file differs.
pub fn check_committed(name: &str, text: &str) {
    let file = root().join("tests").join(name);
    if std::env::var_os("DEVX_BLESS").is_some() {
        std::fs::write(&file, text).expect("write the file");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    let gone = committed.lines().find(|line| !text.lines().any(|l| l == *line));
    let new = text.lines().find(|line| !committed.lines().any(|l| l == *line));
    assert!(
        committed == text,
        "tests/{name} is not what the sources say (first line gone: {gone:?}, first line new: {new:?}).\n\
         If the change is meant: DEVX_BLESS=1 INSTA_UPDATE=always cargo test -p devexchange-tests"
    );
}

/// Compares two sets of names; a failure lists the names that only one of them has.
///
/// # Panics
/// If they differ.
#[track_caller]
pub fn check_same((left, left_names): (&str, &BTreeSet<String>), (right, right_names): (&str, &BTreeSet<String>)) {
    let only_left: Vec<_> = left_names.difference(right_names).collect();
    let only_right: Vec<_> = right_names.difference(left_names).collect();
    assert!(only_left.is_empty() && only_right.is_empty(), "only {left}: {only_left:?}; only {right}: {only_right:?}");
}
