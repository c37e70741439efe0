//! Streams, capture and host functions. The `_ptsz` forms take stream 0 as the per-thread default stream.

#![allow(non_snake_case, reason = "the names of the CUDA driver API")]

use crate::glue::{Out, entry_points, out};
use simcuda::{Code, CuResult, PER_THREAD, Sim};

/// A host function of C.
type HostFn = unsafe extern "C" fn(u64);
/// A stream callback of C: stream, status, data.
type Callback = unsafe extern "C" fn(u64, u32, u64);

/// The stream that the `_ptsz` forms mean by 0.
pub(crate) fn pts(stream: u64) -> u64 {
    if stream == 0 { PER_THREAD } else { stream }
}

fn host_func(sim: &Sim, stream: u64, function: Option<HostFn>, data: u64) -> CuResult<()> {
    let function = function.ok_or(Code::INVALID_VALUE)?;
    // SAFETY: the caller gave a function that may be called once with this data, from any thread.
    sim.launch_host_func(stream, move || unsafe { function(data) })
}

fn callback(sim: &Sim, stream: u64, shown: u64, function: Option<Callback>, data: u64, flags: u32) -> CuResult<()> {
    let function = function.ok_or(Code::INVALID_VALUE)?;
    // SAFETY: the caller gave a function that may be called once with this data, from any thread.
    sim.stream_add_callback(stream, flags, move || unsafe { function(shown, 0, data) })
}

fn capture_info(sim: &Sim, stream: u64, status: Out<'_, u32>, id: Out<'_, u64>) -> CuResult<()> {
    let p = out(status)?;
    let (status, number) = sim.stream_capture_info(stream)?;
    p.write(status as u32);
    if let Some(p) = id {
        p.write(number);
    }
    Ok(())
}

fn clear<T: Default>(place: Out<'_, T>) {
    if let Some(p) = place {
        p.write(T::default());
    }
}

entry_points! { TABLE, sim;
    fn cuStreamCreate(stream: Out<'_, u64>, flags: u32) {
        let p = out(stream)?; p.write(sim.stream_create(flags)?); Ok(())
    }
    fn cuStreamCreateWithPriority(stream: Out<'_, u64>, flags: u32, priority: i32) {
        let p = out(stream)?; p.write(sim.stream_create_with_priority(flags, priority)?); Ok(())
    }
    fn cuStreamDestroy_v2(stream: u64) { sim.stream_destroy(stream) }
    fn cuStreamSynchronize(stream: u64) { sim.stream_synchronize(stream) }
    fn cuStreamSynchronize_ptsz(stream: u64) { sim.stream_synchronize(pts(stream)) }
    fn cuStreamQuery(stream: u64) { sim.stream_query(stream) }
    fn cuStreamQuery_ptsz(stream: u64) { sim.stream_query(pts(stream)) }
    fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32) { sim.stream_wait_event(stream, event, flags) }
    fn cuStreamWaitEvent_ptsz(stream: u64, event: u64, flags: u32) {
        sim.stream_wait_event(pts(stream), event, flags)
    }
    fn cuStreamGetCtx(stream: u64, ctx: Out<'_, u64>) { let p = out(ctx)?; p.write(sim.stream_ctx(stream)?); Ok(()) }
    fn cuStreamGetCtx_ptsz(stream: u64, ctx: Out<'_, u64>) {
        let p = out(ctx)?; p.write(sim.stream_ctx(pts(stream))?); Ok(())
    }
    fn cuStreamGetCtx_v2(stream: u64, ctx: Out<'_, u64>, green: Out<'_, u64>) {
        let p = out(ctx)?;
        p.write(sim.stream_ctx(stream)?);
        clear(green);
        Ok(())
    }
    fn cuStreamGetFlags(stream: u64, flags: Out<'_, u32>) {
        let p = out(flags)?; p.write(sim.stream_flags(stream)?); Ok(())
    }
    fn cuStreamGetFlags_ptsz(stream: u64, flags: Out<'_, u32>) {
        let p = out(flags)?; p.write(sim.stream_flags(pts(stream))?); Ok(())
    }
    fn cuStreamGetPriority(stream: u64, priority: Out<'_, i32>) {
        let p = out(priority)?; p.write(sim.stream_priority(stream)?); Ok(())
    }
    fn cuStreamGetPriority_ptsz(stream: u64, priority: Out<'_, i32>) {
        let p = out(priority)?; p.write(sim.stream_priority(pts(stream))?); Ok(())
    }
    fn cuStreamGetId(stream: u64, id: Out<'_, u64>) { let p = out(id)?; p.write(sim.stream_id(stream)?); Ok(()) }
    fn cuStreamGetId_ptsz(stream: u64, id: Out<'_, u64>) {
        let p = out(id)?; p.write(sim.stream_id(pts(stream))?); Ok(())
    }
    fn cuStreamGetDevice(stream: u64, device: Out<'_, i32>) {
        let p = out(device)?; p.write(sim.stream_device(stream)?); Ok(())
    }
    fn cuStreamGetDevice_ptsz(stream: u64, device: Out<'_, i32>) {
        let p = out(device)?; p.write(sim.stream_device(pts(stream))?); Ok(())
    }
    fn cuStreamIsCapturing(stream: u64, status: Out<'_, u32>) {
        let p = out(status)?; p.write(sim.stream_is_capturing(stream)? as u32); Ok(())
    }
    fn cuStreamIsCapturing_ptsz(stream: u64, status: Out<'_, u32>) {
        let p = out(status)?; p.write(sim.stream_is_capturing(pts(stream))? as u32); Ok(())
    }
    fn cuStreamBeginCapture_v2(stream: u64, mode: u32) { sim.stream_begin_capture(stream, mode) }
    fn cuStreamBeginCapture_v2_ptsz(stream: u64, mode: u32) { sim.stream_begin_capture(pts(stream), mode) }
    fn cuStreamEndCapture(stream: u64, graph: Out<'_, u64>) {
        let p = out(graph)?; p.write(0); p.write(sim.stream_end_capture(stream)?); Ok(())
    }
    fn cuStreamEndCapture_ptsz(stream: u64, graph: Out<'_, u64>) {
        let p = out(graph)?; p.write(0); p.write(sim.stream_end_capture(pts(stream))?); Ok(())
    }
    fn cuStreamGetCaptureInfo(stream: u64, status: Out<'_, u32>, id: Out<'_, u64>) {
        capture_info(sim, stream, status, id)
    }
    fn cuStreamGetCaptureInfo_v2(
        stream: u64, status: Out<'_, u32>, id: Out<'_, u64>, graph: Out<'_, u64>, deps: Out<'_, u64>, n: Out<'_, u64>,
    ) {
        clear(graph);
        clear(deps);
        clear(n);
        capture_info(sim, stream, status, id)
    }
    fn cuStreamGetCaptureInfo_v2_ptsz(
        stream: u64, status: Out<'_, u32>, id: Out<'_, u64>, graph: Out<'_, u64>, deps: Out<'_, u64>, n: Out<'_, u64>,
    ) {
        clear(graph);
        clear(deps);
        clear(n);
        capture_info(sim, pts(stream), status, id)
    }
    fn cuStreamGetCaptureInfo_v3(
        stream: u64, status: Out<'_, u32>, id: Out<'_, u64>, graph: Out<'_, u64>, deps: Out<'_, u64>,
        edges: Out<'_, u64>, n: Out<'_, u64>,
    ) {
        clear(graph);
        clear(deps);
        clear(edges);
        clear(n);
        capture_info(sim, stream, status, id)
    }
    fn cuThreadExchangeStreamCaptureMode(mode: Option<&mut u32>) {
        let mode = mode.ok_or(Code::INVALID_VALUE)?;
        *mode = sim.exchange_capture_mode(*mode)?;
        Ok(())
    }
    fn cuGraphDestroy(graph: u64) { sim.graph_destroy(graph) }
    fn cuGraphGetNodes(graph: u64, _nodes: u64, n: Out<'_, u64>) {
        let p = out(n)?; p.write(sim.graph_nodes(graph)?); Ok(())
    }
    fn cuLaunchHostFunc(stream: u64, function: Option<HostFn>, data: u64) { host_func(sim, stream, function, data) }
    fn cuLaunchHostFunc_ptsz(stream: u64, function: Option<HostFn>, data: u64) {
        host_func(sim, pts(stream), function, data)
    }
    fn cuStreamAddCallback(stream: u64, function: Option<Callback>, data: u64, flags: u32) {
        callback(sim, stream, stream, function, data, flags)
    }
    fn cuStreamAddCallback_ptsz(stream: u64, function: Option<Callback>, data: u64, flags: u32) {
        callback(sim, pts(stream), stream, function, data, flags)
    }
}
