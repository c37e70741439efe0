//! The nodes of a tree one by one, in the order in which producers describe them.

use super::MAX_DEPTH;
use super::schema::Schema;

/// The numbers of a node and of all below it: each node, then its children with everything below them, then its
/// dictionary.
pub(crate) struct DepthFirst<'a> {
    schema: &'a Schema,
    /// The nodes to come on each level: the first, and one past the last.
    levels: [(u32, u32); MAX_DEPTH],
    depth: usize,
    /// As many nodes come at least.
    least: usize,
}

impl<'a> DepthFirst<'a> {
    pub(super) fn new(schema: &'a Schema, node: usize) -> Self {
        let least = if node == 0 { schema.nodes() } else { 1 + schema.links(node).below() };
        let mut all = Self { schema, levels: [(0, 0); MAX_DEPTH], depth: 0, least };
        all.descend(node, 1);
        all
    }

    /// Continues with these nodes. A schema is never deeper than there are levels.
    fn descend(&mut self, first: usize, nodes: usize) {
        if let Some(level) = self.levels.get_mut(self.depth) {
            *level = (first as u32, (first + nodes) as u32);
            self.depth += 1;
        }
    }
}

impl Iterator for DepthFirst<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while let Some((next, end)) = self.depth.checked_sub(1).and_then(|last| self.levels.get_mut(last)) {
            if next == end {
                self.depth -= 1;
                continue;
            }
            let node = *next as usize;
            *next += 1;
            self.least = self.least.saturating_sub(1);
            let links = self.schema.links(node);
            if !links.is_leaf() {
                self.descend(links.first_child as usize, links.below());
            }
            return Some(node);
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.least, None)
    }
}
