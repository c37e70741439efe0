//! The simulator's findings, and where each side of them was.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident,)*) => {
        /// The reason for a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)*];

            /// The name as printed in reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => stringify!($kind),)* }
            }
        }
    };
}

kinds! {
    /// Two accesses to the same bytes, one of them a write, with nothing that orders them.
    Race,
    /// Memory freed, unmapped or unregistered with nothing that orders it after an earlier access.
    FreeRace,
    /// A call names memory that was freed before.
    UseAfterFree,
    /// Memory freed a second time.
    DoubleFree,
    /// A range leaves its allocation.
    OutOfBounds,
    /// A pointer given to the wrong free function, or not the start of an allocation.
    InvalidFree,
    /// A stream, event, context, pool or graph handle used after it was destroyed.
    StaleHandle,
    /// A handle that this driver never gave out.
    InvalidHandle,
    /// An object of one context used where another context's is required.
    WrongContext,
    /// A context released, popped or destroyed more often than it was taken.
    ContextImbalance,
    /// Memory of another device accessed without having been made accessible.
    PeerAccess,
    /// Device bytes read that nothing has written.
    UninitRead,
    /// A driver call from inside a host function or callback.
    CallInCallback,
    /// A call that is illegal during stream capture, or a capture whose streams were not joined again.
    CaptureViolation,
}

impl Kind {
    /// The kind of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|k| k.name() == name)
    }
}

/// A driver call: its function, its thread, its place.
#[derive(Debug)]
pub struct SiteInfo {
    /// Number of the call, from 1.
    pub call: u64,
    /// Name of the driver function.
    pub function: &'static str,
    /// Host thread, numbered in order of first appearance.
    pub thread: u32,
    /// Label that the thread had set.
    pub label: Option<Arc<str>>,
    /// File and line of the caller (in process only).
    pub location: Option<&'static Location<'static>>,
    /// Backtrace, if asked for.
    pub backtrace: Option<String>,
}

/// A shared [`SiteInfo`].
pub type Site = Arc<SiteInfo>;

impl fmt::Display for SiteInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call #{} {} (thread {}", self.call, self.function, self.thread)?;
        if let Some(label) = &self.label {
            write!(f, ", {label}")?;
        }
        if let Some(l) = self.location {
            write!(f, ", {}:{}", l.file(), l.line())?;
        }
        f.write_str(")")?;
        if let Some(trace) = &self.backtrace {
            write!(f, "\n{trace}")?;
        }
        Ok(())
    }
}

/// One finding.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The reason.
    pub kind: Kind,
    /// The details.
    pub message: String,
    /// The earlier call, if there is one: the other access, the free, the destruction.
    pub first: Option<Site>,
    /// The call that brought it to light.
    pub second: Site,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n    at {}", self.kind.name(), self.message, self.second)?;
        if let Some(first) = &self.first {
            write!(f, "\n    before it {first}")?;
        }
        Ok(())
    }
}
