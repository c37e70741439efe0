//! Faults on request: the Nth call of a function, or of any, returns a code instead of doing its work.

use crate::code::Code;
use std::collections::BTreeMap;

/// One armed fault. Calls are counted from the moment it is armed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The function, or any if `None`.
    pub function: Option<String>,
    /// The number of the call that fails, from 1.
    pub nth: u64,
    /// The code that the call returns; any number.
    pub code: Code,
    /// Whether every later call of any function fails too, as after a corrupted context.
    pub sticky: bool,
}

impl Fault {
    /// Any function's Nth call fails once.
    #[must_use]
    pub fn any(nth: u64, code: Code) -> Self {
        Self { function: None, nth, code, sticky: false }
    }

    /// The Nth call of `function` fails once.
    #[must_use]
    pub fn of(function: &str, nth: u64, code: Code) -> Self {
        Self { function: Some(function.to_owned()), nth, code, sticky: false }
    }

    /// The same, and everything after it fails as well.
    #[must_use]
    pub fn sticky(mut self) -> Self {
        self.sticky = true;
        self
    }

    /// Reads `function|*:nth:code[:sticky]`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split(':');
        let function = parts.next().filter(|f| !f.is_empty())?;
        let nth = parts.next()?.parse().ok().filter(|n| *n > 0)?;
        let code = Code(parts.next()?.parse().ok().filter(|c| *c != 0)?);
        let sticky = match parts.next() {
            None | Some("0" | "once") => false,
            Some("1" | "sticky") => true,
            Some(_) => return None,
        };
        let function = (function != "*").then(|| function.to_owned());
        parts.next().is_none().then_some(Self { function, nth, code, sticky })
    }
}

/// Armed faults and the count of calls.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    armed: Vec<Fault>,
    stuck: Option<Code>,
    /// The last call that was made to fail, and the number of such calls.
    pub(crate) last: Option<&'static str>,
    pub(crate) fired: u64,
    pub(crate) calls: BTreeMap<&'static str, u64>,
    pub(crate) total: u64,
}

impl Faults {
    pub(crate) fn arm(&mut self, fault: Fault) {
        self.armed.push(fault);
    }

    /// Forgets faults and the sticky state, not the counts.
    pub(crate) fn disarm(&mut self) {
        self.armed.clear();
        self.stuck = None;
    }

    pub(crate) fn stick(&mut self, code: Code) {
        self.stuck = Some(code);
    }

    /// Counts a call and returns the code if it must fail. Pure look-ups fail only if named.
    pub(crate) fn enter(&mut self, function: &'static str, pure: bool) -> Option<Code> {
        self.total += 1;
        *self.calls.entry(function).or_default() += 1;
        let mut hit = if pure { None } else { self.stuck };
        let mut stick = None;
        for fault in &mut self.armed {
            let meant = match &fault.function {
                Some(name) => name == function,
                None => !pure,
            };
            if meant && fault.nth > 0 {
                fault.nth -= 1;
                if fault.nth == 0 && hit.is_none() {
                    hit = Some(fault.code);
                    stick = fault.sticky.then_some(fault.code);
                }
            }
        }
        self.armed.retain(|f| f.nth > 0);
        if stick.is_some() {
            self.stuck = stick;
        }
        if hit.is_some() {
            self.last = Some(function);
            self.fired += 1;
        }
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_fails_once_or_for_good() {
        let mut f = Faults::default();
        f.arm(Fault::of("b", 2, Code(9)));
        assert_eq!([f.enter("b", false), f.enter("a", false), f.enter("b", false)], [None, None, Some(Code(9))]);
        assert_eq!(f.enter("b", false), None);
        f.arm(Fault::any(2, Code(4242)).sticky());
        assert_eq!([f.enter("a", false), f.enter("a", false)], [None, Some(Code(4242))]);
        assert_eq!([f.enter("z", false), f.enter("z", true)], [Some(Code(4242)), None]);
        f.disarm();
        assert_eq!(f.enter("z", false), None);
        assert_eq!((f.total, f.fired, f.last), (9, 3, Some("z")));
    }

    #[test]
    fn texts() {
        assert_eq!(Fault::parse("*:3:2"), Some(Fault::any(3, Code(2))));
        assert_eq!(Fault::parse("cuInit:1:999:1"), Some(Fault::of("cuInit", 1, Code(999)).sticky()));
        for bad in ["", "*", "*:0:2", "*:1:0", "*:1:2:3", "*:1:2:1:1", "x:y:z"] {
            assert_eq!(Fault::parse(bad), None, "{bad}");
        }
    }
}
