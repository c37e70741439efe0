//! Happens-before over bytes: every access is compared with the earlier accesses that are not ordered before it.

use crate::call::Call;
use crate::clock::{Clock, Timeline};
use crate::finding::Kind;
use crate::state::{Access, AccessKind, AllocKind};

/// Bytes of an allocation that an operation uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) base: u64,
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    pub(crate) kind: AccessKind,
}

impl Touch {
    pub(crate) fn read(base: u64, offset: u64, n: u64) -> Self {
        Self { base, lo: offset, hi: offset.saturating_add(n), kind: AccessKind::Read }
    }

    pub(crate) fn write(base: u64, offset: u64, n: u64) -> Self {
        Self { kind: AccessKind::Write, ..Self::read(base, offset, n) }
    }

    /// The whole allocation, bytes of size 0 included.
    pub(crate) fn whole(base: u64, len: u64, kind: AccessKind) -> Self {
        Self { base, lo: 0, hi: len.max(1), kind }
    }
}

fn verb(kind: AccessKind) -> &'static str {
    match kind {
        AccessKind::Read => "read",
        AccessKind::Write => "write",
        AccessKind::Alloc => "allocation",
        AccessKind::Free => "free",
    }
}

impl Call<'_> {
    /// Records an access at point `seq` of a timeline that knows `clock`, after comparing it with those before.
    pub(crate) fn touch(&mut self, touch: Touch, timeline: Timeline, seq: u64, clock: &Clock) {
        let site = self.site();
        let initcheck = self.st.cfg.initcheck;
        let Some(alloc) = self.st.allocs.get_mut(&touch.base) else { return };
        let overlaps = |x: &Access| x.lo < touch.hi && touch.lo < x.hi;
        let conflict = alloc
            .accesses
            .iter()
            .filter(|x| overlaps(x) && (x.kind != AccessKind::Read || touch.kind != AccessKind::Read))
            .find(|x| x.seq > clock.get(x.timeline))
            .map(|x| (x.kind, x.site.clone(), x.lo.max(touch.lo), x.hi.min(touch.hi)));
        // An access that the new one follows and covers can never again be the nearer half of a race.
        alloc.accesses.retain(|x| {
            let covered = touch.lo <= x.lo && x.hi <= touch.hi;
            let replaced = match touch.kind {
                AccessKind::Read => x.kind == AccessKind::Read && x.timeline == timeline,
                _ => x.seq <= clock.get(x.timeline),
            };
            !(covered && replaced)
        });
        alloc.accesses.push(Access { lo: touch.lo, hi: touch.hi, kind: touch.kind, timeline, seq, site });
        let (id, kind) = (alloc.id, alloc.kind);
        let mut unwritten = None;
        match touch.kind {
            AccessKind::Write => alloc.written.add(touch.lo, touch.hi),
            AccessKind::Read if initcheck && kind == AllocKind::Device => {
                unwritten = alloc.written.first_gap(touch.lo, touch.hi);
            }
            _ => {}
        }
        if let Some((earlier, first, lo, hi)) = conflict {
            let reason = if touch.kind == AccessKind::Free { Kind::FreeRace } else { Kind::Race };
            let message = format!(
                "{} after {} of bytes {lo}..{hi} of allocation {id} ({kind:?}), and nothing orders them",
                verb(touch.kind),
                verb(earlier)
            );
            self.find(reason, message, Some(first));
        }
        if let Some(at) = unwritten {
            self.find(Kind::UninitRead, format!("byte {at} of allocation {id} was never written"), None);
        }
    }

    /// An access of the calling thread itself, at this moment.
    pub(crate) fn host_touch(&mut self, touch: Touch) {
        if let Some(r) = crate::call::running(self.inner.instance) {
            return self.touch(touch, r.timeline, r.seq, &r.clock);
        }
        let (timeline, seq, clock) = self.host_event();
        self.touch(touch, timeline, seq, &clock);
    }
}
