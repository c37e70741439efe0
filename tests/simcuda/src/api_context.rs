//! `cuInit`, `cuCtx*` and `cuDevicePrimaryCtx*`.

use crate::call::{Call, Need, Sim};
use crate::code::{Code, CuResult};
use crate::finding::Kind;

impl Sim {
    /// `cuInit`.
    #[track_caller]
    pub fn init(&self, flags: u32) -> CuResult<()> {
        let start = self.call("cuInit", Need::Driver, |c| {
            if flags != 0 {
                return Err(Code::INVALID_VALUE);
            }
            if c.st.cfg.devices == 0 {
                return Err(Code::NO_DEVICE);
            }
            let first = !c.st.initialised;
            c.st.initialised = true;
            Ok(first.then_some(c.st.cfg.mode))
        })?;
        if let Some(mode) = start {
            self.start_workers(mode);
        }
        Ok(())
    }

    /// `cuDevicePrimaryCtxRetain`.
    #[track_caller]
    pub fn primary_retain(&self, device: i32) -> CuResult<u64> {
        self.call("cuDevicePrimaryCtxRetain", Need::Init, |c| {
            let device = c.device(device)?;
            let (known, flags) = c.device_mut(device).map(|d| (d.primary, d.primary_flags))?;
            let ctx = match known {
                Some(ctx) => ctx,
                None => {
                    c.unsafe_call()?;
                    let ctx = c.new_context(device, true, flags);
                    c.device_mut(device)?.primary = Some(ctx);
                    ctx
                }
            };
            let site = c.site();
            let context = c.context(ctx)?;
            context.reset = false;
            context.holders.push(site);
            Ok(ctx)
        })
    }

    /// `cuDevicePrimaryCtxRelease_v2`. The last release ends the context; a later retain makes another one.
    #[track_caller]
    pub fn primary_release(&self, device: i32) -> CuResult<()> {
        let held = self.primary_of(device);
        self.release("cuDevicePrimaryCtxRelease_v2", held, |c| {
            let device = c.device(device)?;
            let Some(ctx) = c.device_mut(device)?.primary else {
                c.find(Kind::ContextImbalance, format!("primary context of device {device} is not retained"), None);
                return Err(Code::INVALID_CONTEXT);
            };
            let primary = c.context(ctx)?;
            primary.holders.pop();
            primary.excused = primary.excused.saturating_sub(1);
            if c.context(ctx)?.holders.is_empty() {
                c.device_mut(device)?.primary = None;
                c.end_context(ctx);
            }
            Ok(())
        })
    }

    /// `cuDevicePrimaryCtxReset_v2`: everything in the context ends. Those who retained it still have it, but nothing can be
    /// done in it until somebody retains it anew.
    #[track_caller]
    pub fn primary_reset(&self, device: i32) -> CuResult<()> {
        self.call("cuDevicePrimaryCtxReset_v2", Need::Init, |c| {
            let device = c.device(device)?;
            let Some(ctx) = c.device_mut(device)?.primary else { return Ok(()) };
            c.tear_down(ctx);
            let legacy = c.new_stream(ctx, crate::state::StreamKind::Legacy, false, 0);
            let context = c.context(ctx)?;
            (context.legacy, context.reset) = (legacy, true);
            Ok(())
        })
    }

    /// `cuDevicePrimaryCtxGetState`: flags, and whether the context exists and was not reset.
    #[track_caller]
    pub fn primary_state(&self, device: i32) -> CuResult<(u32, bool)> {
        self.call("cuDevicePrimaryCtxGetState", Need::Init, |c| {
            let device = c.device(device)?;
            let (flags, primary) = c.device_mut(device).map(|d| (d.primary_flags, d.primary))?;
            Ok((flags, primary.and_then(|ctx| c.st.contexts.get(&ctx)).is_some_and(|ctx| !ctx.reset)))
        })
    }

    /// `cuDevicePrimaryCtxSetFlags_v2`.
    #[track_caller]
    pub fn primary_set_flags(&self, device: i32, flags: u32) -> CuResult<()> {
        self.call("cuDevicePrimaryCtxSetFlags_v2", Need::Init, |c| {
            let device = c.device(device)?;
            c.device_mut(device)?.primary_flags = flags;
            Ok(())
        })
    }

    /// `cuCtxCreate_v2`: a new context, which becomes current.
    #[track_caller]
    pub fn ctx_create(&self, flags: u32, device: i32) -> CuResult<u64> {
        self.call("cuCtxCreate_v2", Need::Init, |c| {
            let device = c.device(device)?;
            let ctx = c.new_context(device, false, flags);
            c.host().stack.push(ctx);
            Ok(ctx)
        })
    }

    /// `cuCtxDestroy_v2`.
    #[track_caller]
    pub fn ctx_destroy(&self, ctx: u64) -> CuResult<()> {
        self.release("cuCtxDestroy_v2", ctx, |c| {
            if c.context(ctx)?.primary {
                c.find(Kind::ContextImbalance, "a primary context is released, not destroyed".into(), None);
                return Err(Code::INVALID_CONTEXT);
            }
            if c.host().stack.last() == Some(&ctx) {
                c.host().stack.pop();
            }
            c.end_context(ctx);
            Ok(())
        })
    }

    /// `cuCtxGetCurrent`; 0 for none.
    #[track_caller]
    pub fn ctx_get_current(&self) -> CuResult<u64> {
        self.call("cuCtxGetCurrent", Need::Init, |c| Ok(c.host().stack.last().copied().unwrap_or(0)))
    }

    /// `cuCtxSetCurrent`: replaces the top of the stack; 0 takes it off.
    #[track_caller]
    pub fn ctx_set_current(&self, ctx: u64) -> CuResult<()> {
        self.call("cuCtxSetCurrent", Need::Init, |c| {
            if ctx != 0 {
                c.context(ctx)?;
            }
            c.host().stack.pop();
            if ctx != 0 {
                c.host().stack.push(ctx);
            }
            Ok(())
        })
    }

    /// `cuCtxPushCurrent_v2`.
    #[track_caller]
    pub fn ctx_push(&self, ctx: u64) -> CuResult<()> {
        self.call("cuCtxPushCurrent_v2", Need::Init, |c| {
            c.context(ctx)?;
            c.host().stack.push(ctx);
            Ok(())
        })
    }

    /// `cuCtxPopCurrent_v2`.
    #[track_caller]
    pub fn ctx_pop(&self) -> CuResult<u64> {
        self.call("cuCtxPopCurrent_v2", Need::Init, |c| match c.host().stack.pop() {
            Some(ctx) => Ok(ctx),
            None => {
                c.find(Kind::ContextImbalance, "popped more contexts than were pushed".into(), None);
                Err(Code::INVALID_CONTEXT)
            }
        })
    }

    /// `cuCtxGetDevice`, also of a context that was reset: numba-cuda relies on that after `cuda.close()`.
    #[track_caller]
    pub fn ctx_device(&self) -> CuResult<i32> {
        self.call("cuCtxGetDevice", Need::Init, |c| {
            let ctx = c.top()?;
            c.context(ctx).map(|x| signed(x.device))
        })
    }

    /// `cuCtxGetDevice_v2`: of a given context, or of the current one.
    #[track_caller]
    pub fn ctx_device_of(&self, ctx: u64) -> CuResult<i32> {
        self.call("cuCtxGetDevice_v2", Need::Init, |c| {
            let ctx = given_or_current(c, ctx)?;
            c.context(ctx).map(|x| signed(x.device))
        })
    }

    /// `cuCtxGetId`.
    #[track_caller]
    pub fn ctx_id(&self, ctx: u64) -> CuResult<u64> {
        self.call("cuCtxGetId", Need::Init, |c| {
            let ctx = given_or_current(c, ctx)?;
            c.context(ctx).map(|x| x.id)
        })
    }

    /// `cuCtxGetFlags`.
    #[track_caller]
    pub fn ctx_flags(&self) -> CuResult<u32> {
        self.call("cuCtxGetFlags", Need::Init, |c| {
            let ctx = c.current()?;
            c.context(ctx).map(|x| x.flags)
        })
    }

    /// `cuCtxGetApiVersion`.
    #[track_caller]
    pub fn ctx_api_version(&self, ctx: u64) -> CuResult<u32> {
        self.call("cuCtxGetApiVersion", Need::Init, |c| {
            let ctx = given_or_current(c, ctx)?;
            c.context(ctx).map(|_| 3020)
        })
    }

    /// `cuCtxSynchronize`.
    #[track_caller]
    pub fn ctx_synchronize(&self) -> CuResult<()> {
        self.call("cuCtxSynchronize", Need::Init, |c| {
            let ctx = c.current()?;
            c.no_capture_in(ctx)?;
            let points = c.points(|s| s.ctx == ctx);
            c.know(&points);
            let over = c.context(ctx)?.over.clone();
            c.host_clock().join(&over);
            c.wait(&points);
            Ok(())
        })
    }

    /// `cuCtxEnablePeerAccess`: the current context may use memory of `peer`.
    #[track_caller]
    pub fn ctx_enable_peer(&self, peer: u64, flags: u32) -> CuResult<()> {
        self.call("cuCtxEnablePeerAccess", Need::Init, |c| {
            let (ctx, device) = c.here()?;
            let other = c.context(peer)?.device;
            if flags != 0 {
                return Err(Code::INVALID_VALUE);
            }
            if other == device || peer == ctx {
                return Err(Code::INVALID_DEVICE);
            }
            if !c.st.cfg.peers {
                return Err(Code::PEER_ACCESS_UNSUPPORTED);
            }
            match c.context(ctx)?.peers.insert(peer) {
                true => Ok(()),
                false => Err(Code::PEER_ALREADY_ENABLED),
            }
        })
    }

    /// `cuCtxDisablePeerAccess`.
    #[track_caller]
    pub fn ctx_disable_peer(&self, peer: u64) -> CuResult<()> {
        self.call("cuCtxDisablePeerAccess", Need::Init, |c| {
            let ctx = c.current()?;
            c.context(peer)?;
            match c.context(ctx)?.peers.remove(&peer) {
                true => Ok(()),
                false => Err(Code::PEER_NOT_ENABLED),
            }
        })
    }

    fn primary_of(&self, device: i32) -> u64 {
        if self.forked() {
            return 0;
        }
        let st = self.inner.state.lock();
        usize::try_from(device).ok().and_then(|d| st.devices.get(d)).and_then(|d| d.primary).unwrap_or(0)
    }
}

fn given_or_current(c: &mut Call<'_>, ctx: u64) -> CuResult<u64> {
    if ctx == 0 { c.current() } else { Ok(ctx) }
}

pub(crate) fn signed(device: u32) -> i32 {
    i32::try_from(device).unwrap_or(-1)
}
