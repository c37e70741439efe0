//! The ledger: what is handed out and taken in, and not released yet. Counts only, no addresses; each thread counts what it
//! does, and who reads adds up.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::abi::types::{DevxCount, DevxLedger};
use crate::local;
use crate::local::lines::{Line, Lines};

pub(crate) use crate::local::lines::Kind;

/// The part of threads that are about to end.
static REST: Lines = Lines::new();

/// Whether there is anything in [`REST`], as hardly ever.
static REST_USED: AtomicBool = AtomicBool::new(false);

/// Counts in the calling thread's part, or in the one that all ending threads share.
#[inline]
fn count(kind: Kind, which: fn(&Line) -> &AtomicI64) {
    match local::here() {
        // Nobody else writes here. What was opened elsewhere is seen with the closing, see `read`.
        Some(local) => {
            let number = which(local.lines.line(kind));
            number.store(number.load(Relaxed) + 1, Release);
        }
        None => {
            // Before it: whoever sees what is counted here, sees this.
            REST_USED.store(true, Relaxed);
            which(REST.line(kind)).fetch_add(1, Release);
        }
    }
}

/// One line of the ledger: opened when the thing is handed over, closed on drop.
#[derive(Debug)]
pub(crate) struct Entry(Kind);

impl Entry {
    #[inline]
    pub(crate) fn open(kind: Kind) -> Self {
        count(kind, |line| &line.opened);
        Self(kind)
    }

    /// One that was opened before and forgotten, to close it.
    #[inline]
    pub(crate) fn opened(kind: Kind) -> Self {
        Self(kind)
    }
}

impl Drop for Entry {
    #[inline]
    fn drop(&mut self) {
        count(self.0, |line| &line.closed);
    }
}

/// What all parts come to, counted from one number or more of each.
#[inline]
fn sum(of: impl Fn(&Lines) -> i64) -> i64 {
    let rest = if REST_USED.load(Relaxed) { of_rest(&of) } else { 0 };
    local::all().map(|local| of(&local.lines)).sum::<i64>() + rest
}

#[cold]
fn of_rest(of: &impl Fn(&Lines) -> i64) -> i64 {
    of(&REST)
}

fn count_of(kind: Kind) -> DevxCount {
    // In this order: whoever sees that something was closed sees that it was opened.
    let closed = sum(|lines| lines.line(kind).closed.load(Acquire));
    let total = sum(|lines| lines.line(kind).opened.load(Acquire));
    DevxCount { total, live: total - closed }
}

/// The ledger as it stands. Each count is exact; what other threads do meanwhile may be counted or not, but nothing is
/// missing that was opened before this call and is not closed.
pub fn read() -> DevxLedger {
    DevxLedger {
        tensor_exports: count_of(Kind::TensorExport),
        tensor_imports: count_of(Kind::TensorImport),
        batch_exports: count_of(Kind::BatchExport),
        batch_imports: count_of(Kind::BatchImport),
        schema_exports: count_of(Kind::SchemaExport),
        schema_imports: count_of(Kind::SchemaImport),
        owners: count_of(Kind::Owner),
        stream_exports: count_of(Kind::StreamExport),
        stream_imports: count_of(Kind::StreamImport),
    }
}

/// How many things are not released yet, over all kinds: 0 when nothing is outstanding.
pub fn outstanding() -> i64 {
    // In the order of `count_of`.
    let closed = sum(|lines| lines.all().map(|line| line.closed.load(Acquire)).sum());
    let opened = sum(|lines| lines.all().map(|line| line.opened.load(Acquire)).sum());
    opened - closed
}
