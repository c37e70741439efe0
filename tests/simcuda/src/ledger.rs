//! The live things, where they were made, and the report at the end.

use crate::finding::Site;
use crate::state::{AllocKind, State, StreamKind};
use std::fmt;

/// Kind of a live thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LiveKind {
    /// Device memory.
    Device,
    /// Pinned host memory.
    Pinned,
    /// Managed memory.
    Managed,
    /// Host memory registered by the client.
    Registered,
    /// Memory of another process.
    Imported,
    /// A stream that was created.
    Stream,
    /// An event.
    Event,
    /// A retain of a primary context, or a created context.
    Context,
    /// A pool that was created.
    Pool,
    /// A graph.
    Graph,
}

/// One live thing.
#[derive(Clone, Debug)]
pub struct Live {
    /// What it is.
    pub kind: LiveKind,
    /// Its address or handle.
    pub handle: u64,
    /// Bytes, for memory.
    pub size: u64,
    /// The call that made it.
    pub origin: Site,
    /// Whether it is live because its release was made to fail.
    pub excused: bool,
}

impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:#x} of {} bytes, made by {}", self.kind, self.handle, self.size, self.origin)
    }
}

/// Everything live, excused or not. Primary contexts without a retain, legacy and per-thread streams and default
/// pools are the driver's own.
pub(crate) fn live(state: &State) -> Vec<Live> {
    let mut out = Vec::new();
    let mut add = |kind, handle, size, origin: &Site, excused| {
        out.push(Live { kind, handle, size, origin: origin.clone(), excused });
    };
    for (base, a) in state.allocs.iter().filter(|(_, a)| a.freed.is_none()) {
        let kind = match a.kind {
            AllocKind::Device => LiveKind::Device,
            AllocKind::Pinned => LiveKind::Pinned,
            AllocKind::Managed => LiveKind::Managed,
            AllocKind::Registered => LiveKind::Registered,
            AllocKind::Imported => LiveKind::Imported,
        };
        add(kind, *base, a.len, &a.origin, a.excused);
    }
    for (h, s) in state.streams.iter().filter(|(_, s)| s.kind == StreamKind::User && !s.destroyed) {
        add(LiveKind::Stream, *h, 0, &s.origin, s.excused);
    }
    for (h, e) in &state.events {
        add(LiveKind::Event, *h, 0, &e.origin, e.excused);
    }
    for (h, c) in &state.contexts {
        for (n, site) in c.holders.iter().rev().enumerate() {
            add(LiveKind::Context, *h, 0, site, n < c.excused);
        }
    }
    for (h, p) in state.pools.iter().filter(|(_, p)| !p.default && !p.destroyed) {
        add(LiveKind::Pool, *h, 0, &p.origin, p.excused);
    }
    for (h, g) in &state.graphs {
        add(LiveKind::Graph, *h, 0, &g.origin, g.excused);
    }
    out
}

/// Findings, live things, and how to reproduce the schedule.
pub(crate) fn report(state: &State) -> String {
    let live = live(state);
    let mut out = format!(
        "simcuda {}: {} calls, {} findings, {} live, {} faults fired; {}\n",
        env!("CARGO_PKG_VERSION"),
        state.faults.total,
        state.findings.len(),
        live.len(),
        state.faults.fired,
        state.schedule(),
    );
    for f in &state.findings {
        out.push_str(&format!("  {f}\n"));
    }
    for l in &live {
        out.push_str(&format!("  live{}: {l}\n", if l.excused { " (its release failed)" } else { "" }));
    }
    out
}
