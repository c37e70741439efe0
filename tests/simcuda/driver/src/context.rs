//! Contexts.

#![allow(non_snake_case, reason = "the names of the CUDA driver API")]

use crate::glue::{Out, entry_points, out};

entry_points! { TABLE, sim;
    fn cuDevicePrimaryCtxRetain(ctx: Out<'_, u64>, device: i32) {
        let p = out(ctx)?; p.write(sim.primary_retain(device)?); Ok(())
    }
    fn cuDevicePrimaryCtxRelease_v2(device: i32) { sim.primary_release(device) }
    fn cuDevicePrimaryCtxReset_v2(device: i32) { sim.primary_reset(device) }
    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) { sim.primary_set_flags(device, flags) }
    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<'_, u32>, active: Out<'_, i32>) {
        let (f, a) = (out(flags)?, out(active)?);
        let (flags, active) = sim.primary_state(device)?;
        f.write(flags);
        a.write(i32::from(active));
        Ok(())
    }
    fn cuCtxCreate_v2(ctx: Out<'_, u64>, flags: u32, device: i32) {
        let p = out(ctx)?; p.write(sim.ctx_create(flags, device)?); Ok(())
    }
    fn cuCtxCreate_v3(ctx: Out<'_, u64>, _affinity: u64, _n: i32, flags: u32, device: i32) {
        let p = out(ctx)?; p.write(sim.ctx_create(flags, device)?); Ok(())
    }
    fn cuCtxCreate_v4(ctx: Out<'_, u64>, _params: u64, flags: u32, device: i32) {
        let p = out(ctx)?; p.write(sim.ctx_create(flags, device)?); Ok(())
    }
    fn cuCtxDestroy_v2(ctx: u64) { sim.ctx_destroy(ctx) }
    fn cuCtxGetCurrent(ctx: Out<'_, u64>) { let p = out(ctx)?; p.write(sim.ctx_get_current()?); Ok(()) }
    fn cuCtxSetCurrent(ctx: u64) { sim.ctx_set_current(ctx) }
    fn cuCtxPushCurrent_v2(ctx: u64) { sim.ctx_push(ctx) }
    fn cuCtxPopCurrent_v2(ctx: Out<'_, u64>) {
        let old = sim.ctx_pop()?;
        if let Some(p) = ctx { p.write(old); }
        Ok(())
    }
    fn cuCtxGetDevice(device: Out<'_, i32>) { let p = out(device)?; p.write(sim.ctx_device()?); Ok(()) }
    fn cuCtxGetDevice_v2(device: Out<'_, i32>, ctx: u64) {
        let p = out(device)?; p.write(sim.ctx_device_of(ctx)?); Ok(())
    }
    fn cuCtxGetId(ctx: u64, id: Out<'_, u64>) { let p = out(id)?; p.write(sim.ctx_id(ctx)?); Ok(()) }
    fn cuCtxGetFlags(flags: Out<'_, u32>) { let p = out(flags)?; p.write(sim.ctx_flags()?); Ok(()) }
    fn cuCtxGetApiVersion(ctx: u64, version: Out<'_, u32>) {
        let p = out(version)?; p.write(sim.ctx_api_version(ctx)?); Ok(())
    }
    fn cuCtxGetLimit(value: Out<'_, u64>, _limit: u32) {
        let p = out(value)?; sim.ctx_device()?; p.write(8 << 20); Ok(())
    }
    fn cuCtxSetLimit(_limit: u32, _value: u64) { sim.ctx_device().map(|_| ()) }
    fn cuCtxGetStreamPriorityRange(least: Out<'_, i32>, greatest: Out<'_, i32>) {
        let (low, high) = sim.ctx_stream_priority_range()?;
        if let Some(p) = least { p.write(low); }
        if let Some(p) = greatest { p.write(high); }
        Ok(())
    }
    fn cuCtxSynchronize() { sim.ctx_synchronize() }
    fn cuCtxSynchronize_v2(ctx: u64) {
        if ctx == 0 { return sim.ctx_synchronize() }
        sim.ctx_push(ctx)?;
        let result = sim.ctx_synchronize();
        sim.ctx_pop()?;
        result
    }
    fn cuCtxEnablePeerAccess(peer: u64, flags: u32) { sim.ctx_enable_peer(peer, flags) }
    fn cuCtxDisablePeerAccess(peer: u64) { sim.ctx_disable_peer(peer) }
}
