//! The questions of `tests/cuda-conformance` to the simulated driver, and the page that shows the answers.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use devexchange_tests::{check_committed, root, sim};

/// Asks the simulated driver as a user would, whatever the environment of the tests; only the seed is the same each
/// time.
fn ask(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    static DRIVER: OnceLock<PathBuf> = OnceLock::new();
    let driver = DRIVER.get_or_init(sim::placed);
    let variables = [("SIMCUDA_SEED", "1")].into_iter().chain(variables.iter().copied());
    let mut program = Command::new(env!("CARGO_BIN_EXE_cuda-conformance"));
    let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SIMCUDA_"));
    for (name, _) in ours {
        program.env_remove(name);
    }
    program.arg("--driver").arg(driver).args(arguments).envs(variables).output().expect("run the program")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn check(mode: &str) {
    let output = ask(&[], &[("SIMCUDA_MODE", mode)]);
    let text = text(&output);
    assert!(output.status.success() && text.contains(" passed, 0 failed, "), "{text}");
}

#[test]
fn the_answers_are_the_expected_ones() {
    check("lazy");
}

#[test]
fn the_answers_do_not_depend_on_who_runs_the_work() {
    check("threads");
    check("adversarial");
}

#[test]
fn an_answer_that_is_not_expected_fails() {
    let output = ask(&["free.waits", "free.null"], &[("SIMCUDA_FREE", "waits")]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.ends_with("\n1 passed, 1 failed, 0 skipped\n"), "{text}");
    // A failure before the question can be asked is no answer, either.
    let output = ask(&["free.null"], &[("SIMCUDA_FAIL", "cuDevicePrimaryCtxRetain:1:2")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = ask(&["no.such_question"], &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_machine_without_a_driver_is_an_error() {
    let output = ask(&["--driver", "/nowhere/libcuda.so.1"], &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output).contains("no CUDA driver here"), "{output:?}");
}

#[test]
fn a_run_on_the_simulated_driver_is_not_recorded() {
    let output = ask(&["free.null", "--record", "/nowhere/at/all"], &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output).contains("is not recorded"), "{output:?}");
}

fn table(measured: &Path, names: &[&str]) -> String {
    let measured = measured.to_str().expect("UTF-8");
    let output = ask(&[&["--format", "markdown", "--measured", measured], names].concat(), &[]);
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_page_is_up_to_date() {
    check_committed("../docs/cuda-conformance.md", &table(&root().join("tests/cuda-conformance/measured"), &[]));
}

#[test]
fn recorded_runs_have_columns() {
    let directory = std::env::temp_dir().join(format!("devx-conformance-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("make the directory");
    let head = |device: &str| format!("date: 2000-01-02\nmachine: none\ndriver: 1.2\ndevice: {device}\n\n");
    let runs = [
        ("a.txt", head("Invented") + "free.null\tsuccess\nfree.twice\tcrash (SIGSEGV)\n"),
        ("b.txt", head("Imagined")),
        ("other.md", "is left alone".to_owned()),
    ];
    for (name, text) in runs {
        std::fs::write(directory.join(name), text).expect("write the file");
    }
    let page = table(&directory, &["free.null", "free.twice"]);
    for line in [
        "1. Invented, driver 1.2, none, 2000-01-02: 1 answers are the same, 1 are not",
        "2. Imagined, driver 1.2, none, 2000-01-02: 0 answers are the same, 0 are not",
        "| what is asked | simulated driver | real driver 1 | real driver 2 |",
        "| `cuMemFree(0)` | success | the same | not measured |",
        "| `cuMemFree` twice | CUDA_ERROR_INVALID_VALUE (1) | **crash (SIGSEGV)** | not measured |",
    ] {
        assert!(page.lines().any(|other| other == line), "{line}\nis not in\n{page}");
    }
    std::fs::write(directory.join("c.txt"), "date: 2000-01-02\n").expect("write the file");
    let broken = ask(&["--format", "markdown", "--measured", directory.to_str().expect("UTF-8"), "free.null"], &[]);
    assert_eq!(broken.status.code(), Some(2), "{broken:?}");
    std::fs::remove_dir_all(directory).expect("remove the directory");
}
