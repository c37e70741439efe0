//! The shared library exports the functions of its header, and nothing else.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use devexchange_tests::c::{code, ours, words};
use devexchange_tests::{check_same, root};
use std::collections::BTreeSet;
use std::path::PathBuf;
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

/// What the release build of `libdevexchange.so` exports.
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

/// Builds the library as it is shipped; cargo itself says where it put it.
fn library() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--package", "devexchange-c"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root())
        .output()
        .expect("run cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).expect("UTF-8");
    let file =
        (messages.split('"')).find(|text| text.ends_with("/libdevexchange.so")).expect("cargo names the library");
    PathBuf::from(file)
}
