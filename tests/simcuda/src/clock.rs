//! Vector clocks. A timeline is a stream or a host thread; its events are numbered from 1.

use std::collections::BTreeSet;

/// Names a stream or a host thread for the whole life of a simulator; never reused.
pub(crate) type Timeline = u32;

/// What has happened before a point: for each timeline, the last event known to be over. Sorted by timeline and sparse,
/// because most timelines never meet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Vec<(Timeline, u64)>);

impl Clock {
    pub(crate) fn get(&self, timeline: Timeline) -> u64 {
        match self.0.binary_search_by_key(&timeline, |e| e.0) {
            Ok(at) => self.0.get(at).map_or(0, |e| e.1),
            Err(_) => 0,
        }
    }

    /// Raises one component; a component never goes back.
    pub(crate) fn raise(&mut self, timeline: Timeline, to: u64) {
        match self.0.binary_search_by_key(&timeline, |e| e.0) {
            Ok(at) => {
                if let Some(e) = self.0.get_mut(at) {
                    e.1 = e.1.max(to);
                }
            }
            Err(at) => self.0.insert(at, (timeline, to)),
        }
    }

    pub(crate) fn join(&mut self, other: &Clock) {
        if other.0.is_empty() {
            return;
        }
        let mut out = Vec::with_capacity(self.0.len() + other.0.len());
        let (mut a, mut b) = (self.0.iter().copied().peekable(), other.0.iter().copied().peekable());
        loop {
            match (a.peek().copied(), b.peek().copied()) {
                (Some(x), Some(y)) if x.0 == y.0 => {
                    out.push((x.0, x.1.max(y.1)));
                    a.next();
                    b.next();
                }
                (Some(x), Some(y)) if x.0 < y.0 => {
                    out.push(x);
                    a.next();
                }
                (_, Some(y)) => {
                    out.push(y);
                    b.next();
                }
                (Some(x), None) => {
                    out.push(x);
                    a.next();
                }
                (None, None) => break,
            }
        }
        self.0 = out;
    }

    /// Forgets timelines that nothing can be compared with any more.
    pub(crate) fn keep(&mut self, live: &BTreeSet<Timeline>) {
        self.0.retain(|e| live.contains(&e.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_keeps_the_greater_of_each() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.raise(1, 5);
        a.raise(9, 1);
        b.raise(1, 3);
        b.raise(4, 7);
        b.raise(9, 2);
        a.join(&b);
        assert_eq!([a.get(1), a.get(4), a.get(9), a.get(2)], [5, 7, 2, 0]);
    }

    #[test]
    fn a_component_never_goes_back() {
        let mut a = Clock::default();
        a.raise(3, 5);
        a.raise(3, 2);
        assert_eq!(a.get(3), 5);
    }
}
