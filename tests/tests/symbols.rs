//! The shared library exports only the functions of its header, and takes little of the thread-local memory that
//! late-loaded libraries share.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use devexchange_tests::c::{code, ours, words};
use devexchange_tests::{check_same, root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn exports_are_the_functions_of_the_header() {
    let exported = exports();
    insta::assert_snapshot!("symbols", exported.iter().cloned().collect::<Vec<_>>().join("\n"));

    let header = code(&ours().join("devexchange.h"));
    let mut declared = BTreeSet::new();
    for head in header.split('(') {
        if let Some(name) = words(head).last().filter(|name| name.starts_with("devx_") && head.ends_with(name)) {
            declared.insert(name.to_owned());
        }
    }
    check_same(("exported", &exported), ("in devexchange.h", &declared));
}

#[test]
fn exports_begin_with_our_prefix() {
    let foreign: Vec<_> = (exports().into_iter()).filter(|name| !name.starts_with("devx_")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

/// All thread-local memory of a library comes from the static block if some of it does (feature `static-tls`). That
/// block can have as little as 512 bytes for all libraries that a program loads late.
#[test]
fn static_thread_local_memory_is_little() {
    let output =
        Command::new("readelf").args(["--wide", "--program-headers"]).arg(library()).output().expect("run readelf");
    assert!(output.status.success(), "{output:?}");
    let headers = String::from_utf8(output.stdout).expect("UTF-8");
    let line = headers.lines().find(|line| line.trim_start().starts_with("TLS ")).expect("there is such memory");
    // Type, offset, virtual and physical address, size in the file, size in memory.
    let size = line.split_whitespace().nth(5).and_then(|size| size.strip_prefix("0x")).expect("a size");
    let size = u64::from_str_radix(size, 16).expect("hexadecimal");
    assert!((8..=256).contains(&size), "{line}");
}

/// The exports of the release build of `libdevexchange.so`.
fn exports() -> BTreeSet<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(library())
        .output()
        .expect("run nm");
    assert!(output.status.success(), "{output:?}");
    let names = String::from_utf8(output.stdout).expect("UTF-8");
    names.lines().map(str::to_owned).collect()
}

/// The library as it is shipped. It is not built by another command, for which cargo would rebuild it while other tests
/// may be using it.
fn library() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("in the target directory");
    let output = Command::new(root().join("scripts/build.sh"))
        .args(["--quiet", "c"])
        .env("CARGO_TARGET_DIR", target)
        .output()
        .expect("run the script");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("release/libdevexchange.so")
}
