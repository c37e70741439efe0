//! Which column has a name, without a look at all of them each time.

#![forbid(unsafe_code)]

use super::format::Type;
use super::schema::Schema;
use crate::memory::{Lazy, collected};
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Up to so many columns are looked through each time.
const FEW: usize = 64;
/// How often more than these are looked through. To sort them takes about as long as that.
const LOOKS: u32 = 32;

/// The columns of a schema, sorted by name for whoever asks for many.
#[derive(Default)]
pub(super) struct Names {
    looks: AtomicU32,
    sorted: Lazy<Vec<u32>>,
}

impl Schema {
    /// Number of columns: the children if the type is struct, otherwise 0.
    #[inline]
    pub(super) fn n_columns(&self) -> usize {
        match self.ty(0) {
            Type::Struct => self.root().n_children(),
            _ => 0,
        }
    }

    /// The number of the first column with this name.
    pub(super) fn column_named(&self, name: &[u8]) -> Option<usize> {
        let columns = self.n_columns();
        match if columns > FEW { self.sorted(columns) } else { None } {
            Some(sorted) => {
                let first = sorted.partition_point(|&column| self.name_of(column as usize) < name);
                sorted.get(first).map(|&column| column as usize).filter(|&column| self.name_of(column) == name)
            }
            None => (0..columns).find(|&column| self.name_of(column) == name),
        }
    }

    /// The columns by name, those of one name in their order; `None` as long as that is not worth it, or where there is no
    /// memory for it.
    fn sorted(&self, columns: usize) -> Option<&Vec<u32>> {
        let Names { looks, sorted } = self.names();
        if let Some(made) = sorted.made() {
            return Some(made);
        }
        if looks.fetch_add(1, Relaxed) < LOOKS {
            return None;
        }
        // No schema has more than 2²⁰ fields.
        let mut all = collected((0..columns as u32).map(Ok)).ok()?;
        all.sort_unstable_by_key(|&column| (self.name_of(column as usize), column));
        sorted.get(|| all).ok()
    }

    #[inline]
    fn name_of(&self, column: usize) -> &[u8] {
        self.field(self.links(0).first_child as usize + column).map_or(&[], |field| field.raw_name().to_bytes())
    }
}
