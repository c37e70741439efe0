//! What a user may want to know but nobody can be told through a return value. Written to stderr when the
//! environment variable `DEVEXCHANGE_TRACE` is set and not `0`.

use std::fmt;
use std::sync::OnceLock;

use crate::text::formatted;

/// Whether the trace is on.
pub fn enabled() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("DEVEXCHANGE_TRACE").is_some_and(|value| value != "0"))
}

/// Writes one line, if the trace is on. Never fails and never panics: it is called on release paths. Takes no lock, which
/// another thread may have had when this process was forked.
pub fn say(text: fmt::Arguments<'_>) {
    if let Some(line) = enabled().then(|| formatted(format_args!("devexchange: {text}\n"))).flatten() {
        // A closed stderr is no reason to fail a release.
        let _ = rustix::io::write(std::io::stderr(), line.as_bytes());
    }
}
