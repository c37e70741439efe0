//! `cuMemPool*` and the pools of devices.

use crate::alloc::Want;
use crate::api_ipc::IpcHandle;
use crate::call::{Call, Need, Sim};
use crate::code::{Code, CuResult};
use crate::memory::Backing;
use crate::state::{AllocKind, Bytes, HandleKind, Pool};
use std::collections::BTreeMap;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub const HANDLE_TYPE_FD: u32 = 1;

/// The properties that a pool is made with.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolProps {
    /// The device that the memory is on.
    pub device: i32,
    /// The kinds of handles as which it can be exported.
    pub handle_types: u32,
    /// The maximum number of bytes in use at a time; 0 for no limit.
    pub max_size: u64,
}

/// The parts of the 64 bytes that name an exported pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPointer {
    /// Exporting process.
    pub pid: u32,
    /// Descriptor in that process.
    pub fd: u32,
    /// Size of the allocation.
    pub len: u64,
    /// Exporting simulator and allocation.
    pub key: (u64, u64),
}

impl Sim {
    /// `cuMemPoolCreate`.
    #[track_caller]
    pub fn pool_create(&self, props: PoolProps) -> CuResult<u64> {
        self.call("cuMemPoolCreate", Need::Init, |c| {
            c.unsafe_call()?;
            let device = c.device(props.device)?;
            if props.handle_types & !HANDLE_TYPE_FD != 0 {
                return Err(Code::NOT_SUPPORTED);
            }
            let shared = match props.handle_types {
                0 => None,
                _ => Some(Backing::new(64).map_err(|_| Code::SYSTEM)?),
            };
            Ok(c.new_pool(device, false, props, shared))
        })
    }

    /// `cuMemPoolDestroy`. Its allocations stay until they are freed.
    #[track_caller]
    pub fn pool_destroy(&self, pool: u64) -> CuResult<()> {
        self.release("cuMemPoolDestroy", pool, |c| {
            c.unsafe_call()?;
            let p = c.pool(pool)?;
            if p.default {
                return Err(Code::INVALID_VALUE);
            }
            p.destroyed = true;
            let device = p.device;
            let site = c.site();
            c.st.gone.insert(pool, site);
            let d = c.device_mut(device)?;
            if d.current_pool == Some(pool) {
                d.current_pool = d.default_pool;
            }
            Ok(())
        })
    }

    /// `cuMemPoolTrimTo`.
    #[track_caller]
    pub fn pool_trim(&self, pool: u64, keep: u64) -> CuResult<()> {
        self.call("cuMemPoolTrimTo", Need::Init, |c| {
            c.unsafe_call()?;
            let p = c.pool(pool)?;
            p.reserved = p.reserved.min(p.used.max(keep));
            Ok(())
        })
    }

    /// `cuMemPoolGetAttribute`.
    #[track_caller]
    pub fn pool_attribute(&self, pool: u64, attribute: u32) -> CuResult<u64> {
        self.call("cuMemPoolGetAttribute", Need::Init, |c| {
            c.unsafe_call()?;
            let p = c.pool(pool)?;
            let [a, b, d] = p.reuse.map(u64::from);
            Ok(match attribute {
                1 => a,
                2 => b,
                3 => d,
                4 => p.threshold,
                5 => p.reserved,
                6 => p.reserved_high,
                7 => p.used,
                8 => p.used_high,
                _ => return Err(Code::INVALID_VALUE),
            })
        })
    }

    /// `cuMemPoolSetAttribute`. The high-water marks can only be set to 0.
    #[track_caller]
    pub fn pool_set_attribute(&self, pool: u64, attribute: u32, value: u64) -> CuResult<()> {
        self.call("cuMemPoolSetAttribute", Need::Init, |c| {
            c.unsafe_call()?;
            let p = c.pool(pool)?;
            match (attribute, value) {
                (1..=3, _) => {
                    let at = usize::try_from(attribute - 1).unwrap_or(0);
                    if let Some(flag) = p.reuse.get_mut(at) {
                        *flag = value != 0;
                    }
                }
                (4, _) => p.threshold = value,
                (6, 0) => p.reserved_high = p.reserved,
                (8, 0) => p.used_high = p.used,
                _ => return Err(Code::INVALID_VALUE),
            }
            Ok(())
        })
    }

    /// `cuMemPoolSetAccess` for one device; flags 0 none, 1 read, 3 read and write.
    #[track_caller]
    pub fn pool_set_access(&self, pool: u64, access: &[(i32, u32)]) -> CuResult<()> {
        self.call("cuMemPoolSetAccess", Need::Init, |c| {
            c.unsafe_call()?;
            let own = c.pool(pool)?.device;
            for (device, flags) in access {
                let device = c.device(*device)?;
                let fine = matches!(flags, 0 | 1 | 3) && (device != own || *flags == 3);
                if !fine || (device != own && !c.st.cfg.peers) {
                    return Err(Code::INVALID_VALUE);
                }
                c.pool(pool)?.access.insert(device, *flags);
            }
            Ok(())
        })
    }

    /// `cuMemPoolGetAccess`.
    #[track_caller]
    pub fn pool_access(&self, pool: u64, device: i32) -> CuResult<u32> {
        self.call("cuMemPoolGetAccess", Need::Init, |c| {
            c.unsafe_call()?;
            let device = c.device(device)?;
            let p = c.pool(pool)?;
            let none = if device == p.device { 3 } else { 0 };
            Ok(p.access.get(&device).copied().unwrap_or(none))
        })
    }

    /// `cuDeviceGetDefaultMemPool`.
    #[track_caller]
    pub fn default_pool(&self, device: i32) -> CuResult<u64> {
        self.call("cuDeviceGetDefaultMemPool", Need::Init, |c| {
            let device = c.device(device)?;
            c.ensure_pool(device)
        })
    }

    /// `cuDeviceGetMemPool`.
    #[track_caller]
    pub fn device_pool(&self, device: i32) -> CuResult<u64> {
        self.call("cuDeviceGetMemPool", Need::Init, |c| {
            let device = c.device(device)?;
            c.current_pool(device)
        })
    }

    /// `cuDeviceSetMemPool`.
    #[track_caller]
    pub fn set_device_pool(&self, device: i32, pool: u64) -> CuResult<()> {
        self.call("cuDeviceSetMemPool", Need::Init, |c| {
            let device = c.device(device)?;
            if c.pool(pool)?.device != device {
                return Err(Code::INVALID_DEVICE);
            }
            c.ensure_pool(device)?;
            c.device_mut(device)?.current_pool = Some(pool);
            Ok(())
        })
    }

    /// `cuMemPoolExportToShareableHandle`: a descriptor of this process, which the caller duplicates or passes on.
    #[track_caller]
    pub fn pool_export(&self, pool: u64, handle_type: u32, flags: u64) -> CuResult<u32> {
        self.call("cuMemPoolExportToShareableHandle", Need::Init, |c| {
            c.unsafe_call()?;
            let p = c.pool(pool)?;
            match &p.shared {
                Some(shared) if handle_type == HANDLE_TYPE_FD && flags == 0 && !p.imported => Ok(shared.fd()),
                _ => Err(Code::INVALID_VALUE),
            }
        })
    }

    /// `cuMemPoolImportFromShareableHandle`; the descriptor is one of this process.
    #[track_caller]
    pub fn pool_import(&self, fd: u32, handle_type: u32, flags: u64) -> CuResult<u64> {
        self.call("cuMemPoolImportFromShareableHandle", Need::Init, |c| {
            c.unsafe_call()?;
            let (_, device) = c.here()?;
            if handle_type != HANDLE_TYPE_FD || flags != 0 {
                return Err(Code::INVALID_VALUE);
            }
            let shared = Backing::open(std::process::id(), fd, 64).map_err(|_| Code::INVALID_VALUE)?;
            let pool = c.new_pool(device, false, PoolProps::default(), Some(shared));
            c.pool(pool)?.imported = true;
            Ok(pool)
        })
    }

    /// `cuMemPoolExportPointer`.
    #[track_caller]
    pub fn pool_export_pointer(&self, address: u64) -> CuResult<PoolPointer> {
        let instance = self.inner.instance;
        self.call("cuMemPoolExportPointer", Need::Init, |c| {
            c.unsafe_call()?;
            let (base, alloc) = c.st.live(address).ok_or(Code::INVALID_VALUE)?;
            let exportable = alloc.pool.and_then(|p| c.st.pools.get(&p)).is_some_and(|p| p.shared.is_some());
            match &alloc.bytes {
                Bytes::Backing(b) if exportable && base == address => {
                    Ok(PoolPointer { pid: std::process::id(), fd: b.fd(), len: alloc.len, key: (instance, base) })
                }
                _ => Err(Code::INVALID_VALUE),
            }
        })
    }

    /// `cuMemPoolImportPointer`.
    #[track_caller]
    pub fn pool_import_pointer(&self, pool: u64, pointer: PoolPointer) -> CuResult<u64> {
        self.call("cuMemPoolImportPointer", Need::Init, |c| {
            c.unsafe_call()?;
            let (ctx, _) = c.here()?;
            let p = c.pool(pool)?;
            let device = p.device;
            if !p.imported {
                return Err(Code::INVALID_VALUE);
            }
            let bytes = Backing::open(pointer.pid, pointer.fd, pointer.len).map_err(|_| Code::INVALID_VALUE)?;
            let space = c.st.device_space.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
            let base = space.take(pointer.len).ok_or(Code::OUT_OF_MEMORY)?;
            let want = Want { kind: AllocKind::Device, len: pointer.len, device, ctx, flags: 0, pool: Some(pool) };
            c.insert(base, want, Bytes::Backing(bytes));
            if let Some(a) = c.st.allocs.get_mut(&base) {
                a.written.add(0, pointer.len);
                let PoolPointer { pid, fd, len, key: (instance, object) } = pointer;
                a.imported_by = Some(IpcHandle { pid, fd, instance, object, len, magic: 0 });
            }
            Ok(base)
        })
    }
}

impl Call<'_> {
    fn new_pool(&mut self, device: u32, default: bool, props: PoolProps, shared: Option<Backing>) -> u64 {
        let handle = self.st.handle(HandleKind::Pool);
        let origin = self.site();
        let pool = Pool {
            device,
            default,
            imported: false,
            handle_types: props.handle_types,
            max_size: props.max_size,
            destroyed: false,
            used: 0,
            used_high: 0,
            reserved: 0,
            reserved_high: 0,
            threshold: 0,
            reuse: [true; 3],
            access: BTreeMap::new(),
            shared,
            origin,
            excused: false,
        };
        self.st.pools.insert(handle, pool);
        handle
    }

    pub(crate) fn pool(&mut self, handle: u64) -> CuResult<&mut Pool> {
        if self.st.pools.get(&handle).is_none_or(|p| p.destroyed) {
            return Err(self.bad_handle(HandleKind::Pool, handle, Code::INVALID_VALUE));
        }
        self.st.pools.get_mut(&handle).ok_or(Code::INVALID_VALUE)
    }

    fn ensure_pool(&mut self, device: u32) -> CuResult<u64> {
        if let Some(pool) = self.device_mut(device)?.default_pool {
            return Ok(pool);
        }
        let pool = self.new_pool(device, true, PoolProps::default(), None);
        self.device_mut(device)?.default_pool = Some(pool);
        Ok(pool)
    }

    pub(crate) fn current_pool(&mut self, device: u32) -> CuResult<u64> {
        let default = self.ensure_pool(device)?;
        Ok(self.device_mut(device)?.current_pool.unwrap_or(default))
    }
}
