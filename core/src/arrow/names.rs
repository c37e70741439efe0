//! A look-up of columns by name that does not scan all of them each time.

#![forbid(unsafe_code)]

use crate::memory::{Lazy, collected};
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Up to this many columns are scanned each time.
const FEW: usize = 64;
/// How often a larger number of columns is scanned, which takes about as long as sorting them once.
const LOOKS: u32 = 32;

/// The numbers of a schema's columns, sorted by name after many look-ups.
#[derive(Default)]
pub(super) struct Names {
    looks: AtomicU32,
    sorted: Lazy<Vec<u32>>,
}

impl Names {
    /// The number of the first of `columns` columns that is called `name`.
    pub(super) fn find<'a>(&self, columns: usize, name_of: impl Fn(usize) -> &'a [u8], name: &[u8]) -> Option<usize> {
        match if columns > FEW { self.sorted(columns, &name_of) } else { None } {
            Some(sorted) => {
                let first = sorted.partition_point(|&column| name_of(column as usize) < name);
                sorted.get(first).map(|&column| column as usize).filter(|&column| name_of(column) == name)
            }
            None => (0..columns).find(|&column| name_of(column) == name),
        }
    }

    /// The columns by name; columns of the same name in their order. `None` as long as sorting is not worth it, or if
    /// there is no memory for it.
    fn sorted<'a>(&self, columns: usize, name_of: &impl Fn(usize) -> &'a [u8]) -> Option<&Vec<u32>> {
        let Self { looks, sorted } = self;
        if let Some(made) = sorted.made() {
            return Some(made);
        }
        if looks.fetch_add(1, Relaxed) < LOOKS {
            return None;
        }
        // No schema has more than 2²⁰ fields.
        let mut all = collected((0..columns as u32).map(Ok)).ok()?;
        all.sort_unstable_by_key(|&column| (name_of(column as usize), column));
        sorted.get(|| all).ok()
    }
}
