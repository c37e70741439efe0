//! A thread's part of the ledger.

use std::sync::atomic::AtomicI64;

/// The kinds of things that the ledger counts.
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

const KINDS: usize = Kind::StreamImport as usize + 1;

/// A part of the ledger: one thread writes it, all threads can read it.
pub(crate) struct Lines([Line; KINDS]);

pub(crate) struct Line {
    pub(crate) opened: AtomicI64,
    pub(crate) closed: AtomicI64,
}

impl Lines {
    pub(crate) const fn new() -> Self {
        Self([const { Line { opened: AtomicI64::new(0), closed: AtomicI64::new(0) } }; KINDS])
    }

    #[expect(clippy::indexing_slicing, reason = "there are as many lines as kinds")]
    #[inline]
    pub(crate) fn line(&self, kind: Kind) -> &Line {
        &self.0[kind as usize]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Line> {
        self.0.iter()
    }
}
