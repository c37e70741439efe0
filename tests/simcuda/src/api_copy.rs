//! Copies and fills, with the documented rules about which of them the host waits for.

use crate::call::{Call, Need, Sim};
use crate::code::{Code, CuResult};
use crate::memory::{Addr, HostAddr};
use crate::race::Touch;
use crate::state::{AllocKind, Place, Work};
use std::collections::BTreeSet;

/// Where one side of a copy must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Device,
    Host,
    Any,
}

struct Copy {
    to: Addr,
    from: Addr,
    n: u64,
    sides: (Side, Side),
    /// The stream handle, or `None` for a synchronous call on the given default stream.
    is_async: bool,
    stream: u64,
    /// Whether the call names the contexts of both sides.
    between: bool,
}

/// One end of a copy after looking it up.
#[derive(Clone, Copy)]
enum End {
    Known { base: u64, offset: u64, kind: AllocKind, sync: bool },
    Pageable(HostAddr),
}

impl End {
    fn place(self) -> Place {
        match self {
            End::Known { base, offset, .. } => Place::Known { base, offset },
            End::Pageable(host) => Place::Host(host),
        }
    }

    fn on_device(self) -> bool {
        matches!(self, End::Known { kind: AllocKind::Device | AllocKind::Imported, .. })
    }

    fn wants_sync(self) -> bool {
        matches!(self, End::Known { sync: true, .. })
    }
}

macro_rules! copies {
    ($($(#[$doc:meta])* $name:ident = $cu:literal, $to:ident <- $from:ident, $async:literal;)*) => {
        impl Sim {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(&self, to: impl Into<Addr>, from: impl Into<Addr>, n: u64, stream: u64) -> CuResult<()> {
                let copy = Copy {
                    to: to.into(), from: from.into(), n, sides: (Side::$to, Side::$from), is_async: $async, stream,
                    between: false,
                };
                self.call($cu, Need::Init, |c| c.copy(copy))
            })*
        }
    };
}

copies! {
    /// `cuMemcpyHtoD_v2`; `stream` is the default stream meant: 1 legacy, 2 per thread.
    memcpy_htod = "cuMemcpyHtoD_v2", Device <- Host, false;
    /// `cuMemcpyDtoH_v2`.
    memcpy_dtoh = "cuMemcpyDtoH_v2", Host <- Device, false;
    /// `cuMemcpyDtoD_v2`. The host does not wait for it.
    memcpy_dtod = "cuMemcpyDtoD_v2", Device <- Device, false;
    /// `cuMemcpy`.
    memcpy = "cuMemcpy", Any <- Any, false;
    /// `cuMemcpyHtoDAsync_v2`.
    memcpy_htod_async = "cuMemcpyHtoDAsync_v2", Device <- Host, true;
    /// `cuMemcpyDtoHAsync_v2`.
    memcpy_dtoh_async = "cuMemcpyDtoHAsync_v2", Host <- Device, true;
    /// `cuMemcpyDtoDAsync_v2`.
    memcpy_dtod_async = "cuMemcpyDtoDAsync_v2", Device <- Device, true;
    /// `cuMemcpyAsync`.
    memcpy_async = "cuMemcpyAsync", Any <- Any, true;
}

impl Sim {
    /// `cuMemcpyHtoD_v2` from a slice.
    #[track_caller]
    pub fn upload(&self, to: u64, from: &[u8]) -> CuResult<()> {
        self.memcpy_htod(to, Addr::of(from), from.len() as u64, crate::LEGACY)
    }

    /// `cuMemcpyDtoH_v2` into a slice.
    #[track_caller]
    pub fn download(&self, to: &mut [u8], from: u64) -> CuResult<()> {
        let n = to.len() as u64;
        self.memcpy_dtoh(Addr::of_mut(to), from, n, crate::LEGACY)
    }

    /// `cuMemcpyHtoDAsync_v2` from a slice, which is read before the call returns.
    #[track_caller]
    pub fn upload_async(&self, to: u64, from: &[u8], stream: u64) -> CuResult<()> {
        self.memcpy_htod_async(to, Addr::of(from), from.len() as u64, stream)
    }

    /// `cuMemcpyDtoHAsync_v2` into a slice: with pageable memory, the call waits.
    #[track_caller]
    pub fn download_async(&self, to: &mut [u8], from: u64, stream: u64) -> CuResult<()> {
        let n = to.len() as u64;
        self.memcpy_dtoh_async(Addr::of_mut(to), from, n, stream)
    }

    /// `cuMemcpyPeer`. The host does not wait; the default streams of both contexts do.
    #[track_caller]
    pub fn memcpy_peer(&self, to: u64, to_ctx: u64, from: u64, from_ctx: u64, n: u64) -> CuResult<()> {
        self.peer("cuMemcpyPeer", (to, to_ctx), (from, from_ctx), n, crate::LEGACY, false)
    }

    /// `cuMemcpyPeerAsync`.
    #[track_caller]
    pub fn memcpy_peer_async(
        &self,
        to: u64,
        to_ctx: u64,
        from: u64,
        from_ctx: u64,
        n: u64,
        stream: u64,
    ) -> CuResult<()> {
        self.peer("cuMemcpyPeerAsync", (to, to_ctx), (from, from_ctx), n, stream, true)
    }

    #[track_caller]
    fn peer(
        &self,
        name: &'static str,
        to: (u64, u64),
        from: (u64, u64),
        n: u64,
        stream: u64,
        is_async: bool,
    ) -> CuResult<()> {
        self.call(name, Need::Init, |c| {
            c.context(to.1)?;
            c.context(from.1)?;
            let sides = (Side::Device, Side::Device);
            c.copy(Copy { to: to.0.into(), from: from.0.into(), n, sides, is_async, stream, between: true })
        })
    }

    /// `cuMemsetD8_v2`. The host does not wait, unless the memory is pinned.
    #[track_caller]
    pub fn memset_d8(&self, to: u64, byte: u8, n: u64, stream: u64) -> CuResult<()> {
        self.call("cuMemsetD8_v2", Need::Init, |c| c.fill(to, [byte, 0, 0, 0], 1, n, stream, false))
    }

    /// `cuMemsetD8Async`.
    #[track_caller]
    pub fn memset_d8_async(&self, to: u64, byte: u8, n: u64, stream: u64) -> CuResult<()> {
        self.call("cuMemsetD8Async", Need::Init, |c| c.fill(to, [byte, 0, 0, 0], 1, n, stream, true))
    }

    /// `cuMemsetD32_v2`; `n` counts elements.
    #[track_caller]
    pub fn memset_d32(&self, to: u64, value: u32, n: u64, stream: u64) -> CuResult<()> {
        self.call("cuMemsetD32_v2", Need::Init, |c| c.fill(to, value.to_ne_bytes(), 4, n, stream, false))
    }

    /// `cuMemsetD32Async`; `n` counts elements.
    #[track_caller]
    pub fn memset_d32_async(&self, to: u64, value: u32, n: u64, stream: u64) -> CuResult<()> {
        self.call("cuMemsetD32Async", Need::Init, |c| c.fill(to, value.to_ne_bytes(), 4, n, stream, true))
    }
}

impl Call<'_> {
    fn end(&mut self, at: Addr, n: u64, side: Side) -> CuResult<End> {
        let Some((base, offset)) = self.locate(at.raw(), n)? else {
            return match (side, at.host()) {
                (Side::Host | Side::Any, Some(host)) => Ok(End::Pageable(host)),
                _ => Err(Code::INVALID_VALUE),
            };
        };
        let alloc = self.st.allocs.get(&base).ok_or(Code::INVALID_VALUE)?;
        let end = End::Known { base, offset, kind: alloc.kind, sync: alloc.sync_memops };
        match side {
            Side::Host if end.on_device() => Err(Code::INVALID_VALUE),
            _ => Ok(end),
        }
    }

    /// The legacy streams of the contexts that own memory on other devices than the stream's.
    fn other_devices(&self, stream: u64, ends: [End; 2]) -> Vec<u64> {
        let here = self.st.streams.get(&stream).and_then(|s| self.st.contexts.get(&s.ctx)).map(|c| c.device);
        let owners: BTreeSet<u64> = ends
            .iter()
            .filter_map(|end| match end {
                End::Known { base, .. } => self.st.allocs.get(base).filter(|_| end.on_device()).map(|a| a.ctx),
                End::Pageable(_) => None,
            })
            .collect();
        let contexts = owners.iter().filter_map(|ctx| self.st.contexts.get(ctx));
        contexts.filter(|c| Some(c.device) != here).map(|c| c.legacy).collect()
    }

    /// Whether a copy on a stream, without named contexts, can access one of its ends: memory of another device's pool
    /// only if the pool gives the stream's device access. The driver itself copies plain memory of another device.
    fn in_reach(&mut self, stream: u64, end: End) -> bool {
        let End::Known { base, .. } = end else { return true };
        let ctx = self.st.streams.get(&stream).map_or(0, |stream| stream.ctx);
        let of_pool = self.st.allocs.get(&base).is_some_and(|alloc| alloc.pool.is_some());
        !(of_pool && self.st.cfg.pools_have_reach) || self.accessible(ctx, base)
    }

    fn copy(&mut self, copy: Copy) -> CuResult<()> {
        let stream = self.stream(copy.stream)?;
        if !copy.is_async {
            self.unsafe_call()?;
        }
        if copy.n == 0 {
            return Ok(());
        }
        let to = self.end(copy.to, copy.n, copy.sides.0)?;
        let from = self.end(copy.from, copy.n, copy.sides.1)?;
        let in_reach = copy.between || (self.in_reach(stream, to) && self.in_reach(stream, from));
        if !in_reach {
            return Err(Code::INVALID_VALUE);
        }
        let n = copy.n;
        let mut touches = Vec::new();
        if let End::Known { base, offset, .. } = from {
            touches.push(Touch::read(base, offset, n));
        }
        if let End::Known { base, offset, .. } = to {
            touches.push(Touch::write(base, offset, n));
        }
        let pageable = matches!(to, End::Pageable(_)) || matches!(from, End::Pageable(_));
        if pageable && self.is_capturing(stream) {
            self.no_capture_on(stream)?;
        }
        if let End::Pageable(host) = from {
            // The bytes are taken before the call returns. A synchronous call first lets the stream run out.
            if !copy.is_async || matches!(to, End::Pageable(_)) {
                self.join_stream(stream);
            }
            let data = host.span(0, n).map(|s| s.to_vec()).ok_or(Code::INVALID_VALUE)?;
            self.submit(stream, Work::Put { to: to.place(), data }, &touches, Vec::new())?;
            let staged = self.st.cfg.staged_copies_pend && to.on_device();
            if !(copy.is_async || staged) || matches!(to, End::Pageable(_)) {
                self.join_stream(stream);
            }
            return Ok(());
        }
        // A synchronous copy between devices is serialised with the default streams on both sides.
        let sides = if copy.is_async { Vec::new() } else { self.other_devices(stream, [to, from]) };
        let mut before = Vec::new();
        for legacy in &sides {
            let point = self.submit(*legacy, Work::Nothing, &[], Vec::new())?;
            before.push(self.dep_on(point));
        }
        let point = self.submit(stream, Work::Copy { to: to.place(), from: from.place(), n }, &touches, before)?;
        for legacy in &sides {
            let copied = self.dep_on(point);
            self.submit(*legacy, Work::Nothing, &[], vec![copied])?;
        }
        // Between device memories the host does not wait even for a synchronous copy.
        let host_side = !(to.on_device() && from.on_device());
        if matches!(to, End::Pageable(_)) || (!copy.is_async && host_side) || to.wants_sync() || from.wants_sync() {
            self.join_stream(stream);
        }
        Ok(())
    }

    fn fill(&mut self, to: u64, pattern: [u8; 4], width: u8, n: u64, stream: u64, is_async: bool) -> CuResult<()> {
        let stream = self.stream(stream)?;
        if !is_async {
            self.unsafe_call()?;
        }
        let n = n.checked_mul(u64::from(width)).ok_or(Code::INVALID_VALUE)?;
        if n == 0 {
            return Ok(());
        }
        let end = self.end(Addr::known(to), n, Side::Device)?;
        let End::Known { base, offset, kind, .. } = end else { return Err(Code::INVALID_VALUE) };
        let ctx = self.st.streams.get(&stream).map_or(0, |s| s.ctx);
        if !to.is_multiple_of(u64::from(width)) || !self.accessible(ctx, base) {
            return Err(Code::INVALID_VALUE);
        }
        let work = Work::Fill { to: end.place(), n, pattern, width };
        self.submit(stream, work, &[Touch::write(base, offset, n)], Vec::new())?;
        if !is_async && matches!(kind, AllocKind::Pinned | AllocKind::Registered) {
            self.join_stream(stream);
        }
        Ok(())
    }
}
