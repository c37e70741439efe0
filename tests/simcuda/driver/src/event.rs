//! Events, and their sharing between processes.

#![allow(non_snake_case, reason = "the names of the CUDA driver API")]

use crate::glue::{Opaque64, Out, entry_points, out};
use crate::stream::pts;
use simcuda::IpcHandle;

entry_points! { TABLE, sim;
    fn cuEventCreate(event: Out<'_, u64>, flags: u32) {
        let p = out(event)?; p.write(sim.event_create(flags)?); Ok(())
    }
    fn cuEventDestroy_v2(event: u64) { sim.event_destroy(event) }
    fn cuEventRecord(event: u64, stream: u64) { sim.event_record(event, stream) }
    fn cuEventRecord_ptsz(event: u64, stream: u64) { sim.event_record(event, pts(stream)) }
    fn cuEventRecordWithFlags(event: u64, stream: u64, flags: u32) {
        sim.event_record_with_flags(event, stream, flags)
    }
    fn cuEventRecordWithFlags_ptsz(event: u64, stream: u64, flags: u32) {
        sim.event_record_with_flags(event, pts(stream), flags)
    }
    fn cuEventQuery(event: u64) { sim.event_query(event) }
    fn cuEventSynchronize(event: u64) { sim.event_synchronize(event) }
    fn cuEventElapsedTime(ms: Out<'_, f32>, start: u64, end: u64) {
        let p = out(ms)?; p.write(sim.event_elapsed(start, end)?); Ok(())
    }
    fn cuEventElapsedTime_v2(ms: Out<'_, f32>, start: u64, end: u64) {
        let p = out(ms)?; p.write(sim.event_elapsed(start, end)?); Ok(())
    }
    fn cuIpcGetEventHandle(handle: Out<'_, Opaque64>, event: u64) {
        let p = out(handle)?; p.write(Opaque64(sim.ipc_event_handle(event)?.to_bytes())); Ok(())
    }
    fn cuIpcOpenEventHandle(event: Out<'_, u64>, handle: Opaque64) {
        let p = out(event)?; p.write(sim.ipc_open_event(IpcHandle::from_bytes(&handle.0))?); Ok(())
    }
}
