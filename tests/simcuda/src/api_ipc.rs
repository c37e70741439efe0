//! Sharing memory and events with other processes, through `/proc`.

use crate::alloc::Want;
use crate::call::{Need, Sim};
use crate::code::{Code, CuResult};
use crate::memory::{Backing, Shared};
use crate::state::{AllocKind, Bytes};
use std::sync::Arc;

/// The parts of an IPC handle of memory or of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpcHandle {
    /// Exporting process.
    pub pid: u32,
    /// Descriptor in that process.
    pub fd: u32,
    /// Exporting simulator.
    pub instance: u64,
    /// The object: an address or an event.
    pub object: u64,
    /// Size of the memory; 0 for events.
    pub len: u64,
    /// `MEM` or `EVENT`, so that one is not opened as the other.
    pub magic: u32,
}

const MEM: u32 = 0x534d_4d31;
const EVENT: u32 = 0x534d_4531;

impl IpcHandle {
    /// The handle as the 64 bytes that travel.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 64] {
        let mut out = [0; 64];
        let fields = [
            u64::from(self.magic) | u64::from(self.pid) << 32,
            u64::from(self.fd),
            self.instance,
            self.object,
            self.len,
        ];
        for (slot, field) in out.chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_ne_bytes());
        }
        out
    }

    /// The handle in 64 bytes, which can be anything at all.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 64]) -> Self {
        let mut fields = [0u64; 5];
        for (field, chunk) in fields.iter_mut().zip(bytes.chunks_exact(8)) {
            *field = chunk.try_into().map_or(0, u64::from_ne_bytes);
        }
        let [first, fd, instance, object, len] = fields;
        let low = |v: u64| u32::try_from(v & 0xffff_ffff).unwrap_or(0);
        Self { magic: low(first), pid: low(first >> 32), fd: low(fd), instance, object, len }
    }
}

impl Sim {
    fn is_mine(&self, handle: IpcHandle) -> bool {
        handle.pid == std::process::id() && handle.instance == self.inner.instance
    }

    /// `cuIpcGetMemHandle`: of the allocation that the address lies in.
    #[track_caller]
    pub fn ipc_mem_handle(&self, address: u64) -> CuResult<IpcHandle> {
        let instance = self.inner.instance;
        let handle = self.call("cuIpcGetMemHandle", Need::Init, |c| {
            c.unsafe_call()?;
            let (base, a) = c.st.live(address).ok_or(Code::INVALID_VALUE)?;
            match &a.bytes {
                Bytes::Backing(b) if a.kind == AllocKind::Device && a.pool.is_none() => Ok(IpcHandle {
                    pid: std::process::id(),
                    fd: b.fd(),
                    instance,
                    object: base,
                    len: a.len,
                    magic: MEM,
                }),
                _ => Err(Code::INVALID_VALUE),
            }
        })?;
        // From now on another process can see work that is still queued.
        self.start_pump();
        Ok(handle)
    }

    /// `cuIpcOpenMemHandle_v2`. Opening again gives the same address, to be closed as often.
    #[track_caller]
    pub fn ipc_open_mem(&self, handle: IpcHandle, flags: u32) -> CuResult<u64> {
        let mine = self.is_mine(handle);
        self.call("cuIpcOpenMemHandle_v2", Need::Init, |c| {
            let (ctx, device) = c.here()?;
            c.unsafe_call()?;
            if handle.magic != MEM || handle.len == 0 || flags > 1 {
                return Err(Code::INVALID_VALUE);
            }
            if mine {
                return Err(Code::INVALID_CONTEXT);
            }
            let known = c.st.allocs.iter_mut().find(|(_, a)| a.freed.is_none() && a.imported_by == Some(handle));
            if let Some((base, a)) = known {
                a.opened += 1;
                return Ok(*base);
            }
            let bytes = Backing::open(handle.pid, handle.fd, handle.len).map_err(|_| Code::INVALID_VALUE)?;
            let space = c.st.device_space.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
            let base = space.take(handle.len).ok_or(Code::OUT_OF_MEMORY)?;
            let want = Want { kind: AllocKind::Imported, len: handle.len, device, ctx, flags, pool: None };
            c.insert(base, want, Bytes::Backing(bytes));
            if let Some(a) = c.st.allocs.get_mut(&base) {
                a.opened = 1;
                a.imported_by = Some(handle);
            }
            Ok(base)
        })
    }

    /// `cuIpcCloseMemHandle`. Like any free, it must come after the work that uses the memory.
    #[track_caller]
    pub fn ipc_close_mem(&self, address: u64) -> CuResult<()> {
        self.release("cuIpcCloseMemHandle", address, |c| {
            c.unsafe_call()?;
            let base = c.freeable(address, &[AllocKind::Imported])?;
            if let Some(a) = c.st.allocs.get_mut(&base)
                && a.opened > 1
            {
                a.opened -= 1;
                return Ok(());
            }
            c.free_now(base);
            Ok(())
        })
    }

    /// `cuIpcGetEventHandle`: of an event made with `CU_EVENT_INTERPROCESS`.
    #[track_caller]
    pub fn ipc_event_handle(&self, event: u64) -> CuResult<IpcHandle> {
        let instance = self.inner.instance;
        let handle = self.call("cuIpcGetEventHandle", Need::Init, |c| {
            c.unsafe_call()?;
            let e = c.event(event)?;
            match &e.shared {
                Some(shared) if !e.imported => Ok(IpcHandle {
                    pid: std::process::id(),
                    fd: shared.fd(),
                    instance,
                    object: event,
                    len: 0,
                    magic: EVENT,
                }),
                _ => Err(Code::INVALID_HANDLE),
            }
        })?;
        self.start_pump();
        Ok(handle)
    }

    /// `cuIpcOpenEventHandle`.
    #[track_caller]
    pub fn ipc_open_event(&self, handle: IpcHandle) -> CuResult<u64> {
        let mine = self.is_mine(handle);
        self.call("cuIpcOpenEventHandle", Need::Init, |c| {
            let ctx = c.current()?;
            c.unsafe_call()?;
            if handle.magic != EVENT {
                return Err(Code::INVALID_VALUE);
            }
            if mine {
                return Err(Code::INVALID_CONTEXT);
            }
            let shared = Shared::open(handle.pid, handle.fd).map_err(|_| Code::INVALID_VALUE)?;
            let flags = crate::EVENT_DISABLE_TIMING | crate::EVENT_INTERPROCESS;
            Ok(c.new_event(ctx, flags, Some(Arc::new(shared)), true))
        })
    }
}
