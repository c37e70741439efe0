//! What the library prints on stderr: nothing, unless the trace is on.

use std::process::Command;

use devexchange_core::trace;

/// The environment variable that says which part of the test this process plays.
const SAYS: &str = "DEVX_TEST_SAYS";

#[test]
fn nothing_is_said_unless_somebody_asks() {
    if std::env::var_os(SAYS).is_some() {
        return trace::say(format_args!("something"));
    }
    let said = |value: Option<&str>| {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program
            .args(["--exact", "nothing_is_said_unless_somebody_asks"])
            .env(SAYS, "1")
            .env_remove("DEVEXCHANGE_TRACE");
        program.envs(value.map(|value| ("DEVEXCHANGE_TRACE", value)));
        let run = program.output().unwrap();
        assert!(run.status.success());
        String::from_utf8(run.stderr).unwrap()
    };
    assert_eq!([None, Some(""), Some("0"), Some("1")].map(said), ["", "", "", "devexchange: something\n"]);
}
