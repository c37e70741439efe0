//! The trace: what a user may want to know, but no return value can say. It is written to stderr if the
//! environment variable `DEVEXCHANGE_TRACE` is set to anything but `0` or nothing.

use std::ffi::OsStr;
use std::fmt;

use crate::setting::Setting;
use crate::text::formatted;

/// Whether the trace is on. The first call in a process decides.
pub fn enabled() -> bool {
    static TRACE: Setting = Setting::new("DEVEXCHANGE_TRACE");
    TRACE.get(is_yes)
}

fn is_yes(value: &OsStr) -> bool {
    !value.is_empty() && value != "0"
}

/// Writes one line if the trace is on. Never fails and never panics, because release paths call it. Takes no lock, because
/// another thread may have held it when this process was forked.
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
