//! Managers that ask the driver for each allocation.

use core::ffi::c_void;

use super::books::{Books, Statistics};
use super::{Allocated, HostFlags, Manager, MemoryInfo, Request, allocated, driver_info, no_such_kind, pinned};
use crate::device::{Device, DeviceType};
use crate::error::{Result, refuse};
use crate::memory::Owner;
use crate::runtime::cuda::require_device;
use crate::transfer;

/// A manager that calls the driver for each allocation and each free. If there is no memory, it gives back everything
/// that waits for that, and tries once more.
#[derive(Debug)]
pub struct Driver {
    name: &'static str,
    kinds: &'static [DeviceType],
    /// The kind of memory that is given for device memory.
    device_kind: DeviceType,
    books: Books,
}

const ALL: &[DeviceType] = &[DeviceType::CUDA, DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED, DeviceType::CPU];

impl Driver {
    /// Provides every kind of memory. With a stream, device memory comes from the device's default pool.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn new() -> Result<Self> {
        Ok(Self { name: "driver", kinds: ALL, device_kind: DeviceType::CUDA, books: Books::new()? })
    }

    /// Provides managed memory for every request for device memory: it can be more than the device has, and the host can read
    /// it.
    ///
    /// # Errors
    /// Same as [`Driver::new`].
    pub fn managed() -> Result<Self> {
        Ok(Self { name: "managed", device_kind: DeviceType::CUDA_MANAGED, ..Self::new()? })
    }

    /// Provides plain and pinned host memory only, for programs whose device memory is managed elsewhere, or that have no
    /// device.
    ///
    /// # Errors
    /// Same as [`Driver::new`].
    pub fn host_only() -> Result<Self> {
        Ok(Self { name: "host-only", kinds: &[DeviceType::CUDA_HOST, DeviceType::CPU], ..Self::new()? })
    }

    fn has_devices(&self) -> bool {
        self.kinds.contains(&DeviceType::CUDA)
    }
}

// SAFETY: the memory is new, from the driver or the allocator, and its owner frees it.
unsafe impl Manager for Driver {
    fn initialize(&self, ordinal: i32) -> Result<()> {
        if self.has_devices() { require_device(ordinal) } else { Ok(()) }
    }

    fn allocate(&self, request: &Request) -> Result<Allocated> {
        let Request { kind, ordinal, bytes, stream, host } = *request;
        if !self.kinds.contains(&kind) {
            return no_such_kind(self.name, kind);
        }
        self.books.enter(ordinal, bytes, || {
            if kind == DeviceType::CUDA_HOST {
                return self.books.insist(|| pinned(ordinal, bytes, host));
            }
            let kind = if kind == DeviceType::CUDA { self.device_kind } else { kind };
            // Managed memory is made for a device, but belongs to no device.
            let (made_for, id) = (Device { kind, id: ordinal }, if kind == DeviceType::CUDA { ordinal } else { 0 });
            let stream = stream.filter(|_| kind == DeviceType::CUDA);
            let memory = self.books.insist(|| transfer::allocate_readable(made_for, bytes, stream))?;
            Ok(allocated(Device { kind, id }, bytes, memory))
        })
    }

    unsafe fn pin(&self, ordinal: i32, address: *mut c_void, bytes: usize, flags: HostFlags) -> Result<Owner> {
        // SAFETY: the caller's contract.
        unsafe { self.books.pin(ordinal, address, bytes, flags) }
    }

    fn memory_info(&self, ordinal: i32) -> Result<MemoryInfo> {
        if self.has_devices() {
            return driver_info(ordinal);
        }
        refuse!(DEVX_UNSUPPORTED, "the {} manager does not know how much memory there is", self.name)
    }

    unsafe fn reset(&self, ordinal: i32) -> Result<()> {
        self.books.reset(ordinal);
        Ok(())
    }

    fn defer_cleanup(&self) {
        self.books.defer();
    }

    fn resume_cleanup(&self) -> Result<()> {
        self.books.resume()
    }

    fn trim(&self, _ordinal: i32, _keep: usize) -> Result<()> {
        self.books.flush();
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        self.books.statistics()
    }
}
