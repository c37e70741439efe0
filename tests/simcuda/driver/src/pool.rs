//! Memory pools.

#![allow(non_snake_case, reason = "the names of the CUDA driver API")]

use crate::glue::{Opaque64, Out, array, entry_points, get_number, out, put_attribute};
use crate::stream::pts;
use simcuda::{Attribute, Code, IpcHandle, PoolPointer, PoolProps};
use std::ptr::NonNull;

/// `CUmemLocation`: a kind (1 for a device) and a number.
#[derive(Clone, Copy)]
#[repr(C)]
struct Location {
    kind: u32,
    id: i32,
}

/// `CUmemPoolProps`; what follows `max_size` is reserved.
#[derive(Clone, Copy)]
#[repr(C)]
struct Props {
    alloc_type: u32,
    handle_types: u32,
    location: Location,
    security: u64,
    max_size: u64,
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
struct AccessDesc {
    location: Location,
    flags: u32,
}

const DEVICE: u32 = 1;
const PINNED: u32 = 1;

/// Attributes 1 to 3 are `int`, the others 64 bits wide.
fn is_wide(attribute: u32) -> bool {
    attribute > 3
}

/// A duplicate descriptor for the caller to keep and close.
fn duplicate(fd: u32) -> Option<i32> {
    let fd = i32::try_from(fd).ok()?;
    // SAFETY: duplicating a descriptor touches no memory.
    let copy = unsafe { libc::dup(fd) };
    (copy >= 0).then_some(copy)
}

entry_points! { TABLE, sim;
    fn cuMemPoolCreate(pool: Out<'_, u64>, props: Option<&Props>) {
        let (p, props) = (out(pool)?, props.ok_or(Code::INVALID_VALUE)?);
        if props.alloc_type != PINNED || props.location.kind != DEVICE { return Err(Code::INVALID_VALUE) }
        let props = PoolProps {
            device: props.location.id,
            handle_types: props.handle_types,
            max_size: props.max_size,
        };
        p.write(sim.pool_create(props)?);
        Ok(())
    }
    fn cuMemPoolDestroy(pool: u64) { sim.pool_destroy(pool) }
    fn cuMemPoolTrimTo(pool: u64, keep: u64) { sim.pool_trim(pool, keep) }
    fn cuMemPoolGetAttribute(pool: u64, attribute: u32, value: Option<NonNull<u8>>) {
        let to = value.ok_or(Code::INVALID_VALUE)?;
        let value = sim.pool_attribute(pool, attribute)?;
        let narrow = Attribute::Unsigned(u32::try_from(value).unwrap_or(1));
        put_attribute(to, if is_wide(attribute) { Attribute::Wide(value) } else { narrow });
        Ok(())
    }
    fn cuMemPoolSetAttribute(pool: u64, attribute: u32, value: Option<NonNull<u8>>) {
        sim.pool_set_attribute(pool, attribute, get_number(value, is_wide(attribute))?)
    }
    fn cuMemPoolSetAccess(pool: u64, map: *const AccessDesc, n: u64) {
        let map = array(map, usize::try_from(n).map_err(|_| Code::INVALID_VALUE)?);
        if map.iter().any(|d| d.location.kind != DEVICE) { return Err(Code::INVALID_VALUE) }
        let access: Vec<(i32, u32)> = map.iter().map(|d| (d.location.id, d.flags)).collect();
        sim.pool_set_access(pool, &access)
    }
    fn cuMemPoolGetAccess(flags: Out<'_, u32>, pool: u64, location: Option<&Location>) {
        let (p, location) = (out(flags)?, location.ok_or(Code::INVALID_VALUE)?);
        if location.kind != DEVICE { return Err(Code::INVALID_VALUE) }
        p.write(sim.pool_access(pool, location.id)?);
        Ok(())
    }
    fn cuMemAllocFromPoolAsync(address: Out<'_, u64>, n: u64, pool: u64, stream: u64) {
        let p = out(address)?; p.write(sim.mem_alloc_from_pool(n, pool, stream)?); Ok(())
    }
    fn cuMemAllocFromPoolAsync_ptsz(address: Out<'_, u64>, n: u64, pool: u64, stream: u64) {
        let p = out(address)?; p.write(sim.mem_alloc_from_pool(n, pool, pts(stream))?); Ok(())
    }
    fn cuDeviceGetDefaultMemPool(pool: Out<'_, u64>, device: i32) {
        let p = out(pool)?; p.write(sim.default_pool(device)?); Ok(())
    }
    fn cuDeviceGetMemPool(pool: Out<'_, u64>, device: i32) {
        let p = out(pool)?; p.write(sim.device_pool(device)?); Ok(())
    }
    fn cuDeviceSetMemPool(device: i32, pool: u64) { sim.set_device_pool(device, pool) }
    fn cuMemPoolExportToShareableHandle(handle: Out<'_, i32>, pool: u64, kind: u32, flags: u64) {
        let p = out(handle)?;
        p.write(duplicate(sim.pool_export(pool, kind, flags)?).ok_or(Code::SYSTEM)?);
        Ok(())
    }
    fn cuMemPoolImportFromShareableHandle(pool: Out<'_, u64>, handle: u64, kind: u32, flags: u64) {
        let p = out(pool)?;
        let fd = u32::try_from(handle & 0xffff_ffff).map_err(|_| Code::INVALID_VALUE)?;
        p.write(sim.pool_import(fd, kind, flags)?);
        Ok(())
    }
    fn cuMemPoolExportPointer(data: Out<'_, Opaque64>, address: u64) {
        let p = out(data)?;
        let e = sim.pool_export_pointer(address)?;
        let h = IpcHandle { pid: e.pid, fd: e.fd, instance: e.key.0, object: e.key.1, len: e.len, magic: 0 };
        p.write(Opaque64(h.to_bytes()));
        Ok(())
    }
    fn cuMemPoolImportPointer(address: Out<'_, u64>, pool: u64, data: Option<&Opaque64>) {
        let p = out(address)?;
        let h = IpcHandle::from_bytes(&data.ok_or(Code::INVALID_VALUE)?.0);
        let pointer = PoolPointer { pid: h.pid, fd: h.fd, len: h.len, key: (h.instance, h.object) };
        p.write(sim.pool_import_pointer(pool, pointer)?);
        Ok(())
    }
}
