//! Allocations: making, finding and ending them, for all kinds of memory alike.

use crate::call::Call;
use crate::code::{Code, CuResult};
use crate::finding::{Kind, Site};
use crate::memory::{Backing, HostAddr};
use crate::race::Touch;
use crate::ranges::Ranges;
use crate::sched::advance;
use crate::state::{AccessKind, Alloc, AllocKind, Bytes, State};

/// Larger allocations are poisoned at their ends only, so that a test with gigabytes does not touch them all.
const POISON_WHOLE: u64 = 64 << 20;
const POISON_ENDS: u64 = 1 << 20;
const POISON: u8 = 0xCD;

/// What to allocate.
pub(crate) struct Want {
    pub(crate) kind: AllocKind,
    pub(crate) len: u64,
    pub(crate) device: u32,
    pub(crate) ctx: u64,
    pub(crate) flags: u32,
    pub(crate) pool: Option<u64>,
}

impl State {
    /// The allocation, live or freed, that an address lies in.
    pub(crate) fn around(&self, address: u64) -> Option<(u64, &Alloc)> {
        let (base, alloc) = self.allocs.range(..=address).next_back()?;
        (address - base < alloc.len.max(1)).then_some((*base, alloc))
    }

    /// The live allocation that an address lies in.
    pub(crate) fn live(&self, address: u64) -> Option<(u64, &Alloc)> {
        self.around(address).filter(|(_, a)| a.freed.is_none())
    }

    /// Whether an address is one that only this driver gives out.
    pub(crate) fn ours(&self, address: u64) -> bool {
        [&self.device_space, &self.host_space].into_iter().flatten().any(|s| s.contains(address))
    }

    /// Gives the bytes back. Uses that are still queued then find no memory.
    pub(crate) fn release_bytes(&mut self, base: u64) {
        let Some(alloc) = self.allocs.get_mut(&base) else { return };
        let (len, kind, device) = (alloc.len, alloc.kind, alloc.device);
        // Imported memory counts for the exporter.
        let own = alloc.imported_by.is_none();
        let pool = alloc.pool.filter(|_| own);
        alloc.accesses = Vec::new();
        alloc.written = Ranges::default();
        match std::mem::replace(&mut alloc.bytes, Bytes::Released) {
            Bytes::Arena => {
                if let Some(space) = &self.host_space {
                    space.close(base, len);
                }
            }
            Bytes::Released => return,
            Bytes::Backing(_) | Bytes::Host(_) => {}
        }
        if own
            && matches!(kind, AllocKind::Device | AllocKind::Managed)
            && let Some(d) = usize::try_from(device).ok().and_then(|d| self.devices.get_mut(d))
        {
            d.used = d.used.saturating_sub(len);
        }
        if let Some(pool) = pool.and_then(|p| self.pools.get_mut(&p)) {
            pool.used = pool.used.saturating_sub(len);
            pool.reserved = pool.reserved.min(pool.used.max(pool.threshold));
        }
    }
}

impl Call<'_> {
    fn fits(&self, device: u32, len: u64) -> bool {
        let used = usize::try_from(device).ok().and_then(|d| self.st.devices.get(d)).map_or(0, |d| d.used);
        used.checked_add(len).is_some_and(|sum| sum <= self.st.cfg.memory)
    }

    /// Makes an allocation and returns its address.
    pub(crate) fn make(&mut self, want: Want) -> CuResult<u64> {
        let charged = matches!(want.kind, AllocKind::Device | AllocKind::Managed);
        if charged && !self.fits(want.device, want.len) {
            // Frees may be waiting in queues; a driver looks there before it gives up.
            while advance(self.inner, &mut self.st, None) {}
            if !self.fits(want.device, want.len) {
                return Err(Code::OUT_OF_MEMORY);
            }
        }
        if want
            .pool
            .and_then(|p| self.st.pools.get(&p))
            .is_some_and(|p| p.max_size > 0 && p.used.saturating_add(want.len) > p.max_size)
        {
            return Err(Code::OUT_OF_MEMORY);
        }
        let (base, bytes) = match want.kind {
            AllocKind::Pinned | AllocKind::Managed => {
                let space = self.st.host_space.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
                let base = space.take(want.len).ok_or(Code::OUT_OF_MEMORY)?;
                space.open(base, want.len).map_err(|_| Code::OUT_OF_MEMORY)?;
                (base, Bytes::Arena)
            }
            _ => {
                let backing = Backing::new(want.len).map_err(|_| Code::OUT_OF_MEMORY)?;
                let space = self.st.device_space.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
                (space.take(want.len).ok_or(Code::OUT_OF_MEMORY)?, Bytes::Backing(backing))
            }
        };
        if charged && let Some(d) = usize::try_from(want.device).ok().and_then(|d| self.st.devices.get_mut(d)) {
            d.used += want.len;
        }
        if let Some(pool) = want.pool.and_then(|p| self.st.pools.get_mut(&p)) {
            pool.used += want.len;
            pool.used_high = pool.used_high.max(pool.used);
            pool.reserved = pool.reserved.max(pool.used);
            pool.reserved_high = pool.reserved_high.max(pool.reserved);
        }
        self.insert(base, want, bytes);
        if self.st.cfg.poison {
            self.poison(base);
        }
        Ok(base)
    }

    /// Enters an allocation whose bytes exist already.
    pub(crate) fn insert(&mut self, base: u64, want: Want, bytes: Bytes) {
        let id = self.st.next_alloc;
        self.st.next_alloc += 1;
        let mut written = Ranges::default();
        if want.kind != AllocKind::Device {
            written.add(0, want.len);
        }
        let origin = self.site();
        self.st.allocs.insert(
            base,
            Alloc {
                id,
                len: want.len,
                kind: want.kind,
                device: want.device,
                ctx: want.ctx,
                flags: want.flags,
                pool: want.pool,
                bytes,
                freed: None,
                accesses: Vec::new(),
                written,
                sync_memops: false,
                opened: 0,
                imported_by: None,
                of_graph: false,
                origin,
                excused: false,
            },
        );
    }

    fn poison(&mut self, base: u64) {
        let len = self.st.allocs.get(&base).map_or(0, |a| a.len);
        let parts = match len {
            0 => vec![],
            _ if len <= POISON_WHOLE => vec![(0, len)],
            _ => vec![(0, POISON_ENDS), (len - POISON_ENDS, POISON_ENDS)],
        };
        for (offset, n) in parts {
            if let Some(span) = self.st.span(&crate::state::Place::Known { base, offset }, n) {
                span.fill(POISON);
            }
        }
    }

    /// Registers host memory that the caller vouched for.
    pub(crate) fn adopt(&mut self, host: HostAddr, want: Want) {
        self.insert(host.raw(), want, Bytes::Host(host));
    }

    /// Finds the live allocation of a range, or `None` if the address is not the driver's. A range that is freed
    /// or leaves its allocation is an error and a finding.
    pub(crate) fn locate(&mut self, address: u64, n: u64) -> CuResult<Option<(u64, u64)>> {
        let hit = self.st.around(address).map(|(base, a)| (base, a.id, a.len, a.kind, a.freed.clone()));
        match hit {
            Some((base, id, _, kind, Some(freed))) => {
                let message = format!("{address:#x} is {} bytes into allocation {id} ({kind:?})", address - base);
                self.find(Kind::UseAfterFree, message, Some(freed));
                Err(Code::INVALID_VALUE)
            }
            Some((base, id, len, kind, None)) => {
                let offset = address - base;
                if offset.checked_add(n).is_none_or(|end| end > len) {
                    let message = format!("bytes {offset}..+{n} of allocation {id} ({kind:?}, {len} bytes)");
                    self.find(Kind::OutOfBounds, message, None);
                    return Err(Code::INVALID_VALUE);
                }
                Ok(Some((base, offset)))
            }
            None if self.st.ours(address) => {
                let before = self.st.allocs.range(..=address).next_back();
                let near = before.map(|(b, a)| format!(", {} bytes after allocation {}", address - b - a.len, a.id));
                let message = format!("{address:#x} lies in no allocation{}", near.unwrap_or_default());
                self.find(Kind::OutOfBounds, message, None);
                Err(Code::INVALID_VALUE)
            }
            None => Ok(None),
        }
    }

    /// Finds the allocation that a free function must free: the start of a live allocation of one of these kinds.
    pub(crate) fn freeable(&mut self, address: u64, kinds: &[AllocKind]) -> CuResult<u64> {
        let hit = self.st.around(address).map(|(base, a)| (base, a.id, a.kind, a.freed.clone()));
        let (kind, message, first) = match hit {
            Some((_, id, _, Some(freed))) => (Kind::DoubleFree, format!("allocation {id}"), Some(freed)),
            Some((base, _, kind, None)) if base == address && kinds.contains(&kind) => return Ok(base),
            Some((base, id, kind, None)) => {
                let message = format!("{} bytes into allocation {id} ({kind:?})", address - base);
                (Kind::InvalidFree, message, None)
            }
            None => (Kind::InvalidFree, format!("{address:#x} is no allocation"), None),
        };
        self.find(kind, message, first);
        Err(Code::INVALID_VALUE)
    }

    /// A free by the host, now.
    pub(crate) fn free_now(&mut self, base: u64) {
        if self.st.cfg.free_waits {
            let points = self.points(|_| true);
            self.wait(&points);
            self.know(&points);
        }
        let len = self.st.allocs.get(&base).map_or(0, |a| a.len);
        self.host_touch(Touch::whole(base, len, AccessKind::Free));
        let site = self.site();
        self.mark_freed(base, site);
        self.st.release_bytes(base);
    }

    pub(crate) fn mark_freed(&mut self, base: u64, site: Site) {
        if let Some(a) = self.st.allocs.get_mut(&base) {
            a.freed = Some(site);
        }
    }
}
