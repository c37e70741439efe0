//! The ledger: what is handed out and taken in, and not released yet. Counts only, no addresses.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::abi::types::{DevxCount, DevxLedger};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    TensorExport,
    TensorImport,
    BatchExport,
    BatchImport,
    SchemaExport,
    SchemaImport,
    Owner,
    StreamExport,
    StreamImport,
}

struct Counter {
    total: AtomicI64,
    live: AtomicI64,
}

impl Counter {
    const fn new() -> Self {
        Self { total: AtomicI64::new(0), live: AtomicI64::new(0) }
    }

    fn read(&self) -> DevxCount {
        DevxCount { total: self.total.load(Relaxed), live: self.live.load(Relaxed) }
    }
}

static TENSOR_EXPORTS: Counter = Counter::new();
static TENSOR_IMPORTS: Counter = Counter::new();
static BATCH_EXPORTS: Counter = Counter::new();
static BATCH_IMPORTS: Counter = Counter::new();
static SCHEMA_EXPORTS: Counter = Counter::new();
static SCHEMA_IMPORTS: Counter = Counter::new();
static OWNERS: Counter = Counter::new();
static STREAM_EXPORTS: Counter = Counter::new();
static STREAM_IMPORTS: Counter = Counter::new();

fn counter(kind: Kind) -> &'static Counter {
    match kind {
        Kind::TensorExport => &TENSOR_EXPORTS,
        Kind::TensorImport => &TENSOR_IMPORTS,
        Kind::BatchExport => &BATCH_EXPORTS,
        Kind::BatchImport => &BATCH_IMPORTS,
        Kind::SchemaExport => &SCHEMA_EXPORTS,
        Kind::SchemaImport => &SCHEMA_IMPORTS,
        Kind::Owner => &OWNERS,
        Kind::StreamExport => &STREAM_EXPORTS,
        Kind::StreamImport => &STREAM_IMPORTS,
    }
}

/// One line of the ledger: opened when the thing is handed over, closed on drop.
#[derive(Debug)]
pub(crate) struct Entry(Kind);

impl Entry {
    pub(crate) fn open(kind: Kind) -> Self {
        let counter = counter(kind);
        counter.total.fetch_add(1, Relaxed);
        counter.live.fetch_add(1, Relaxed);
        Self(kind)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        counter(self.0).live.fetch_sub(1, Relaxed);
    }
}

/// The ledger as it stands. Each count is exact; counts that other threads change meanwhile may be
/// from slightly different moments.
pub fn read() -> DevxLedger {
    DevxLedger {
        tensor_exports: TENSOR_EXPORTS.read(),
        tensor_imports: TENSOR_IMPORTS.read(),
        batch_exports: BATCH_EXPORTS.read(),
        batch_imports: BATCH_IMPORTS.read(),
        schema_exports: SCHEMA_EXPORTS.read(),
        schema_imports: SCHEMA_IMPORTS.read(),
        owners: OWNERS.read(),
        stream_exports: STREAM_EXPORTS.read(),
        stream_imports: STREAM_IMPORTS.read(),
    }
}

/// How many things are not released yet, over all kinds: 0 when nothing is outstanding.
pub fn outstanding() -> i64 {
    let l = read();
    let exports = [l.tensor_exports, l.batch_exports, l.schema_exports, l.stream_exports];
    let imports = [l.tensor_imports, l.batch_imports, l.schema_imports, l.stream_imports];
    exports.iter().chain(&imports).chain([&l.owners]).map(|count| count.live).sum()
}
