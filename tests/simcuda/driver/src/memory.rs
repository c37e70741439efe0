//! Memory: allocation, registration, pointers, sharing.

#![allow(non_snake_case, reason = "the names of the CUDA driver API")]

use crate::glue::{Opaque64, Out, addr, array, entry_points, get_number, out, put_attribute};
use crate::stream::pts;
use simcuda::{Code, IpcHandle};
use std::ptr::NonNull;

entry_points! { TABLE, sim;
    fn cuMemAlloc_v2(address: Out<'_, u64>, n: u64) { let p = out(address)?; p.write(sim.mem_alloc(n)?); Ok(()) }
    fn cuMemFree_v2(address: u64) { sim.mem_free(address) }
    fn cuMemAllocManaged(address: Out<'_, u64>, n: u64, flags: u32) {
        let p = out(address)?; p.write(sim.mem_alloc_managed(n, flags)?); Ok(())
    }
    fn cuMemAllocHost_v2(address: Out<'_, u64>, n: u64) {
        let p = out(address)?; p.write(sim.mem_alloc_host(n)?); Ok(())
    }
    fn cuMemHostAlloc(address: Out<'_, u64>, n: u64, flags: u32) {
        let p = out(address)?; p.write(sim.mem_host_alloc(n, flags)?); Ok(())
    }
    fn cuMemFreeHost(address: u64) { sim.mem_free_host(address) }
    fn cuMemHostRegister_v2(address: u64, n: u64, flags: u32) { sim.mem_host_register(addr(address), n, flags) }
    fn cuMemHostUnregister(address: u64) { sim.mem_host_unregister(address) }
    fn cuMemHostGetDevicePointer_v2(device: Out<'_, u64>, address: u64, flags: u32) {
        let p = out(device)?; p.write(sim.mem_host_device_pointer(address, flags)?); Ok(())
    }
    fn cuMemHostGetFlags(flags: Out<'_, u32>, address: u64) {
        let p = out(flags)?; p.write(sim.mem_host_flags(address)?); Ok(())
    }
    fn cuMemGetAddressRange_v2(base: Out<'_, u64>, size: Out<'_, u64>, address: u64) {
        let (start, n) = sim.mem_address_range(address)?;
        if let Some(p) = base { p.write(start); }
        if let Some(p) = size { p.write(n); }
        Ok(())
    }
    fn cuMemAllocAsync(address: Out<'_, u64>, n: u64, stream: u64) {
        let p = out(address)?; p.write(sim.mem_alloc_async(n, stream)?); Ok(())
    }
    fn cuMemAllocAsync_ptsz(address: Out<'_, u64>, n: u64, stream: u64) {
        let p = out(address)?; p.write(sim.mem_alloc_async(n, pts(stream))?); Ok(())
    }
    fn cuMemFreeAsync(address: u64, stream: u64) { sim.mem_free_async(address, stream) }
    fn cuMemFreeAsync_ptsz(address: u64, stream: u64) { sim.mem_free_async(address, pts(stream)) }
    fn cuPointerGetAttribute(data: Option<NonNull<u8>>, attribute: u32, address: u64) {
        let to = data.ok_or(Code::INVALID_VALUE)?;
        put_attribute(to, sim.pointer_attribute(attribute, address)?);
        Ok(())
    }
    fn cuPointerGetAttributes(n: u32, attributes: *const u32, data: *const Option<NonNull<u8>>, address: u64) {
        let n = usize::try_from(n).map_err(|_| Code::INVALID_VALUE)?;
        let (attributes, places) = (array(attributes, n), array(data, n));
        if attributes.len() != n || places.len() != n || n == 0 { return Err(Code::INVALID_VALUE) }
        for (place, value) in places.iter().zip(sim.pointer_attributes(attributes, address)?) {
            put_attribute(place.ok_or(Code::INVALID_VALUE)?, value);
        }
        Ok(())
    }
    fn cuPointerSetAttribute(value: Option<NonNull<u8>>, attribute: u32, address: u64) {
        let value = get_number(value, false)?;
        sim.pointer_set_attribute(attribute, u32::try_from(value).unwrap_or(1), address)
    }
    fn cuIpcGetMemHandle(handle: Out<'_, Opaque64>, address: u64) {
        let p = out(handle)?; p.write(Opaque64(sim.ipc_mem_handle(address)?.to_bytes())); Ok(())
    }
    fn cuIpcOpenMemHandle_v2(address: Out<'_, u64>, handle: Opaque64, flags: u32) {
        let p = out(address)?; p.write(sim.ipc_open_mem(IpcHandle::from_bytes(&handle.0), flags)?); Ok(())
    }
    fn cuIpcCloseMemHandle(address: u64) { sim.ipc_close_mem(address) }
}
