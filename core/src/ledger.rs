//! The ledger: what was handed out and taken in, and is not released yet.
//!
//! It counts the releases that are still to come: of structs, streams and offers that consumers hold, of those taken from
//! producers, of owners, and of memory that the library allocated. Handles are not counted by themselves: not a clone, a schema
//! that was not imported, a tensor or batch without an owner, a manager of this library, an asynchronous reader whose handler
//! nobody has, or a server or client of [`ipc`](crate::ipc). A child of `fork` goes on from the counts of its parent.
//!
//! It holds counts only, no addresses. Each thread counts what it does; reading the ledger adds these counts up.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::abi::types::{DevxCount, DevxLedger};
use crate::local;
use crate::local::lines::{Line, Lines};

pub(crate) use crate::local::lines::Kind;

/// The counts of threads that are about to end.
static REST: Lines = Lines::new();

/// Whether [`REST`] holds anything, which is rare.
static REST_USED: AtomicBool = AtomicBool::new(false);

/// Counts in the calling thread's part of the ledger, or in the part that all ending threads share.
#[inline]
fn count(kind: Kind, which: fn(&Line) -> &AtomicI64) {
    match local::here() {
        // No other thread writes here. `Release`, so that whoever sees a closing also sees the opening; see `count_of`.
        Some(local) => {
            let number = which(local.lines.line(kind));
            number.store(number.load(Relaxed) + 1, Release);
        }
        None => {
            // Set before counting, so that whoever sees the count also sees this flag.
            REST_USED.store(true, Relaxed);
            which(REST.line(kind)).fetch_add(1, Release);
        }
    }
}

/// One entry of the ledger: opened when something is handed over, closed on drop.
#[derive(Debug)]
pub(crate) struct Entry(Kind);

impl Entry {
    #[inline]
    pub(crate) fn open(kind: Kind) -> Self {
        count(kind, |line| &line.opened);
        Self(kind)
    }

    /// An entry that was opened before and forgotten, to close it.
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

/// The sum over all parts of the ledger of what `of` counts in each.
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
    // Closed first: whoever sees that something was closed also sees that it was opened.
    let closed = sum(|lines| lines.line(kind).closed.load(Acquire));
    let total = sum(|lines| lines.line(kind).opened.load(Acquire));
    DevxCount { total, live: total - closed }
}

/// Returns the ledger as it stands. Each count is exact. What other threads do during this call may or may not be counted,
/// but everything that was opened before it and is not closed is counted.
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

/// Returns how many releases are still to come, over all kinds; 0 when nothing is outstanding.
pub fn outstanding() -> i64 {
    // In the same order as in `count_of`.
    let closed = sum(|lines| lines.all().map(|line| line.closed.load(Acquire)).sum());
    let opened = sum(|lines| lines.all().map(|line| line.opened.load(Acquire)).sum());
    opened - closed
}
