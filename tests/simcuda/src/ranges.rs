//! Sets of bytes, as sorted ranges that do not touch.

/// Bytes of an allocation that something has written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub(crate) fn add(&mut self, lo: u64, hi: u64) {
        if lo >= hi {
            return;
        }
        let (mut lo, mut hi) = (lo, hi);
        self.0.retain(|r| {
            let apart = r.1 < lo || hi < r.0;
            if !apart {
                lo = lo.min(r.0);
                hi = hi.max(r.1);
            }
            apart
        });
        let at = self.0.partition_point(|r| r.0 < lo);
        self.0.insert(at, (lo, hi));
    }

    /// The first byte of a range that is not in the set.
    pub(crate) fn first_gap(&self, lo: u64, hi: u64) -> Option<u64> {
        if lo >= hi {
            return None;
        }
        match self.0.iter().find(|r| r.0 <= lo && lo < r.1) {
            None => Some(lo),
            Some(r) if r.1 >= hi => None,
            Some(r) => Some(r.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_merge_and_gaps_are_found() {
        let mut r = Ranges::default();
        r.add(10, 20);
        r.add(30, 40);
        assert_eq!(r.first_gap(10, 20), None);
        assert_eq!(r.first_gap(12, 31), Some(20));
        assert_eq!(r.first_gap(5, 12), Some(5));
        r.add(20, 30);
        assert_eq!(r.first_gap(10, 40), None);
        r.add(5, 5);
        assert_eq!(r.first_gap(9, 9), None);
        assert_eq!(r.0, [(10, 40)]);
    }
}
