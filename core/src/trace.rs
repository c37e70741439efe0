//! What a user may want to know but nobody can be told through a return value. Written to stderr when the
//! environment variable `DEVEXCHANGE_TRACE` is set, and not to `0` or nothing.

use std::ffi::OsStr;
use std::fmt;

use crate::setting::Setting;
use crate::text::formatted;

/// Whether the trace is on, which is decided once in a process: the first time that somebody asks.
pub fn enabled() -> bool {
    static TRACE: Setting = Setting::new("DEVEXCHANGE_TRACE");
    TRACE.get(is_yes)
}

fn is_yes(value: &OsStr) -> bool {
    !value.is_empty() && value != "0"
}

/// Writes one line, if the trace is on. Never fails and never panics: it is called on release paths. Takes no lock, which
/// another thread may have had when this process was forked.
pub fn say(text: fmt::Arguments<'_>) {
    if let Some(line) = enabled().then(|| formatted(format_args!("devexchange: {text}\n"))).flatten() {
        // A closed stderr is no reason to fail a release.
        let _ = rustix::io::write(std::io::stderr(), line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_says_something_turns_it_on() {
        assert_eq!(["", "0", "1", "yes"].map(|value| is_yes(value.as_ref())), [false, false, true, true]);
    }
}
