//! What the environment says of this library.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A variable that turns something on or off. It is asked for once, as the environment may be changed later, and not every
/// program is careful with that. Nobody waits for who asks: a child of `fork` may have lost that thread.
pub(crate) struct Setting {
    variable: &'static str,
    state: AtomicU8,
}

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

impl Setting {
    pub(crate) const fn new(variable: &'static str) -> Self {
        Self { variable, state: AtomicU8::new(UNKNOWN) }
    }

    /// Whether it is on, as `is_on` says of its value, if it has one.
    pub(crate) fn get(&self, is_on: impl FnOnce(&OsStr) -> bool) -> bool {
        let state = match self.state.load(Relaxed) {
            UNKNOWN => self.ask(is_on),
            known => known,
        };
        state == ON
    }

    /// Of several who ask at once, all go by what the first one says.
    #[cold]
    fn ask(&self, is_on: impl FnOnce(&OsStr) -> bool) -> u8 {
        let asked = if std::env::var_os(self.variable).is_some_and(|value| is_on(&value)) { ON } else { OFF };
        match self.state.compare_exchange(UNKNOWN, asked, Relaxed, Relaxed) {
            Ok(_) => asked,
            Err(first) => first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_asked_for_once() {
        // One that every process has.
        let there = Setting::new("PATH");
        assert!(there.get(|value| !value.is_empty()) && there.get(|_| false));
        let missing = Setting::new("DEVEXCHANGE_NO_SUCH_VARIABLE");
        assert!(!missing.get(|_| true));
    }
}
