//! What a user may want to know but nobody can be told through a return value. Written to stderr when the
//! environment variable `DEVEXCHANGE_TRACE` is set and not `0`.

use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

/// Whether the trace is on.
pub fn enabled() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("DEVEXCHANGE_TRACE").is_some_and(|value| value != "0"))
}

/// Writes one line, if the trace is on. Never fails and never panics: it is called on release paths.
pub fn say(text: fmt::Arguments<'_>) {
    if enabled() {
        // A closed stderr is no reason to fail a release.
        let _ = writeln!(std::io::stderr(), "devexchange: {text}");
    }
}
