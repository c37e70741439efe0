//! Contexts, devices in use, and how a stream handle is understood.

use crate::call::Call;
use crate::clock::Clock;
use crate::code::{Code, CuResult};
use crate::finding::Kind;
use crate::state::{Context, HandleKind, Stream, StreamKind};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The handle values with a special meaning.
pub(crate) const LEGACY: u64 = 1;
pub(crate) const PER_THREAD: u64 = 2;

impl Call<'_> {
    pub(crate) fn device(&self, ordinal: i32) -> CuResult<u32> {
        u32::try_from(ordinal).ok().filter(|d| *d < self.st.cfg.devices).ok_or(Code::INVALID_DEVICE)
    }

    pub(crate) fn device_mut(&mut self, device: u32) -> CuResult<&mut crate::state::Device> {
        let at = usize::try_from(device).map_err(|_| Code::INVALID_DEVICE)?;
        self.st.devices.get_mut(at).ok_or(Code::INVALID_DEVICE)
    }

    pub(crate) fn new_context(&mut self, device: u32, primary: bool, flags: u32) -> u64 {
        let handle = self.st.handle(HandleKind::Context);
        let id = self.st.next_handle;
        let legacy = self.new_stream(handle, StreamKind::Legacy, false, 0);
        let holders = if primary { Vec::new() } else { vec![self.site()] };
        self.st.contexts.insert(
            handle,
            Context {
                device,
                id,
                flags,
                primary,
                reset: false,
                holders,
                legacy,
                per_thread: BTreeMap::new(),
                peers: BTreeSet::new(),
                excused: 0,
                over: Clock::default(),
                over_blocking: Clock::default(),
            },
        );
        handle
    }

    pub(crate) fn new_stream(&mut self, ctx: u64, kind: StreamKind, non_blocking: bool, priority: i32) -> u64 {
        let handle = self.st.handle(HandleKind::Stream);
        let timeline = self.st.timeline();
        let origin = self.site();
        let stream = Stream {
            ctx,
            kind,
            non_blocking,
            priority,
            timeline,
            submitted: 0,
            done: 0,
            busy: false,
            queue: VecDeque::new(),
            clock: Clock::default(),
            destroyed: false,
            capture: None,
            origin,
            excused: false,
        };
        self.st.streams.insert(handle, stream);
        handle
    }

    /// The current context of the calling thread, for work in it.
    pub(crate) fn current(&mut self) -> CuResult<u64> {
        let top = self.top()?;
        match self.context(top)?.reset {
            false => Ok(top),
            true => Err(Code::CONTEXT_IS_DESTROYED),
        }
    }

    /// The current context of the calling thread, even if it was reset.
    pub(crate) fn top(&mut self) -> CuResult<u64> {
        let top = self.host().stack.last().copied().ok_or(Code::INVALID_CONTEXT)?;
        match self.st.contexts.contains_key(&top) {
            true => Ok(top),
            false => Err(Code::CONTEXT_IS_DESTROYED),
        }
    }

    /// The current context and its device.
    pub(crate) fn here(&mut self) -> CuResult<(u64, u32)> {
        let ctx = self.current()?;
        self.st.contexts.get(&ctx).map(|c| (ctx, c.device)).ok_or(Code::INVALID_CONTEXT)
    }

    /// A context handle given by the caller.
    pub(crate) fn context(&mut self, handle: u64) -> CuResult<&mut Context> {
        if !self.st.contexts.contains_key(&handle) {
            return Err(self.bad_handle(HandleKind::Context, handle, Code::INVALID_CONTEXT));
        }
        self.st.contexts.get_mut(&handle).ok_or(Code::INVALID_CONTEXT)
    }

    /// The stream that a handle means for the calling thread.
    pub(crate) fn stream(&mut self, handle: u64) -> CuResult<u64> {
        match handle {
            0 | LEGACY => {
                let ctx = self.current()?;
                self.st.contexts.get(&ctx).map(|c| c.legacy).ok_or(Code::INVALID_CONTEXT)
            }
            PER_THREAD => {
                let (ctx, thread) = (self.current()?, self.thread);
                if let Some(s) = self.st.contexts.get(&ctx).and_then(|c| c.per_thread.get(&thread)) {
                    return Ok(*s);
                }
                let stream = self.new_stream(ctx, StreamKind::PerThread, false, 0);
                if let Some(c) = self.st.contexts.get_mut(&ctx) {
                    c.per_thread.insert(thread, stream);
                }
                Ok(stream)
            }
            _ => {
                let stream = self.st.named.get(&handle).copied().unwrap_or(handle);
                match self.st.streams.get(&stream) {
                    Some(s) if !s.destroyed && s.kind == StreamKind::User => Ok(stream),
                    _ => Err(self.bad_handle(HandleKind::Stream, handle, Code::INVALID_HANDLE)),
                }
            }
        }
    }

    /// Ends a context's streams, events and memory, after running its queued work.
    pub(crate) fn tear_down(&mut self, ctx: u64) {
        let points = self.points(|s| s.ctx == ctx);
        self.wait(&points);
        self.know(&points);
        let site = self.site();
        let bases: Vec<u64> = self
            .st
            .allocs
            .iter()
            .filter(|(_, a)| a.ctx == ctx && a.freed.is_none() && a.pool.is_none())
            .map(|(b, _)| *b)
            .collect();
        for base in bases {
            self.mark_freed(base, site.clone());
            self.st.release_bytes(base);
        }
        let events: Vec<u64> = self.st.events.iter().filter(|(_, e)| e.ctx == ctx).map(|(h, _)| *h).collect();
        for event in events {
            self.st.events.remove(&event);
            self.st.gone.insert(event, site.clone());
        }
        for (stream, _) in points {
            self.st.streams.remove(&stream);
            self.st.gone.insert(stream, site.clone());
            self.st.retire_timeline();
        }
        for other in self.st.contexts.values_mut() {
            other.peers.remove(&ctx);
        }
        if let Some(c) = self.st.contexts.get_mut(&ctx) {
            c.per_thread.clear();
            c.peers.clear();
        }
    }

    /// Ends a context and its handle.
    pub(crate) fn end_context(&mut self, ctx: u64) {
        self.tear_down(ctx);
        let site = self.site();
        self.st.contexts.remove(&ctx);
        self.st.gone.insert(ctx, site);
    }

    /// Whether work of a context may touch an allocation on another device.
    pub(crate) fn accessible(&mut self, ctx: u64, base: u64) -> bool {
        let Some(a) = self.st.allocs.get(&base) else { return true };
        let Some(c) = self.st.contexts.get(&ctx) else { return true };
        let (kind, owner_ctx, owner, pool) = (a.kind, a.ctx, a.device, a.pool);
        if !matches!(kind, crate::state::AllocKind::Device) || owner == c.device {
            return true;
        }
        let allowed = match pool.and_then(|p| self.st.pools.get(&p)) {
            Some(p) => p.access.get(&c.device).is_some_and(|f| *f != 0),
            None => c.peers.contains(&owner_ctx),
        };
        if !allowed {
            let message = format!("memory of device {owner} used by a context of device {}", c.device);
            self.find(Kind::PeerAccess, message, None);
        }
        allowed
    }
}
