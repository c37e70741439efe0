//! Allocation, registration and freeing of memory, except pools. Freeing needs no current context: in its own tests,
//! Numba 0.60 frees on threads that have none.

use crate::alloc::Want;
use crate::call::{Call, Need, Sim};
use crate::code::{Code, CuResult};
use crate::memory::Addr;
use crate::race::Touch;
use crate::state::{AccessKind, AllocKind};

/// `CU_MEM_ATTACH_GLOBAL`.
pub const MEM_ATTACH_GLOBAL: u32 = 1;

/// Every kind of memory that `cuMemFree` accepts.
const DEVICE_KINDS: &[AllocKind] = &[AllocKind::Device, AllocKind::Managed];

impl Sim {
    /// `cuMemAlloc_v2`.
    #[track_caller]
    pub fn mem_alloc(&self, n: u64) -> CuResult<u64> {
        self.call("cuMemAlloc_v2", Need::Init, |c| c.allocate(AllocKind::Device, n, 0))
    }

    /// `cuMemFree_v2`. With the strict rule, freeing while queued work uses the memory is a race; see
    /// [`Config::free_waits`](crate::Config).
    #[track_caller]
    pub fn mem_free(&self, address: u64) -> CuResult<()> {
        self.release("cuMemFree_v2", address, |c| {
            c.unsafe_call()?;
            if address == 0 {
                return Ok(());
            }
            let base = c.freeable(address, DEVICE_KINDS)?;
            c.free_now(base);
            Ok(())
        })
    }

    /// `cuMemAllocManaged`.
    #[track_caller]
    pub fn mem_alloc_managed(&self, n: u64, flags: u32) -> CuResult<u64> {
        self.call("cuMemAllocManaged", Need::Init, |c| {
            if !(MEM_ATTACH_GLOBAL..=2).contains(&flags) {
                return Err(Code::INVALID_VALUE);
            }
            c.allocate(AllocKind::Managed, n, flags)
        })
    }

    /// `cuMemAllocHost_v2`.
    #[track_caller]
    pub fn mem_alloc_host(&self, n: u64) -> CuResult<u64> {
        self.call("cuMemAllocHost_v2", Need::Init, |c| c.allocate(AllocKind::Pinned, n, 0))
    }

    /// `cuMemHostAlloc`.
    #[track_caller]
    pub fn mem_host_alloc(&self, n: u64, flags: u32) -> CuResult<u64> {
        self.call("cuMemHostAlloc", Need::Init, |c| {
            if flags > 7 {
                return Err(Code::INVALID_VALUE);
            }
            c.allocate(AllocKind::Pinned, n, flags)
        })
    }

    /// `cuMemFreeHost`; NULL is not an error, as for `free`.
    #[track_caller]
    pub fn mem_free_host(&self, address: u64) -> CuResult<()> {
        self.release("cuMemFreeHost", address, |c| {
            c.unsafe_call()?;
            if address == 0 {
                return Ok(());
            }
            let base = c.freeable(address, &[AllocKind::Pinned])?;
            c.free_now(base);
            Ok(())
        })
    }

    /// `cuMemHostRegister_v2`.
    #[track_caller]
    pub fn mem_host_register(&self, at: Addr, n: u64, flags: u32) -> CuResult<()> {
        self.call("cuMemHostRegister_v2", Need::Init, |c| {
            let (ctx, device) = c.here()?;
            let end = at.raw().checked_add(n).ok_or(Code::INVALID_VALUE)?;
            let host = at.host().filter(|_| n > 0 && flags <= 15).ok_or(Code::INVALID_VALUE)?;
            let taken =
                c.st.around(at.raw()).is_some() || c.st.allocs.range(at.raw()..end).any(|(_, a)| a.freed.is_none());
            if taken {
                return Err(Code::HOST_ALREADY_REGISTERED);
            }
            if c.st.ours(at.raw()) {
                return Err(Code::INVALID_VALUE);
            }
            c.adopt(host, Want { kind: AllocKind::Registered, len: n, device, ctx, flags, pool: None });
            Ok(())
        })
    }

    /// `cuMemHostUnregister`. Memory that the driver itself allocated is an invalid argument, like NULL; other memory
    /// is reported as not registered.
    #[track_caller]
    pub fn mem_host_unregister(&self, address: u64) -> CuResult<()> {
        self.release("cuMemHostUnregister", address, |c| {
            c.unsafe_call()?;
            match c.st.live(address).map(|(base, a)| (base, a.kind)) {
                Some((base, AllocKind::Registered)) if base == address => {}
                None if address != 0 => return Err(Code::HOST_NOT_REGISTERED),
                Some((_, AllocKind::Registered)) => return Err(Code::HOST_NOT_REGISTERED),
                _ => return Err(Code::INVALID_VALUE),
            }
            c.free_now(address);
            // The address belongs to the client, which may use it again.
            c.st.allocs.remove(&address);
            Ok(())
        })
    }

    /// `cuMemHostGetDevicePointer_v2`: the same address, because addresses are unified.
    #[track_caller]
    pub fn mem_host_device_pointer(&self, address: u64, flags: u32) -> CuResult<u64> {
        self.call("cuMemHostGetDevicePointer_v2", Need::Init, |c| {
            let known = c.st.live(address).is_some_and(|(_, a)| host_kind(a.kind));
            if flags != 0 || !known { Err(Code::INVALID_VALUE) } else { Ok(address) }
        })
    }

    /// `cuMemHostGetFlags`. Pinned memory is always mapped.
    #[track_caller]
    pub fn mem_host_flags(&self, address: u64) -> CuResult<u32> {
        self.call("cuMemHostGetFlags", Need::Init, |c| match c.st.live(address) {
            Some((_, a)) if host_kind(a.kind) => Ok(a.flags | 2),
            _ => Err(Code::INVALID_VALUE),
        })
    }

    /// `cuMemGetAddressRange_v2`: start and size.
    #[track_caller]
    pub fn mem_address_range(&self, address: u64) -> CuResult<(u64, u64)> {
        self.call("cuMemGetAddressRange_v2", Need::Init, |c| {
            c.current()?;
            c.st.live(address).map(|(base, a)| (base, a.len)).ok_or(Code::NOT_FOUND)
        })
    }

    /// `cuMemAllocAsync`: from the current pool of the stream's device.
    #[track_caller]
    pub fn mem_alloc_async(&self, n: u64, stream: u64) -> CuResult<u64> {
        self.call("cuMemAllocAsync", Need::Init, |c| {
            let stream = c.stream(stream)?;
            let device = c.device_of_stream(stream)?;
            let pool = c.current_pool(device)?;
            c.allocate_on(stream, n, pool)
        })
    }

    /// `cuMemAllocFromPoolAsync`.
    #[track_caller]
    pub fn mem_alloc_from_pool(&self, n: u64, pool: u64, stream: u64) -> CuResult<u64> {
        self.call("cuMemAllocFromPoolAsync", Need::Init, |c| {
            let stream = c.stream(stream)?;
            if c.pool(pool)?.imported {
                return Err(Code::INVALID_VALUE);
            }
            c.allocate_on(stream, n, pool)
        })
    }

    /// `cuMemFreeAsync`: the memory is gone for every later call, and for work ordered after this point.
    #[track_caller]
    pub fn mem_free_async(&self, address: u64, stream: u64) -> CuResult<()> {
        self.release("cuMemFreeAsync", address, |c| {
            let stream = c.stream(stream)?;
            let base = c.freeable(address, &[AllocKind::Device])?;
            let (len, of_graph) = c.st.allocs.get(&base).map_or((0, false), |a| (a.len, a.of_graph));
            if !of_graph {
                c.no_free_in_capture(stream)?;
            }
            let touch = Touch::whole(base, len, AccessKind::Free);
            let (_, seq) = c.submit(stream, crate::state::Work::Free(base), &[touch], Vec::new())?;
            let site = c.site();
            c.mark_freed(base, site);
            if seq == 0 {
                // Captured: no later point of this process frees it.
                c.st.release_bytes(base);
            }
            Ok(())
        })
    }
}

fn host_kind(kind: AllocKind) -> bool {
    matches!(kind, AllocKind::Pinned | AllocKind::Registered)
}

impl Call<'_> {
    fn allocate(&mut self, kind: AllocKind, n: u64, flags: u32) -> CuResult<u64> {
        let (ctx, device) = self.here()?;
        self.unsafe_call()?;
        if n == 0 && kind != AllocKind::Pinned {
            return Err(Code::INVALID_VALUE);
        }
        let base = self.make(Want { kind, len: n, device, ctx, flags, pool: None })?;
        self.host_touch(Touch::whole(base, n, AccessKind::Alloc));
        Ok(base)
    }

    fn allocate_on(&mut self, stream: u64, n: u64, pool: u64) -> CuResult<u64> {
        let ctx = self.st.streams.get(&stream).map(|s| s.ctx).ok_or(Code::INVALID_HANDLE)?;
        let device = self.pool(pool)?.device;
        if n == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let base = self.make(Want { kind: AllocKind::Device, len: n, device, ctx, flags: 0, pool: Some(pool) })?;
        let touch = Touch::whole(base, n, AccessKind::Alloc);
        let (_, seq) = self.submit(stream, crate::state::Work::Nothing, &[touch], Vec::new())?;
        if let Some(a) = self.st.allocs.get_mut(&base) {
            a.of_graph = seq == 0;
        }
        Ok(base)
    }

    pub(crate) fn device_of_stream(&mut self, stream: u64) -> CuResult<u32> {
        let ctx = self.st.streams.get(&stream).map(|s| s.ctx).ok_or(Code::INVALID_HANDLE)?;
        self.context(ctx).map(|c| c.device)
    }
}
