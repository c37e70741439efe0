//! Initialisation, errors, devices.

#![allow(non_snake_case, reason = "the names of the CUDA driver API")]

use crate::glue::{Out, entry_points, out, put_text};
use simcuda::Code;
use std::ffi::c_char;

entry_points! { TABLE, sim;
    fn cuInit(flags: u32) { sim.init(flags) }
    fn cuDriverGetVersion(version: Out<'_, i32>) { let p = out(version)?; p.write(sim.driver_version()?); Ok(()) }
    fn cuGetErrorName(code: u32, name: Out<'_, *const c_char>) {
        let _ = sim;
        let p = out(name)?;
        let known = Code(code).c_name();
        p.write(known.map_or(std::ptr::null(), |n| n.as_ptr().cast()));
        known.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }
    fn cuGetErrorString(code: u32, text: Out<'_, *const c_char>) {
        let _ = sim;
        let p = out(text)?;
        let known = Code(code).c_text();
        p.write(known.map_or(std::ptr::null(), |n| n.as_ptr().cast()));
        known.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }
    fn cuDeviceGetCount(count: Out<'_, i32>) { let p = out(count)?; p.write(sim.device_count()?); Ok(()) }
    fn cuDeviceGet(device: Out<'_, i32>, ordinal: i32) {
        let p = out(device)?; p.write(sim.device_get(ordinal)?); Ok(())
    }
    fn cuDeviceGetName(name: *mut c_char, len: i32, device: i32) {
        let len = usize::try_from(len).map_err(|_| Code::INVALID_VALUE)?;
        if name.is_null() { return Err(Code::INVALID_VALUE) }
        put_text(&sim.device_name(device)?, name, len);
        Ok(())
    }
    fn cuDeviceGetUuid(uuid: Out<'_, [u8; 16]>, device: i32) {
        let p = out(uuid)?; p.write(sim.device_uuid(device)?); Ok(())
    }
    fn cuDeviceGetUuid_v2(uuid: Out<'_, [u8; 16]>, device: i32) {
        let p = out(uuid)?; p.write(sim.device_uuid(device)?); Ok(())
    }
    fn cuDeviceTotalMem_v2(bytes: Out<'_, u64>, device: i32) {
        let p = out(bytes)?; p.write(sim.device_total_mem(device)?); Ok(())
    }
    fn cuDeviceGetAttribute(value: Out<'_, i32>, attribute: i32, device: i32) {
        let p = out(value)?; p.write(sim.device_attribute(attribute, device)?); Ok(())
    }
    fn cuDeviceCanAccessPeer(can: Out<'_, i32>, device: i32, peer: i32) {
        let p = out(can)?; p.write(i32::from(sim.device_can_access_peer(device, peer)?)); Ok(())
    }
    fn cuMemGetInfo_v2(free: Out<'_, u64>, total: Out<'_, u64>) {
        let (f, t) = (out(free)?, out(total)?);
        let (free, total) = sim.mem_get_info()?;
        f.write(free);
        t.write(total);
        Ok(())
    }
    fn cuProfilerStart() { let _ = sim; Ok(()) }
    fn cuProfilerStop() { let _ = sim; Ok(()) }
}
