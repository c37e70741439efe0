//! What the environment turns on or off in this library.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// An environment variable that turns something on or off. It is read only once, because programs may change the environment
/// later, not always safely. No thread waits for one that reads it, which may be missing in a child of `fork`.
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

    /// Whether the setting is on, which `is_on` decides from the value; without a value it is off.
    pub(crate) fn get(&self, is_on: impl FnOnce(&OsStr) -> bool) -> bool {
        let state = match self.state.load(Relaxed) {
            UNKNOWN => self.ask(is_on),
            known => known,
        };
        state == ON
    }

    /// Reads the variable. If several threads do so at once, the first result counts for all.
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
        // Every process has this variable.
        let there = Setting::new("PATH");
        assert!(there.get(|value| !value.is_empty()) && there.get(|_| false));
        let missing = Setting::new("DEVEXCHANGE_NO_SUCH_VARIABLE");
        assert!(!missing.get(|_| true));
    }
}
